"""Trackers that follow a run as watchers: losses by step, validation scores by epoch, and what it found at its end.

They write local files alone, and need the extra ``track``: pip install 'isthmus[track]'.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.runs.config import TRACKERS, RunConfig, flat
from isthmus.runs.folder import RunFolder
from isthmus.train.loop import Result
from isthmus.train.progress import Progress
from isthmus.train.watcher import Watcher


class Tracker(Watcher):
    """Base of trackers: turns what a run tells into named numbers; begins when the run takes its first step."""

    def __init__(self, place: str, name: str = "run", settings: Mapping[str, Any] | None = None) -> None:
        self.place, self.name, self.settings = Path(place), name, dict(settings or {})
        self.folder: RunFolder | None = None  # whose metrics.json tells the end
        self.begun = self.ended = False

    @abstractmethod
    def begin(self) -> None:
        """Open the files of this run, and write down its settings."""

    @abstractmethod
    def number(self, name: str, value: float, step: int) -> None:
        """Write one number."""

    @abstractmethod
    def end(self, finished: bool) -> None:
        """Close the files; ``finished``: the run has come to its end."""

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Write the losses of the epoch's steps, its validation scores and its seconds."""
        if not self.begun:
            self.begun = True
            self.begin()
        for line in lines:
            if line.get("loss") is not None and "valid" not in line:
                self.number("loss", line["loss"], line["step"])
            for name, value in (line.get("valid") or {}).items():
                self.tell(f"valid/{name}", value, line["epoch"])
        if progress.computing:
            self.tell("epoch_seconds", progress.computing[-1], progress.epoch)

    def tell(self, name: str, value: Any, step: int) -> None:
        """Write one number, if it is one."""
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            self.number(name, float(value), step)

    def finish(self, metrics: Mapping[str, Any]) -> None:
        """Write what a run found: test scores in every way of scoring, bytes by kind, epsilon and seconds."""
        for name, value in final_numbers(metrics):
            self.tell(name, value, int(metrics.get("epochs") or 0))
        self.ended = True

    def close(self) -> None:
        """Close the files; where the run has a folder and came to its end, what it found is written first."""
        if not self.begun:
            return
        if self.folder is not None and not self.ended and (self.folder.path / "metrics.json").is_file():
            self.finish(RunFolder(self.folder.path).metrics)
        self.begun = False
        self.end(self.ended)


def final_numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of what a run found."""
    ways = metrics.get("scored") or {str(metrics.get("score", "")): metrics}
    for number, (how, way) in enumerate(ways.items()):
        kind = "test" if number == 0 else f"test {how}"
        yield from ((f"{kind}/{name}", value) for name, value in (way.get("test") or {}).items())
    yield from ((f"bytes/{kind}", size) for kind, size in (metrics.get("bytes") or {}).items())
    epsilon = metrics.get("epsilon")
    yield "epsilon", float(epsilon) if isinstance(epsilon, int | float | str) else None
    yield "seconds", metrics.get("seconds")


class Several(Watcher):
    """Watchers that all follow one run."""

    def __init__(self, inner: Sequence[Watcher]) -> None:
        self.inner = tuple(inner)

    def on_step(self, progress: Progress, loss: float) -> None:
        """Tell all of a step."""
        for each in self.inner:
            each.on_step(progress, loss)

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Tell all of an epoch."""
        for each in self.inner:
            each.on_epoch(progress, lines)

    def on_rollback(self, progress: Progress) -> None:
        """Tell all that a round was rolled back."""
        for each in self.inner:
            each.on_rollback(progress)

    def close(self) -> None:
        """Close all."""
        for each in self.inner:
            each.close()


def tracker(what: str, name: str = "run", settings: Mapping[str, Any] | None = None) -> Tracker:
    """The tracker of ``tensorboard:DIR`` or ``mlflow:DIR``, to give to ``isthmus.fit`` as its ``watcher``."""
    kind, _, place = what.partition(":")
    if kind not in TRACKERS or not place:
        raise unknown("tracker", what, [f"{each}:DIR" for each in TRACKERS])
    if find_spec(kind) is None:
        raise IsthmusError(f"--track {kind} needs a package that is not installed: pip install 'isthmus[track]'.")
    if kind == "mlflow":
        from isthmus.launch.mlflow_tracker import MLflowTracker

        return MLflowTracker(place, name, settings)
    from isthmus.launch.tensorboard_tracker import TensorBoardTracker

    return TensorBoardTracker(place, name, settings)


def watcher_of(config: RunConfig, watcher: Watcher | None, folder: RunFolder | None = None, label: str = "") -> Watcher:
    """A watcher together with the trackers that the configuration names."""
    known = [] if watcher is None else [watcher]
    found = []
    for kind, place in config.system.trackers:
        name = f"{label or config.label}, seed {config.seed}"
        each = tracker(f"{kind}:{place}", name, flat(config.as_dict()))
        each.folder = folder
        found.append(each)
    return Several([*known, *found]) if found else watcher or Watcher()


def tell_the_end(watcher: Watcher, result: Result) -> None:
    """Tell the trackers among some watchers what a run in this process found."""
    told = {
        "epochs": result.training.progress.epoch,
        "scored": {each.how: {"test": each.test.as_dict()} for each in result.verdicts},
        "bytes": {"total": sum(result.bytes.values()), **result.bytes},
        "seconds": result.training.progress.seconds,
    }
    for each in watcher.inner if isinstance(watcher, Several) else [watcher]:
        if isinstance(each, Tracker) and not each.ended:
            each.finish(told)
