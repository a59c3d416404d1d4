"""How far a run is, and what it has reported so far: steps, epochs, losses, seconds, history."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import Kind, Purpose
from isthmus.train.metrics import Scores
from isthmus.wire.wire import Wire


@dataclass
class Progress:
    """Where a run stands; epochs and steps are counted over all phases."""

    phase: int = 0
    epoch: int = 0
    step: int = 0
    round: int = 0  # rounds that have ended
    missed: dict[int, int] = field(default_factory=dict)  # rounds, by the silo that was absent
    epochs: int = 0  # of the whole run, as far as can be told
    last_step: int = 0  # of the current phase
    steps_per_epoch: int = 1
    purpose: Purpose = Purpose.STEP  # of the last step
    last_loss: float = math.nan
    seconds: float = 0.0  # of training
    wire_seconds: float = 0.0  # of these, spent in the transport between hosts
    computing: list[float] = field(default_factory=list)  # by epoch, seconds outside of the transport
    began: tuple[float, float] = (0.0, 0.0)  # the clock, and the wire's seconds, when the epoch began
    round_starts: bool = True
    due: bool = False  # a validation waits for the end of a round
    scores: dict[str, Scores] = field(default_factory=dict)  # of the last validation of this epoch, by way of scoring
    drift: list[float | None] = field(default_factory=list)  # of the rows that silos keep, in the last round
    history: list[dict[str, Any]] = field(default_factory=list)
    _losses: list[Tensor] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the last step of the phase has been taken."""
        return self.step >= self.last_step

    def note_losses(self, sums: Tensor, counts: Tensor) -> None:
        """Keep a step's losses of my silos until the epoch ends."""
        self._losses.append(torch.stack([sums.double(), counts.double()], 1))
        if bool(counts.sum() > 0):
            self.last_loss = float(sums.sum() / counts.sum().clamp(min=1))

    def end_epoch(self, wire: Wire, phase: str = "") -> list[dict[str, Any]]:
        """Lines of this epoch: one for every step, and one with the scores, if there were any."""
        scores, self.scores = self.scores, {}
        steps, self._losses = self._losses, []
        mine = torch.stack(steps, 1) if steps else torch.zeros(len(wire.mine), 0, 2)
        with wire.ledger.during(Purpose.LOSSES):
            sums, counts = wire.share(Kind.METRICS, mine.cpu().double()).unbind(2)
        loss = sums.sum(0) / counts.sum(0).clamp(min=1)
        if not wire.mine and len(loss):  # a server without silos hears of losses here
            self.last_loss = float(loss[-1])
        first = self.step - len(loss) + 1
        about = {"epoch": self.epoch, **({"phase": phase} if phase else {})}
        lines: list[dict[str, Any]] = [
            {"step": first + i, **about, "loss": _finite(value)} for i, value in enumerate(loss.tolist())
        ]
        if scores:
            drift, self.drift = ({"silo_drift": self.drift} if self.drift else {}), []
            lines.append({"step": self.step, **about, **_scored(scores, sums, counts), **drift})
        self.history += lines
        return lines


def _scored(scores: dict[str, Scores], sums: Tensor, counts: Tensor) -> dict[str, Any]:
    """Fields of a validation line: the losses of its epoch, scores of the first judge, and of all judges if several."""
    first = next(iter(scores.values()))
    mean = float(sums.sum() / counts.sum().clamp(min=1))
    each = sums.sum(1) / counts.sum(1).clamp(min=1)
    others = {"scored": {how: found.as_dict() for how, found in scores.items()}} if len(scores) > 1 else {}
    return {
        "loss": _finite(mean),
        "valid": first.as_dict(),
        "silo_loss": _finite_all(each),
        "silo_valid": _finite_all(first.silos[:, 0]),
        **others,
    }


def silo_sums(values: Tensor, ptr: tuple[int, ...]) -> Tensor:
    """The sum of values [n] over each silo's part of them: [my silos]."""
    return torch.stack([values[a:b].sum() for a, b in zip(ptr, ptr[1:], strict=False)])


def _finite_all(values: Tensor) -> list[float | None]:
    return [_finite(value) for value in values.tolist()]


def _finite(value: float) -> float | None:
    """A number as JSON can write it: None for nan and infinity."""
    return value if math.isfinite(value) else None
