"""How an audit goes, for people: a bar on a terminal, plain lines when piped, nothing where it takes no time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress as RichProgress

from isthmus.train.loop import Watcher
from isthmus.train.progress import Progress

_PATIENCE = 3.0  # seconds before anything is shown where output is piped
_LINES = 10  # lines of a piped replay


class Watch:
    """Who is told how far an audit is; this one ignores it."""

    def begin(self, what: str, total: int) -> None:
        """A part of the audit begins that has so many steps."""

    def advance(self, steps: int) -> None:
        """So many steps of the part at hand are done."""


class BarWatch(Watch):
    """A live bar for the part at hand."""

    def __init__(self, bar: RichProgress) -> None:
        self.bar, self.task = bar, bar.add_task("audit", total=None)

    def begin(self, what: str, total: int) -> None:
        """Start the bar anew."""
        self.bar.reset(self.task, total=total, description=f"audit: {what}")

    def advance(self, steps: int) -> None:
        """Move the bar."""
        self.bar.advance(self.task, steps)


class LineWatch(Watch):
    """About ten lines on stderr for each part, once the audit has lasted some seconds."""

    def __init__(self) -> None:
        self.begun, self.what, self.total, self.done, self.shown = time.perf_counter(), "", 0, 0, -1

    def begin(self, what: str, total: int) -> None:
        """Remember the part at hand, and name it."""
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
        """One step more."""
        if not self.begun:
            self.begun = True
            self.watch.begin("replaying the run, steps", progress.epochs * progress.steps_per_epoch)
        self.watch.advance(1)

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Steps say it all."""


@contextmanager
def watched_audit() -> Iterator[Watch]:
    """Yield the watch that fits where stderr goes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield LineWatch()
        return
    with RichProgress(console=console, transient=True) as bar:
        yield BarWatch(bar)
