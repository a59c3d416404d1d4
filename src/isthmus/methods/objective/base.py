"""What a silo minimises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class Objective:
    """The task loss alone: cross-entropy for classes, weighted binary cross-entropy averaged over tasks.

    ``minority_weight``: of classes, how many times a seed of the class that is rarest among training seeds counts.
    """

    minority_weight: float = 1.0
    state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # checkpointed

    def __post_init__(self) -> None:
        if not 0 < self.minority_weight < math.inf:
            raise IsthmusError(f"objective.minority_weight is {self.minority_weight}; it must be a positive number.")

    def seed_losses(self, logits: Tensor, y: Tensor, positive_weight: Tensor | None, minority: Tensor) -> Tensor:
        """The loss of each seed: [s]. Unknown labels of a task (-1) do not count."""
        if y.dim() == 1:
            each = F.cross_entropy(logits, y.long(), reduction="none")
            return torch.where(y == minority.to(y.device), self.minority_weight * each, each)
        known = (y >= 0).to(logits.dtype)
        target = y.clamp(min=0).to(logits.dtype)
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        if positive_weight is not None:
            each = each * (1 + (positive_weight - 1) * target)
        return (each * known).sum(1) / known.sum(1).clamp(min=1)

    def round_begin(self, run: Run) -> None:
        """When a round of local training starts."""

    def penalty(self, run: Run) -> Tensor | None:
        """An additional term, summed over the parameter sets that take part in this step."""
        return None


@dataclass
class Proximal(Objective):
    """FedProx (Li et al. 2020): task loss + (mu / 2) ||w - w_round||^2, w_round the parameters at the round's start."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mu < 0:
            raise IsthmusError(f"objective.mu is {self.mu}; it must be 0 or more.")

    def round_begin(self, run: Run) -> None:
        """Remember where the round starts."""
        self.state = {name: p.detach().clone() for name, p in run.sets.parameters.items()}

    def penalty(self, run: Run) -> Tensor:
        """(mu / 2) times the squared distance, of the sets that have seeds in this step."""
        active = run.active.to(run.device)
        terms = [((p - self.state[name]) ** 2).reshape(len(p), -1).sum(1) for name, p in run.sets.parameters.items()]
        return self.mu / 2 * torch.stack(terms).sum(0)[active].sum()
