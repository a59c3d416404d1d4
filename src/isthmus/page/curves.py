"""The curves of a run, read while they grow: loss by step, validation scores by epoch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.page.shelf import bounded
from isthmus.page.shown_runs import seed_folders
from isthmus.runs.text import is_share

MOST = 256_000_000  # bytes of metrics.jsonl that are read


@dataclass(frozen=True)
class LiveCurves:
    """Curves as far as a run has come; of several seeds those of the last. ``metric`` is the first that it tells."""

    steps: list[int]
    loss: list[float | None]
    epochs: list[int]
    valid: list[float | None]
    silos: list[list[float | None]]
    metric: str
    note: str = ""

    @property
    def share(self) -> bool:
        """Whether scores read best in per cent."""
        return is_share(self.metric)


def live_curves(run: Path, metric: str = "") -> LiveCurves:
    """The curves of a run, finished or not; a last line that is half written is left for the next look."""
    told = [each for each in seed_folders(run) if (each / "metrics.jsonl").is_file()]
    part = told[-1] if told else run
    note = f"Of the seed {part.name[5:]}, which was begun last." if len(told) > 1 else ""
    lines = _lines(part / "metrics.jsonl")
    losses = {line["step"]: _finite(line.get("loss")) for line in lines if "valid" not in line and _whole(line, "step")}
    scored = {line["epoch"]: line for line in lines if isinstance(line.get("valid"), dict) and _whole(line, "epoch")}
    names = [name for line in list(scored.values())[:1] for name in line["valid"]]
    metric = metric if metric in names else next(iter(names), metric)
    epochs = sorted(scored)
    width = max((len(_silos(line)) for line in scored.values()), default=0)
    each = [[_at(_silos(scored[epoch]), place) for epoch in epochs] for place in range(width)]
    valid = [_finite(scored[epoch]["valid"].get(metric)) for epoch in epochs]
    return LiveCurves(sorted(losses), [losses[step] for step in sorted(losses)], epochs, valid, each, metric, note)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl`` that are tables; raises in words where most of the file is something else."""
    if not path.is_file():
        return []
    found, wrong = list[dict[str, Any]](), 0
    for text in bounded(path, MOST).read_bytes().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        wrong += not isinstance(line, dict)
        found += [line] if isinstance(line, dict) else []
    if wrong > 1:  # the last may be half written
        raise IsthmusError(f"'metrics.jsonl' is damaged: {wrong:,} of its {len(found) + wrong:,} lines are no tables.")
    return found


def _whole(line: Mapping[str, Any], name: str) -> bool:
    return isinstance(line.get(name), int) and not isinstance(line[name], bool)


def _silos(line: Mapping[str, Any]) -> Sequence[Any]:
    each = line.get("silo_valid")
    return each if isinstance(each, list) else ()


def _at(values: Sequence[Any], place: int) -> float | None:
    return _finite(values[place]) if place < len(values) else None


def _finite(value: Any) -> float | None:
    """A number; None where there is none, or where it is not finite."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")
    return float(value) if good else None
