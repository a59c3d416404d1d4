"""How long a run is, counted without training: steps, epochs, rounds and validations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from isthmus.errors import IsthmusError
from isthmus.graph.graph import VALID
from isthmus.settings import TrainConfig
from isthmus.state import Run
from isthmus.sync.base import Sync
from isthmus.wire.ledger import Purpose

MOST = 64  # trial steps, where nobody asks for more


@dataclass(frozen=True)
class Length:
    """What a run goes through if nothing stops it early."""

    steps: int = 0
    crossings: int = 0  # steps at which a schedule lets silos cross; 0 where they always do
    crossers: int = 0  # and silos at all of them
    epochs: int = 0
    rounds: int = 0
    validations: int = 0

    def over(self, part: Length) -> dict[Purpose, float]:
        """For each purpose of the ledger, how much more of it there is than in a part of the run."""
        often = {
            Purpose.ORDER: (self.epochs, part.epochs),
            Purpose.STEP: (self.steps - self.crossings, part.steps - part.crossings),
            Purpose.CROSSING: (self.crossings, part.crossings),
            Purpose.ROUND: (self.rounds, part.rounds),
            Purpose.VALIDATION: (self.validations, part.validations),
            Purpose.LOSSES: (self.steps, part.steps),  # one message an epoch, with a line for each step
        }
        ratios = {purpose: here / there if there else 0.0 for purpose, (here, there) in often.items()}
        return {Purpose.SETUP: 1.0, **ratios, Purpose.END: 1.0}


def length_of(run: Run, train: TrainConfig) -> Length:
    """Walk through the loop of ``train.py`` as a run with these settings would, without a step."""
    size, epochs = run.steps_per_epoch, train.total_epochs(run.steps_per_epoch)
    last = train.steps or epochs * size
    scored = int(run.pools[VALID].counts.sum()) > 0
    rounds = validations = 0
    due = ends = False
    for epoch in range(1, epochs + 1):
        for step in range((epoch - 1) * size + 1, min(epoch * size, last) + 1):
            ends = _ends(run.sync, step, size, last)
            rounds += ends
            if ends and due and step % size:  # what waited for the end of the round
                validations, due = validations + 1, False
        due |= scored and (epoch % train.evaluate_every == 0 or epoch == epochs)
        if ends and due:
            validations, due = validations + 1, False
    return Length(last, *_crossings(run, last), epochs, rounds, validations)


def _crossings(run: Run, steps: int) -> tuple[int, int]:
    """How many of the first steps silos cross at, and how many silos do in all."""
    if run.schedule.always:
        return 0, 0
    silos = [int(run.schedule.across(step, run.seed, run.wire.silos).sum()) for step in range(steps)]
    return sum(count > 0 for count in silos), sum(silos)


def _shows_all(run: Run, steps: int, total: int) -> bool:
    """Whether the first steps have both kinds of steps, those at which silos cross and others, if the run has."""
    (here, _), (whole, _) = _crossings(run, steps), _crossings(run, total)
    return (here > 0 or not whole) and (here < steps or whole == total)


def _ends(sync: Sync, step: int, size: int, last: int) -> bool:
    """Whether a round ends after a step."""
    return sync.round_over(step, -(-step // size), step % size == 0) or step == last


def shorten(run: Run, wished: int | None) -> bool:
    """Let a run stop after a few steps; returns whether a whole round fits in.

    Those asked for, or else two, an epoch (its last batch is smaller) and a round, as far as ``MOST`` steps go.
    """
    size, total = run.steps_per_epoch, length_of(run, run.train).steps
    if wished is not None and wished < 1:
        raise IsthmusError(f"--trial-steps is {wished}; it must be at least 1.")
    steps = wished or next((s for s in range(max(2, size), MOST + 1) if _ends(run.sync, s, size, total)), MOST)
    steps = min(steps, total)
    least = next((s for s in range(steps, total + 1) if _shows_all(run, s, total)), total)
    if wished is not None and least > steps:
        raise IsthmusError(
            f"--trial-steps is {wished}, but the schedule has steps of two kinds, and the first {steps} are of one; "
            f"give at least {least}."
        )
    steps = least
    run.train = replace(run.train, steps=steps, epochs=0, patience=0)
    run.epochs = run.train.total_epochs(size)
    return any(_ends(run.sync, step, size, total) for step in range(1, steps + 1))
