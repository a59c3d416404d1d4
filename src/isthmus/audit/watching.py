"""Progress of an audit for people: a bar on a terminal; plain lines when piped, after some seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress as RichProgress

from isthmus.train.progress import Progress
from isthmus.train.watcher import Watcher

_PATIENCE = 3.0  # seconds before anything is shown where output is piped
_LINES = 10  # lines of a piped replay


class Watch:
    """Receives the progress of an audit; this base class ignores it."""

    def begin(self, what: str, total: int) -> None:
        """Called when a part of the audit begins, with its name and number of steps."""

    def advance(self, steps: int) -> None:
        """Called when ``steps`` more steps of the current part are done."""


class BarWatch(Watch):
    """A live bar for the current part of an audit."""

    def __init__(self, bar: RichProgress) -> None:
        self.bar, self.task = bar, bar.add_task("audit", total=None)

    def begin(self, what: str, total: int) -> None:
        """Start the bar anew for a part."""
        self.bar.reset(self.task, total=total, description=f"audit: {what}")

    def advance(self, steps: int) -> None:
        """Move the bar."""
        self.bar.advance(self.task, steps)


class LineWatch(Watch):
    """About ten lines on stderr for each part, once the audit has lasted some seconds."""

    def __init__(self) -> None:
        self.begun, self.what, self.total, self.done, self.shown = time.perf_counter(), "", 0, 0, -1

    def begin(self, what: str, total: int) -> None:
        """Remember the current part, and print its name."""
        self.what, self.total, self.done, self.shown = what, max(total, 1), 0, -1
        self._show()

    def advance(self, steps: int) -> None:
        """Print a line at every tenth of the part."""
        self.done += steps
        self._show()

    def _show(self) -> None:
        tenth = _LINES * self.done // self.total
        if tenth > self.shown and time.perf_counter() - self.begun > _PATIENCE:
            self.shown = tenth
            print(f"audit: {self.what} {self.done}/{self.total}", file=sys.stderr, flush=True)


class Replaying(Watcher):
    """Passes the steps of a replayed run on to a watch."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.begun = watch, False

    def on_step(self, progress: Progress, loss: float) -> None:
        """Count one more step of the replay."""
        if not self.begun:
            self.begun = True
            self.watch.begin("replaying the run, steps", progress.epochs * progress.steps_per_epoch)
        self.watch.advance(1)

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Nothing happens at the end of an epoch: progress is counted in steps."""


@contextmanager
def watched_audit() -> Iterator[Watch]:
    """Yield a watch with a bar where stderr is a terminal, else one that prints lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineWatch()
        return
    with RichProgress(console=console, transient=True) as bar:
        yield BarWatch(bar)
