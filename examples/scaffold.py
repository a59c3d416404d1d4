"""SCAFFOLD (Karimireddy et al. 2020) as a part of your own, outside the package; its bytes are counted by themselves.

    isthmus run --plugin examples/scaffold.py --data blocks --method scaffold --epochs 20
    isthmus run --plugin examples/scaffold.py --data blocks --method optimes --set sync=scaffold

A silo corrects its gradient by what all silos do on average and it does not: g_i <- g_i - c_i + c. After a round of K
steps from x to y_i its control variate becomes c_i <- c_i - c + (x - y_i) / (K lr) (option II of the paper), c becomes
the mean of all c_i, and parameters their mean.
"""

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
class Scaffold(FedAvg):
    """FedAvg whose silos step along corrected gradients; use plain SGD (train.optimiser=sgd)."""

    name: ClassVar[str] = "scaffold"

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, with control variates of zero."""
        return LiveScaffold(self, site, model, losses)


class LiveScaffold(LiveFedAvg):
    """Keeps ``own`` [silos, numbers] and ``mean`` [numbers] control variates, where the round began, and its steps."""

    def __init__(self, spec: FedAvg, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        own = torch.zeros_like(self._parameters())
        self.state |= {"own": own, "mean": torch.zeros_like(own[0]), "steps": own[:, :1].clone()}

    def _parameters(self) -> Tensor:
        return self.model.sets.flat(list(self.model.sets.parameters)).clone()

    def round_begin(self) -> None:
        """Remember x."""
        self.state |= {"start": self._parameters(), "steps": torch.zeros_like(self.state["steps"])}

    def gradients(self, active: Tensor) -> None:
        """g_i <- g_i - c_i + c."""
        self.model.sets.load_gradients(self.model.sets.flat_gradients() - self.state["own"] + self.state["mean"])
        self.state["steps"] += active[:, None]

    def round_end(self) -> None:
        """New control variates from the way that each silo has gone, then the means of them and of parameters."""
        moved = (self.state["start"] - self._parameters()) / (self.state["steps"].clamp(min=1) * self.site.train.lr)
        own = torch.where(self.state["steps"] > 0, self.state["own"] - self.state["mean"] + moved, self.state["own"])
        self.state |= {"own": own, "mean": self.site.wire.total(Kind.GRADIENTS, own, self.portions())}
        super().round_end()


@method
def scaffold() -> Method:
    """FedAvg with control variates."""
    return Method("scaffold", "FedAvg with control variates", "Karimireddy et al. 2020", (Phase(sync=Scaffold()),))
