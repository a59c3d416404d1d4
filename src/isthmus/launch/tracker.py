"""What trackers have in common: a run as named numbers, losses by step, validation scores by epoch, and its end."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from isthmus.runs.folder import RunFolder
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
