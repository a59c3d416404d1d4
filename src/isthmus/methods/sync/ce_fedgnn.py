"""CE-FedGNN's way to agree: a moving average of the gradient at every step, the means of W and of it after a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from isthmus.errors import IsthmusError
from isthmus.sync.average import FedAvg
from isthmus.wire.ledger import Kind

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class GradientAverage(FedAvg):
    r"""G <- (1 - beta) G + beta gradient, from the first gradient on; every silo steps by its own G.

    After a round (``local_steps`` steps) W and G become their means over silos.
    """

    local_steps: int = 32
    weights: str = "silos"
    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.beta <= 1:
            raise IsthmusError(f"sync.beta is {self.beta}; it must lie in (0, 1].")

    def gradients(self, run: Run) -> None:
        """Average the gradients of silos that had seeds; the others keep what they have, and do not move."""
        fresh = run.sets.flat_gradients()
        if "G" not in self.state:
            self.state["G"] = torch.zeros_like(fresh)
            self.state["begun"] = torch.zeros(len(fresh), dtype=torch.bool, device=fresh.device)
        old, begun = self.state["G"], self.state["begun"]
        active = run.active.to(fresh.device)
        pace = (torch.where(begun, self.beta, 1.0) * active).to(fresh.dtype)[:, None]
        self.state["G"] = old + pace * (fresh - old)
        self.state["begun"] = begun | active
        run.sets.load_gradients(self.state["G"])

    def round_end(self, run: Run) -> None:
        """The means of W and of G, of what is shared."""
        super().round_end(run)
        shared = run.sets.columns([name for name in run.sets.parameters if self.shares(name)])
        self.state["G"][:, shared] = run.wire.total(Kind.GRADIENTS, self.state["G"][:, shared], self.portions(run))
        self.state["begun"].fill_(True)
