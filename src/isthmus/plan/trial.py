"""Measurements of a trial of a few steps, beside its ledger: releases by purpose, and seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import STEPS, Purpose
from isthmus.plan.run_length import Length
from isthmus.protect.releases import PAYLOADS, Releases
from isthmus.train.progress import Progress
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
