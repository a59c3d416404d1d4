"""Schedules: which silos use neighbours beyond the boundary at which steps, for exchanges that cross at steps."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Purpose
from isthmus.core.random import order, stream

ALL = -1  # silos


@dataclass(frozen=True)
class Schedule:
    """At every ``every``-th step ``silos`` silos, drawn anew, use their neighbours beyond the boundary.

    They are drawn among those that have something to learn from; ``silos`` -1 is the ``share`` of these, rounded up.
    At other steps, and for the other silos, a step is a local one. The draw follows from the seed and the step alone,
    so that every silo knows it without being told.
    """

    every: int = 1
    silos: int = ALL
    share: float = 1.0
    name: ClassVar[str] = "every"

    def __post_init__(self) -> None:
        if self.every < 1:
            raise IsthmusError(f"schedule.every is {self.every}; it must be at least 1.")
        if self.silos < ALL:
            raise IsthmusError(f"schedule.silos is {self.silos}; it must be 0 or more, or {ALL} for schedule.share.")
        if not 0 <= self.share <= 1:
            raise IsthmusError(f"schedule.share is {self.share}; it must lie in [0, 1].")

    @property
    def always(self) -> bool:
        """Whether all silos cross at every step."""
        return self.every == 1 and self.silos == ALL and self.share == 1

    @property
    def draws(self) -> bool:
        """Whether the silos that cross differ from step to step, where any cross."""
        return self.ever and (self.silos != ALL or self.share < 1)

    @property
    def ever(self) -> bool:
        """Whether anybody ever crosses."""
        return self.silos > 0 or (self.silos == ALL and self.share > 0)

    def everybody(self, silos: int) -> bool:
        """Whether all of ``silos`` silos ever cross at once."""
        return self.crossers(silos) == silos

    def crossers(self, silos: int) -> int:
        """How many of ``silos`` silos cross at a step at which any do."""
        return math.ceil(self.share * silos - 1e-9) if self.silos == ALL else min(self.silos, silos)

    def check(self, silos: int) -> None:
        """Refuse more silos than there are."""
        if self.silos > silos:
            raise IsthmusError(f"schedule.silos is {self.silos}, but there are {silos} silos.")

    def open(self, seed: int, learn: Tensor) -> Timetable:
        """The timetable of a run; ``learn`` [silos]: who has something to learn from."""
        return Timetable(self, seed, learn)


@dataclass(frozen=True)
class Shrinking(Schedule):
    """Each silo crosses at step 0 and then at ever shorter intervals of its own, at last at every step.

    Its first interval is ``period`` steps times a factor between 1/2 and 1 that is drawn for the silo; each is
    ``shrink`` times the one before. A silo that is due crosses only at an ``every``-th step, and where
    ``silos`` are drawn only if it is among them.
    """

    period: int = 20
    shrink: float = 0.9
    name: ClassVar[str] = "shrinking"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period < 1:
            raise IsthmusError(f"schedule.period is {self.period}; it must be at least 1.")
        if not 0 < self.shrink <= 1:
            raise IsthmusError(f"schedule.shrink is {self.shrink}; it must lie in (0, 1].")

    @property
    def always(self) -> bool:
        """Whether all silos cross at every step: their intervals are of one step from the beginning."""
        return super().always and self.period == 1

    @property
    def draws(self) -> bool:
        """Whether the silos that cross differ from step to step, as each has intervals of its own."""
        return self.period > 1 or super().draws

    def open(self, seed: int, learn: Tensor) -> Timetable:
        """A timetable with intervals of each silo's own."""
        return ShrinkingTimetable(self, seed, learn)


class Timetable:
    """Which silos cross at which step of a run; a function of seed and step, without state of its own."""

    def __init__(self, schedule: Schedule, seed: int, learn: Tensor) -> None:
        self.schedule, self.seed, self.learn = schedule, seed, learn

    def across(self, step: int) -> Tensor:
        """Who crosses at a step (counted from 0): [silos] bool. Where all that can learn do, so does everybody."""
        cross = self.due(step)
        return torch.ones_like(cross) if bool(cross[self.learn].all()) else cross

    def due(self, step: int) -> Tensor:
        """Who is drawn at a step: [silos] bool."""
        cross = torch.zeros_like(self.learn)
        if step % self.schedule.every == 0:
            who = self.learn.nonzero().flatten()
            drawn = who[order(stream(self.seed, "schedule", step), who)]
            cross[drawn[: self.schedule.crossers(len(who))]] = True
        return cross

    def purpose(self, step: int) -> Purpose:
        """The ledger's purpose of a training step (counted from 0): all silos cross, some (mixed), or none."""
        if self.schedule.always:
            return Purpose.STEP
        cross = self.across(step)
        if not bool(cross.any()):
            return Purpose.STEP
        return Purpose.CROSSING if bool(cross.all()) else Purpose.MIXED


class ShrinkingTimetable(Timetable):
    """A timetable with an interval for each silo that shrinks; steps at which a silo is due follow from the seed."""

    schedule: Shrinking

    def __init__(self, schedule: Shrinking, seed: int, learn: Tensor) -> None:
        super().__init__(schedule, seed, learn)
        self._due: dict[int, list[int]] = {}

    def due(self, step: int) -> Tensor:
        """The drawn silos whose interval ends at this step: [silos] bool."""
        over = torch.tensor([self._is_due(silo, step) for silo in range(len(self.learn))], dtype=torch.bool)
        return super().due(step) & over

    def _is_due(self, silo: int, step: int) -> bool:
        due = self._due.setdefault(silo, [0])
        factor = 0.5 + 0.5 * (stream(self.seed, "period", silo) % 2**20) / 2**20
        while due[-1] < step:
            interval = self.schedule.period * factor * self.schedule.shrink ** (len(due) - 1)
            due.append(due[-1] + max(1, round(interval)))
        return due[bisect_left(due, step)] == step
