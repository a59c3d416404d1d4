"""Which silos step across the boundary, and when: a part of a method that every step-wise exchange obeys."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field

import torch
from torch import Tensor

from isthmus.errors import IsthmusError, unknown
from isthmus.sample.random import order, stream

ALL = -1  # silos
SCORES = ("across", "own")


@dataclass
class Schedule:
    """At every ``every``-th step ``silos`` silos, drawn anew, use their neighbours beyond the boundary.

    They are drawn among those that have something to learn from; ``silos`` -1 is the ``share`` of these, rounded up. At
    other steps, and for the other silos, a step is a local
    one. The draw follows from the seed and the step alone, so that everybody knows it without a word.
    ``score``: parameters are scored with neighbours from ``across`` the boundary, or with a silo's ``own`` alone;
    empty: across, unless nobody ever crosses.
    """

    every: int = 1
    silos: int = ALL
    share: float = 1.0
    score: str = ""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise IsthmusError(f"schedule.every is {self.every}; it must be at least 1.")
        if self.silos < ALL:
            raise IsthmusError(f"schedule.silos is {self.silos}; it must be 0 or more, or {ALL} for schedule.share.")
        if not 0 <= self.share <= 1:
            raise IsthmusError(f"schedule.share is {self.share}; it must lie in [0, 1].")
        if self.score not in ("", *SCORES):
            raise unknown("schedule.score", self.score, SCORES)

    @property
    def always(self) -> bool:
        """Whether all silos cross at every step."""
        return self.every == 1 and self.silos == ALL and self.share == 1

    @property
    def draws(self) -> bool:
        """Whether it differs from step to step who crosses, where somebody does."""
        return self.ever and (self.silos != ALL or self.share < 1)

    @property
    def ever(self) -> bool:
        """Whether anybody ever crosses."""
        return self.silos > 0 or (self.silos == ALL and self.share > 0)

    def everybody(self, silos: int) -> bool:
        """Whether all of so many silos ever cross at once."""
        return self.crossers(silos) == silos

    def crossers(self, silos: int) -> int:
        """How many of so many silos cross, when some do."""
        return math.ceil(self.share * silos - 1e-9) if self.silos == ALL else min(self.silos, silos)

    @property
    def scores_across(self) -> bool:
        """Whether parameters are scored with neighbours from across the boundary."""
        return self.score == "across" if self.score else self.ever

    def check(self, silos: int) -> None:
        """Refuse more silos than there are."""
        if self.silos > silos:
            raise IsthmusError(f"schedule.silos is {self.silos}, but there are {silos} silos.")

    def across(self, step: int, seed: int, learn: Tensor) -> Tensor:
        """Who crosses at a step (counted from 0): [silos] bool; ``learn``: who has something to learn from.

        Where all of these do, so does everybody: one pass is then enough.
        """
        cross = self.due(step, seed, learn)
        return torch.ones_like(cross) if bool(cross[learn].all()) else cross

    def due(self, step: int, seed: int, learn: Tensor) -> Tensor:
        """Who is drawn at a step."""
        cross = torch.zeros_like(learn)
        if step % self.every == 0:
            who = learn.nonzero().flatten()
            cross[who[order(stream(seed, "schedule", step), who)][: self.crossers(len(who))]] = True
        return cross


@dataclass
class Shrinking(Schedule):
    """Each silo crosses at step 0 and then at ever shorter intervals of its own, at last at every step.

    Its first interval is ``period`` steps times a factor between 1/2 and 1 that is drawn for the silo; each is
    ``shrink`` times the one before. ``every`` and ``silos`` are those of an ordinary schedule: a silo that is due
    crosses only where they let it.
    """

    period: int = 20
    shrink: float = 0.9
    _due: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False)  # steps so far, by silo

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period < 1:
            raise IsthmusError(f"schedule.period is {self.period}; it must be at least 1.")
        if not 0 < self.shrink <= 1:
            raise IsthmusError(f"schedule.shrink is {self.shrink}; it must lie in (0, 1].")

    @property
    def always(self) -> bool:
        """With intervals of one step from the beginning."""
        return super().always and self.period == 1

    @property
    def draws(self) -> bool:
        """Each silo has intervals of its own."""
        return self.period > 1 or super().draws

    def due(self, step: int, seed: int, learn: Tensor) -> Tensor:
        """Those whose interval is over."""
        over = torch.tensor([self._is_due(silo, step, seed) for silo in range(len(learn))], dtype=torch.bool)
        return super().due(step, seed, learn) & over

    def _is_due(self, silo: int, step: int, seed: int) -> bool:
        due = self._due.setdefault(silo, [0])
        factor = 0.5 + 0.5 * (stream(seed, "period", silo) % 2**20) / 2**20
        while due[-1] < step:
            due.append(due[-1] + max(1, round(self.period * factor * self.shrink ** (len(due) - 1))))
        return due[bisect_left(due, step)] == step
