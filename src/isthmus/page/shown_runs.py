"""The runs of a list: how each stands and what it scored, from its small files, read again when these change."""

from __future__ import annotations

import json
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, Terminated
from isthmus.page.footing import Footing, footing_of
from isthmus.page.shelf import HERE, RunsFound, Shelf, bounded, stamp
from isthmus.runs.status import FILE, RunStatus, is_held, status_of

GOING = ("running", "starting")
STOPPED = "stopped"  # by SIGTERM: it can go on
_LARGEST = 64_000_000  # bytes of metrics.json and config.toml that are read


@dataclass(frozen=True)
class ShownRun:
    """One line of the list; ``problem`` is a sentence on a folder that is damaged, and empty of any other."""

    name: str
    title: str = ""
    state: str = "damaged"
    method: str = ""
    data: str = ""
    silos: int = 0
    epoch: int = 0
    epochs: int = 0
    loss: float | None = None
    metric: str = ""
    score: float | None = None
    bytes: int | None = None
    epsilon: float | None = None
    changed: float = 0.0
    problem: str = ""
    footing: Footing | None = field(default=None, compare=False)

    @property
    def going(self) -> bool:
        """Whether the run goes on now."""
        return self.state in GOING


class ShownRuns:
    """All runs of a shelf as lines of a list, of which each is read again only when its files have changed."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._known: dict[str, tuple[tuple[Any, ...], ShownRun]] = {}
        self._lock = threading.Lock()

    def all(self) -> tuple[list[ShownRun], RunsFound]:
        """Every run, those that changed last first, and what was found."""
        found = self.shelf.find()
        with self._lock:
            runs = [self._one(name) for name in found.names]
            self._known = {name: self._known[name] for name in found.names if name in self._known}
        return sorted(runs, key=lambda run: (not run.going, -run.changed, run.name)), found

    def one(self, name: str) -> ShownRun:
        """The run of a name, which the shelf has opened."""
        with self._lock:
            return self._one(name)

    def _one(self, name: str) -> ShownRun:
        path = self.shelf.root if name == HERE else self.shelf.root / name
        held = is_held(path)
        signs = (held, *(stamp(path / each) for each in ("config.toml", "metrics.json", FILE.format(0))))
        known = self._known.get(name)
        if known and known[0] == signs and not known[1].going:
            return known[1]
        run = read_run(self.shelf, path, name)
        self._known[name] = signs, run
        return run


def read_run(shelf: Shelf, path: Path, name: str) -> ShownRun:
    """The line of a run; of a folder that is damaged, one that says so, whatever is wrong with it."""
    blank = ShownRun(name, path.name, changed=_changed(path))
    try:
        shelf.check_links(path)
        status, config = _status(path), _table(path / "config.toml", tomllib.loads)
        metrics = _table(path / "metrics.json", json.loads) if (path / "metrics.json").is_file() else {}
        run = _about(replace(blank, state=_state(status)), config, metrics, status)
        if status.damaged:
            return replace(run, problem=f"Damaged: {', '.join(status.damaged)}.")
        return run
    except IsthmusError as error:
        return replace(blank, problem=str(error))
    except Exception as error:  # what stands in a damaged file has no bounds, and one folder must not hide the others
        return replace(blank, problem=f"The files of this run cannot be read ({type(error).__name__}).")


def _status(path: Path) -> RunStatus:
    """How a run stands, also before it has a configuration."""
    if not (path / "config.toml").is_file():
        if is_held(path):
            return RunStatus(str(path), "starting", [], {}, "", [])
        raise IsthmusError("There is no config.toml in this folder, so that it cannot be told what ran.")
    return status_of(path)


def _state(status: RunStatus) -> str:
    """The state of a run in one word; of one that was asked to end, that it was."""
    failed = [host.why for host in status.hosts if host.state == "failed"]
    asked = status.state == "failed" and all(why == Terminated.__name__ for why in failed)
    return STOPPED if asked else status.state


def seed_folders(path: Path) -> list[Path]:
    """The folders of the seeds of a run, by number."""
    named = [each for each in path.glob("seed-*") if each.name[5:].isdigit() and each.is_dir()]
    return sorted(named, key=lambda each: int(each.name[5:]))


def has_checkpoint(path: Path) -> bool:
    """Whether a run, or a seed of it, has left a checkpoint from which it can go on."""
    return any(checkpoint for part in [path, *seed_folders(path)] for checkpoint in part.glob("checkpoint/epoch-*"))


def _table(path: Path, how: Any) -> dict[str, Any]:
    """A table from a small file; raises in words where the file is damaged, or larger than such a file can be."""
    if not path.is_file():
        return {}
    try:
        table = how(bounded(path, _LARGEST).read_text(encoding="utf-8"))
    except ValueError as error:
        raise IsthmusError(f"'{path.name}' is damaged, or being written: {str(error)[:200]}") from error
    if not isinstance(table, dict):
        raise IsthmusError(f"'{path.name}' is damaged: it holds no table.")
    return table


def _about(run: ShownRun, config: Mapping[str, Any], metrics: Mapping[str, Any], status: RunStatus) -> ShownRun:
    """The line of a run, from its configuration, its metrics (empty before its end) and what its hosts tell."""
    data, train = config.get("data") or {}, config.get("train") or {}
    host = max(status.hosts, key=lambda each: each.epoch, default=None)
    metric = str(metrics.get("metric", ""))
    ended = bool(metrics) and run.state not in GOING
    return replace(
        run,
        method=str(metrics.get("label") or metrics.get("method") or config.get("method", "")),
        data=Path(str(metrics.get("data") or data.get("name", ""))).name,
        silos=int(data.get("silos") or metrics.get("silos") or 0),
        epoch=int(metrics["epochs"]) if ended else host.epoch if host else 0,
        epochs=(host.epochs if host else 0) or int(train.get("epochs") or 0),
        loss=host.loss if host and not ended else None,
        metric=metric,
        score=_number((metrics.get("test") or {}).get(metric)),
        bytes=None
        if metrics.get("merged")
        else _whole((metrics.get("bytes") or {}).get("total"))
        if ended
        else _so_far(status),
        epsilon=None if metrics.get("merged") else _number(metrics.get("epsilon")),
        footing=footing_of(config, metrics) if ended else None,
    )


def _bytes(metrics: Mapping[str, Any]) -> int | None:
    """The bytes that crossed in a run that has finished."""
    return _whole((metrics.get("bytes") or {}).get("total"))


def _so_far(status: RunStatus) -> int | None:
    """The bytes that hosts of a run that has not finished tell of; None where one tells of none."""
    each = [host.crossed.get("kinds") or {} for host in status.hosts]
    return sum(int(counts[2]) for kinds in each for counts in kinds.values()) if each and all(each) else None


def _number(value: Any) -> float | None:
    """A number as metrics write it, where endless is ``inf``; None for anything else."""
    if value == "inf":
        return float("inf")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _changed(path: Path) -> float:
    """When a run folder changed last, as far as its small files tell."""
    times = [stamp(path / name) for name in ("metrics.json", FILE.format(0), "config.toml")]
    return max((known[0] / 1e9 for known in times if known), default=0.0)
