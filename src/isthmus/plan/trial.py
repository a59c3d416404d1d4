"""A trial of a few steps of each phase, and what is measured beside its ledger: releases by purpose, and seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import STEPS, Purpose
from isthmus.engine.settings import TrainConfig
from isthmus.plan.run_length import Length, length_of, trial_steps_of
from isthmus.protect.releases import PAYLOADS, Releases
from isthmus.train.loop import train_phase
from isthmus.train.progress import Progress
from isthmus.train.stage import phase_length
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from isthmus.wire.ledger import Ledger


class ByPurpose(Releases):
    """Counts releases of rows for each phase and purpose by itself, so that each can be scaled."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger, self.each, self.phase = ledger, dict[tuple[str, int, Purpose], Tensor](), 0

    def count(self, name: str, at: Tensor, size: int, every: bool = False) -> None:
        """Count in the table itself, and once more by purpose."""
        before = self.state[name].clone() if name in self.state else torch.zeros(size, dtype=torch.int64)
        super().count(name, at, size, every)
        more = self.state[name] - before.to(self.state[name].device)
        key = name, self.phase, self.ledger.purpose
        self.each[key] = self.each[key] + more if key in self.each else more

    def scale(self, rows: Sequence[Mapping[Purpose, float]], often: Sequence[Mapping[Purpose, float]]) -> None:
        """Scale the counts of the trial to the whole run: rows by the factors ``rows``, payloads by ``often``.

        Both have, for each phase, a factor by purpose.
        """
        for name in {name for name, *_ in self.each}:
            factors = often if name.startswith(f"{PAYLOADS}/") else rows
            parts = [n * factors[phase][purpose] for (of, phase, purpose), n in self.each.items() if of == name]
            whole = sum(parts)
            assert isinstance(whole, Tensor)
            self.state[name] = whole.round().long()


@dataclass
class Stopwatch(Watcher):
    """Seconds of every step and of every validation, as measured."""

    steps: dict[Purpose, list[float]] = field(default_factory=lambda: {kind: [] for kind in STEPS})
    validations: list[float] = field(default_factory=list)
    mark: float = field(default_factory=time.perf_counter)

    def _lap(self) -> float:
        before, self.mark = self.mark, time.perf_counter()
        return self.mark - before

    def on_step(self, progress: Progress, loss: float) -> None:
        """Note the seconds of a step."""
        self.steps[progress.purpose].append(self._lap())

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Note the seconds of a validation, if the epoch ended with one."""
        spent = self._lap()
        self.validations += [spent] if any("valid" in line for line in lines) else []

    def whole(self, length: Length) -> float:
        """Seconds of a whole run; the first step of a kind, which warms up, is left out where there are others."""
        often = (length.rests, length.crossings, length.mixed, length.validations)
        laps = (*(each[1:] or each for each in self.steps.values()), self.validations)
        return sum(fmean(lap or [0.0]) * count for lap, count in zip(laps, often, strict=True))


@dataclass(frozen=True)
class Tried:
    """A trial of one phase: how long the whole phase would be, and how much of it was tried.

    ``last_step`` is the step of the trial that the phase ended with; ``seconds`` are those of the whole phase.
    """

    length: Length
    trial: Length
    round_fits: bool
    last_step: int
    seconds: float

    @property
    def often(self) -> dict[Purpose, float]:
        """By purpose, the factor from messages of the trial to those of the phase."""
        return self.length.over(self.trial)

    @property
    def rows(self) -> dict[Purpose, float]:
        """By purpose, the factor from rows drawn in the trial to those of the phase."""
        return self.length.rows_over(self.trial)


def try_phases(training: Training, train: TrainConfig, wished: int | None, releases: ByPurpose) -> list[Tried]:
    """Train a few steps of each phase, one phase after the other; returns a `Tried` for each."""
    tried, begun = list[Tried](), Progress()  # where a phase begins in the run that is planned
    for number, phase in enumerate(training.phases):
        if number:
            training.go_on(number)
        releases.phase, stage = number, training.stage
        epochs, total = phase_length(phase, train, stage.steps_per_epoch, begun)
        steps, round_fits = trial_steps_of(stage, total, wished)
        watch = Stopwatch()
        lengths = length_of(stage, total, begun.epoch), length_of(stage, steps, stage.first_epoch)
        training.stop_after(steps)
        train_phase(training, watch)
        tried.append(Tried(*lengths, round_fits, training.progress.step, watch.whole(lengths[0])))
        begun.step, begun.epoch = begun.step + total, begun.epoch + epochs
    return tried
