"""CE-FedGNN's sync: silos step by a moving average G of their gradient; after a round W and G are averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.methods.sync.base import LiveSync, Losses
from isthmus.methods.sync.fedavg import FedAvg, LiveFedAvg


@dataclass(frozen=True)
class GradientAverage(FedAvg):
    r"""G <- (1 - beta) G + beta gradient, from the first gradient on; every silo steps by its own G.

    After a round W and G become their means over silos. A round is ``local_steps`` steps long, as in the paper (32);
    with 0 it ends with every ``local_epochs``-th epoch, and after ``most_steps`` steps at the latest: rows that are
    kept for many epochs, as 32 steps of full batches are, are no longer true.
    """

    most_steps: int = 32
    weights: str = "silos"
    beta: float = 0.9
    name: ClassVar[str] = "ce-fedgnn"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.beta <= 1:
            raise IsthmusError(f"sync.beta is {self.beta}; it must lie in (0, 1].")
        if self.most_steps < 1:
            raise IsthmusError(f"sync.most_steps is {self.most_steps}; it must be at least 1.")

    def round_over(self, step: int, epoch: int, epoch_over: bool) -> bool:
        """After ``local_steps`` steps; without, after ``local_epochs`` epochs or ``most_steps`` steps."""
        ended = super().round_over(step, epoch, epoch_over)
        return ended or (not self.local_steps and step % self.most_steps == 0)

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, whose averages start from the first gradient."""
        return LiveGradientAverage(self, site, model, losses)


class LiveGradientAverage(LiveFedAvg):
    """Keeps the moving averages G [sets, numbers], and which sets have ``begun`` one."""

    spec: GradientAverage

    def shared(self) -> dict[str, Tensor]:
        """The mean of G over silos."""
        return {"G": self.state["G"][:1].clone()} if "G" in self.state else {}

    def take_over(self, name: str, x: Tensor) -> None:
        """Go on from the mean of G of the others."""
        self.state["G"] = x.expand(self.model.sets.count, -1).clone()
        self.state["begun"] = torch.ones(self.model.sets.count, dtype=torch.bool, device=x.device)

    def gradients(self, active: Tensor) -> None:
        """Replace gradients by the moving averages G, updated for silos that had seeds; the others do not move."""
        sets = self.model.sets
        fresh = sets.flat_gradients()
        if "G" not in self.state:
            self.state["G"] = torch.zeros_like(fresh)
            self.state["begun"] = torch.zeros(len(fresh), dtype=torch.bool, device=fresh.device)
        old, begun = self.state["G"], self.state["begun"]
        moves = active.to(fresh.device)
        pace = (torch.where(begun, self.spec.beta, 1.0) * moves).to(fresh.dtype)[:, None]
        self.state["G"] = old + pace * (fresh - old)
        self.state["begun"] = begun | moves
        sets.load_gradients(self.state["G"])

    def round_end(self) -> None:
        """Replace what silos share of W and of G by its means over silos."""
        super().round_end()
        sets, averages = self.model.sets, self.state["G"]
        shared = sets.columns([name for name in sets.parameters if self.spec.shares(name)])
        mean = self.site.wire.total(Kind.GRADIENTS, averages[:, shared], self.portions())
        averages[:, shared] = mean
        self.state["begun"].fill_(True)
