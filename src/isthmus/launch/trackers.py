"""Trackers that follow a run as watchers: they write local files alone, and need the extra ``track``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.launch.tracker import Tracker
from isthmus.runs.config import TRACKERS, RunConfig, flat
from isthmus.runs.folder import RunFolder
from isthmus.train.progress import Progress
from isthmus.train.result import Result
from isthmus.train.watcher import Watcher


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
