"""SCAFFOLD (Karimireddy et al. 2020) as a part of your own, outside the package; its bytes are counted by themselves.

    isthmus run --plugin examples/scaffold.py --data blocks --method scaffold --epochs 20
    isthmus run --plugin examples/scaffold.py --data blocks --method optimes --set sync=scaffold

A silo corrects its gradient by what all silos do on average and it does not: g_i <- g_i - c_i + c. After a round of K
steps from x to y_i its control variate becomes c_i <- c_i - c + (x - y_i) / (K lr) (option II of the paper), c becomes
the mean of all c_i, and parameters their mean.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus import Method, Phase, method, register_part
from isthmus.core.kinds import Kind
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.methods.sync.base import LiveSync, Losses
from isthmus.methods.sync.fedavg import FedAvg, LiveFedAvg


@register_part("sync", "scaffold")
@dataclass(frozen=True)
class Scaffold(FedAvg):
    """FedAvg whose silos step along corrected gradients; use plain SGD (train.optimiser=sgd)."""

    name: ClassVar[str] = "scaffold"

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, with control variates of zero."""
        return LiveScaffold(self, site, model, losses)


class LiveScaffold(LiveFedAvg):
    """Keeps ``own`` [silos, numbers] and ``mean`` [numbers] control variates, and where the round began."""

    def __init__(self, spec: Scaffold, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        self.state["own"] = torch.zeros_like(self._parameters())
        self.state["mean"] = torch.zeros_like(self.state["own"][0])
        self.state["steps"] = torch.zeros(len(self.state["own"]))

    def _parameters(self) -> Tensor:
        return self.model.sets.flat(list(self.model.sets.parameters)).clone()

    def round_begin(self) -> None:
        """Remember x."""
        self.state["start"] = self._parameters()
        self.state["steps"].zero_()

    def gradients(self, active: Tensor) -> None:
        """g_i <- g_i - c_i + c."""
        fresh = self.model.sets.flat_gradients()
        self.model.sets.load_gradients(fresh - self.state["own"] + self.state["mean"])
        self.state["steps"] += active.to(self.state["steps"])

    def round_end(self) -> None:
        """New control variates from the way that each silo has gone, then the means of them and of parameters."""
        state, rate = self.state, self.site.train.lr
        moved = (state["start"] - self._parameters()) / (state["steps"].clamp(min=1)[:, None] * rate).to(state["own"])
        fresh = state["own"] - state["mean"] + moved
        state["own"] = torch.where(state["steps"][:, None] > 0, fresh, state["own"])
        state["mean"] = self.site.wire.total(Kind.GRADIENTS, state["own"], self.portions())
        super().round_end()


@method
def scaffold() -> Method:
    """FedAvg with control variates."""
    return Method("scaffold", "FedAvg with control variates", "Karimireddy et al. 2020", (Phase(sync=Scaffold()),))
