"""FedProx's objective: the task loss, with parameters that stay close to those at the start of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import Learner
from isthmus.engine.site import Site
from isthmus.methods.objective.base import LiveObjective, Objective
from isthmus.sample.batches import Batch


@dataclass(frozen=True)
class Proximal(Objective):
    """FedProx (Li et al. 2020): task loss + (mu / 2) ||w - w_round||^2, w_round the parameters at the round's start."""

    mu: float = 0.01
    name: ClassVar[str] = "proximal"
    holds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mu < 0:
            raise IsthmusError(f"objective.mu is {self.mu}; it must be 0 or more.")

    def open(self, site: Site) -> LiveObjective:
        """The live objective, which remembers where each round starts."""
        return LiveProximal(self, site)


class LiveProximal(LiveObjective):
    """Keeps the classifier's parameters at the start of the round."""

    spec: Proximal

    def round_begin(self, learner: Learner) -> None:
        """Remember the parameters with which the round starts."""
        self.state = {name: p.detach().clone() for name, p in learner.classifier.sets.parameters.items()}

    def penalty(self, learner: Learner, batches: Sequence[Batch], active: Tensor) -> Tensor:
        """(mu / 2) ||w - w_round||^2, summed over the sets that have seeds in this step."""
        parameters = learner.classifier.sets.parameters
        terms = [((p - self.state[name]) ** 2).reshape(len(p), -1).sum(1) for name, p in parameters.items()]
        each = torch.stack(terms).sum(0)
        return self.spec.mu / 2 * each[active.to(each.device)].sum()
