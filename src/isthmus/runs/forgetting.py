"""Forgetting: what a finished run has kept of single nodes is deleted; scores, ledger and accounts stay."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from isthmus.runs.folder import FORGOTTEN, locked
from isthmus.runs.status import is_held

# What holds rows of nodes: rows as they left, rows before noise and far ends' rows in checkpoints, and the data itself
# where one process has split it for several hosts.
ROWS = {
    "released*.safetensors": "rows as they left last",
    "checkpoint": "checkpoints, with rows before noise and rows of other silos",
    "parts": "a copy of every silo's data",
    "predictions.parquet": "predictions for single nodes",
}


@dataclass(frozen=True)
class Forgotten:
    """What was deleted of one run: names of files and folders, what they held, and their bytes."""

    folder: Path
    deleted: dict[str, str]
    size: int


def runs_below(path: Path) -> list[Path]:
    """The run in a folder and all that lie below it: runs, their seeds, and what each party has; raises for none."""
    found = sorted(each.parent for each in path.rglob("config.toml"))
    if not found:
        raise IsthmusError(f"'{path}' holds no run; give the folder of a run, or one that holds runs, like runs.")
    return found


def forget(path: Path, unfinished: bool = False) -> Forgotten:
    """Delete what a run keeps of single nodes, and write down when; a run that is going on is refused.

    A seed, or what a party has, stays as long as the whole run may need it.
    """
    for run in _wholes(path):
        if not (run / "metrics.json").is_file() and not unfinished:
            raise IsthmusError(
                f"'{run}' has not finished, and without its checkpoints it cannot go on; add --unfinished to give it "
                "up."
            )
        if is_held(run):
            raise IsthmusError(f"'{run}' is in use by another process; wait until that has ended.")
    with locked(path):
        doomed = {found: what for name, what in ROWS.items() for found in sorted(path.glob(name))}
        size = sum(each.stat().st_size for found in doomed for each in _files(found))
        before = [path / FORGOTTEN] if (path / FORGOTTEN).is_file() else []
        if doomed or not before:
            told = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "deleted": [each.name for each in doomed]}
            write_atomic(path / FORGOTTEN, (json.dumps(told) + "\n").encode())  # first: what is half deleted is no run
        for found in doomed:
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    return Forgotten(path, {found.name: what for found, what in doomed.items()}, size)


def _wholes(path: Path) -> list[Path]:
    """The run that a folder of a seed or of a party belongs to, from the outermost down to the folder itself."""
    above = path.parent.parent if path.parent.name == "parties" else path.parent
    belongs = above != path.parent or path.name.startswith("seed-")
    return [*(_wholes(above) if belongs and (above / "config.toml").is_file() else []), path]


def days_since_end(path: Path) -> float:
    """Days since a run wrote its metrics, or its configuration where it has none."""
    kept = next(each for each in (path / "metrics.json", path / "config.toml") if each.is_file())
    return (datetime.now(UTC).timestamp() - kept.stat().st_mtime) / 86400


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
