"""How long a run will take, said after its first steps, with smaller settings where that is more than an hour."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from isthmus.runs.config import RunConfig
from isthmus.runs.smaller import LONG, advice
from isthmus.runs.text import wait_text
from isthmus.train.progress import Progress
from isthmus.train.watcher import Watcher

_STEPS = 3  # of which the first, which warms up, does not count
_WORTH = 60.0  # seconds; a shorter run needs no forecast


class LengthForecast(Watcher):
    """Follows a training with another watcher, and says once how long it will take; ``say`` prints a sentence."""

    def __init__(
        self,
        config: RunConfig,
        inner: Watcher,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.config, self.inner, self.say, self.clock = config, inner, say, clock
        self.first: tuple[int, float] | None = None  # the step after which the clock was read, and its time
        self.said = self.warned = False

    def on_step(self, progress: Progress, loss: float) -> None:
        """Read the clock, and say how long the run will take once enough steps are known."""
        self.inner.on_step(progress, loss)
        if self.first is None:
            self.first = progress.step, self.clock()
        elif not self.said and progress.step - self.first[0] >= _STEPS - 1:
            self._tell(progress, "before validations")

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Say again how long the run will take where validations make it long."""
        self.inner.on_epoch(progress, lines)
        if self.first is not None and not self.warned and progress.step > self.first[0]:
            if self._whole(progress) > LONG or not self.said:
                self._tell(progress, "with validations")

    def on_rollback(self, progress: Progress) -> None:
        """Tell the inner watcher."""
        self.inner.on_rollback(progress)

    def close(self) -> None:
        """Close the inner watcher."""
        self.inner.close()

    def _whole(self, progress: Progress) -> float:
        """Seconds of the whole run, at the pace so far."""
        assert self.first is not None
        taken, steps = self.clock() - self.first[1], progress.step - self.first[0]
        return taken / steps * max(progress.epochs * progress.steps_per_epoch, progress.last_step)

    def _tell(self, progress: Progress, what: str) -> None:
        seconds, self.said = self._whole(progress), True
        if seconds < _WORTH:
            return
        steps = max(progress.epochs * progress.steps_per_epoch, progress.last_step)
        told = advice(seconds, self.config)
        self.warned = bool(told)
        self.say(f"About {wait_text(seconds)} for {steps:,} steps, {what}. {told}".strip())
