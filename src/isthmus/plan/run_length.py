"""How long a run and each of its phases are, counted without training: steps, epochs, rounds and validations."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import FINAL, STEPS, Purpose
from isthmus.graph.graph import TRAIN, VALID
from isthmus.methods.sync.base import Sync
from isthmus.train.stage import Stage

MOST = 64  # trial steps, unless --trial-steps asks for more


@dataclass(frozen=True)
class Length:
    """How many steps, epochs, rounds and validations a run has if nothing stops it early."""

    steps: int = 0
    crossings: int = 0  # steps at which a schedule lets all silos cross; 0 where they always do
    mixed: int = 0  # steps at which it lets only some
    corrections: int = 0  # steps that the server takes for all
    epochs: int = 0
    rounds: int = 0
    validations: int = 0
    seeds: dict[Purpose, float] = field(default_factory=dict)  # by kind of step, seeds for which rows may cross

    def over(self, part: Length) -> dict[Purpose, float]:
        """The factor from messages in ``part`` of the run to those of the whole run, by purpose of the ledger."""
        often = {
            Purpose.ORDER: (self.epochs, part.epochs),
            Purpose.STEP: (self.rests, part.rests),
            Purpose.CROSSING: (self.crossings, part.crossings),
            Purpose.MIXED: (self.mixed, part.mixed),
            Purpose.CORRECTION: (self.corrections, part.corrections),
            Purpose.ROUND: (self.rounds, part.rounds),
            Purpose.VALIDATION: (self.validations, part.validations),
            Purpose.LOSSES: (self.steps, part.steps),  # one message an epoch, with a line for each step
        }
        ratios = {purpose: here / there if there else 0.0 for purpose, (here, there) in often.items()}
        return {**ratios, **dict.fromkeys((Purpose.SETUP, Purpose.HANDOVER, *FINAL), 1.0)}

    def __add__(self, other: Length) -> Length:
        """The length of two phases together."""
        numbers = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "seeds"}
        return Length(**numbers, seeds={kind: self.seeds.get(kind, 0.0) + other.seeds.get(kind, 0.0) for kind in STEPS})

    def rows_over(self, part: Length) -> dict[Purpose, float]:
        """The factor from rows drawn in ``part`` to those of the whole run, by purpose; at steps by their seeds."""
        steps = {kind: seeds / part.seeds[kind] if part.seeds.get(kind) else 0.0 for kind, seeds in self.seeds.items()}
        return {**self.over(part), **steps}

    @property
    def crosses(self) -> int:
        """Steps at which silos cross; without a schedule all."""
        return self.crossings + self.mixed or self.steps

    @property
    def rests(self) -> int:
        """Steps at which no silo crosses; without a schedule all."""
        return self.steps - self.crossings - self.mixed


def length_of(stage: Stage, last: int, before: int) -> Length:
    """Walk through the loop of ``train/loop.py`` for ``last`` steps of a phase, without taking one.

    ``before``: epochs of the run before the phase, from whose start validations are counted.
    """
    size, train, sync = stage.steps_per_epoch, stage.site.train, stage.phase.sync
    epochs = -(-last // size)
    scored = int(stage.scorer.pool(VALID).counts.sum()) > 0
    rounds = validations = 0
    due = ends = False
    for epoch in range(1, epochs + 1):
        for step in range((epoch - 1) * size + 1, min(epoch * size, last) + 1):
            ends = _ends(sync, step, size, last)
            rounds += ends
            if ends and due and step % size:  # what waited for the end of the round
                validations, due = validations + 1, False
        due |= scored and ((before + epoch) % train.evaluate_every == 0 or epoch == epochs)
        if ends and due:
            validations, due = validations + 1, False
    kinds = _kinds(stage, last)
    seeds: dict[Purpose, float] = dict.fromkeys(STEPS, 0.0)
    for step, kind in enumerate(kinds):
        seeds[kind] += float(_seeds(stage, step, kind).sum())
    often = kinds.count(Purpose.CROSSING), kinds.count(Purpose.MIXED)
    corrections = sum(sync.server_steps(step, _ends(sync, step + 1, size, last)) for step in range(last))
    return Length(last, *often, corrections, epochs, rounds, validations, seeds)


def _seeds(stage: Stage, step: int, kind: Purpose) -> Tensor:
    """Seeds for which something may cross at a step of a phase: [silos]."""
    pool, size = stage.layout.pools[TRAIN], stage.site.train.batch
    seeds = stage.layout.order.seeds_of(pool, size, step % stage.steps_per_epoch) if size else pool.counts
    return seeds[stage.who_crosses(stage.first_step + step)] if kind is Purpose.MIXED else seeds


def _kinds(stage: Stage, steps: int) -> tuple[Purpose, ...]:
    """The ledger's purpose of each of the first ``steps`` steps of a phase."""
    return tuple(stage.purpose(stage.first_step + step) for step in range(steps))


def _steps_for_all_kinds(stage: Stage, total: int) -> int:
    """How many steps it takes to see each kind of step of a phase once: all silos cross, some, none; a correction.

    Corrections at the end of rounds are seen in every trial, whose last step ends a round.
    """
    kinds = _kinds(stage, total)
    first = next((step for step in range(total) if stage.phase.sync.server_steps(step, round_over=False)), -1)
    return 1 + max([first, *(kinds.index(kind) for kind in set(kinds))], default=-1)


def _steps_until_silos_crossed(stage: Stage, total: int) -> int:
    """Steps, at most ``MOST``, until silos crossed twice on average; 0 where the schedule does not draw silos."""
    if not stage.phase.schedule.draws:
        return 0
    crossed = 0
    for step in range(min(total, MOST)):
        cross = stage.who_crosses(stage.first_step + step)
        crossed += 0 if bool(cross.all()) else int(cross.sum())
        if crossed >= 2 * stage.site.wire.silos:
            return step + 1
    return min(total, MOST)


def _ends(sync: Sync, step: int, size: int, last: int) -> bool:
    """Whether a round ends after ``step`` of a phase of ``last`` steps, with ``size`` steps an epoch."""
    return sync.round_over(step, -(-step // size), step % size == 0) or step == last


def trial_steps_of(stage: Stage, total: int, wished: int | None) -> tuple[int, bool]:
    """How many steps a trial of a phase of ``total`` steps takes, and whether a whole round fits in.

    As many as ``wished``, or else at least two, an epoch (its last batch is smaller), a round, and two crossings of
    every silo on average, as far as ``MOST`` steps go.
    """
    size = stage.steps_per_epoch
    if wished is not None and wished < 1:
        raise IsthmusError(f"--trial-steps is {wished}; it must be at least 1.")
    least = _steps_for_all_kinds(stage, total)
    if wished is not None and least > wished:
        raise IsthmusError(
            f"--trial-steps is {wished}, but the first {wished} steps are not of all kinds that the schedule has; "
            f"give at least {least}."
        )
    sync = stage.phase.sync
    fits = next((s for s in range(max(2, size), MOST + 1) if _ends(sync, s, size, total)), MOST)
    steps = min(wished or max(fits, least, _steps_until_silos_crossed(stage, total)), total)
    whole = any(_ends(sync, step, size, total) for step in range(1, steps + 1))
    return steps, whole
