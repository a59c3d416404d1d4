"""Federated averaging: local training, then the mean of all silos' parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import Kind
from isthmus.engine.learner import CLASSIFIER, Learned
from isthmus.engine.site import Site
from isthmus.graph.graph import TRAIN
from isthmus.methods.sync.base import LiveSync, Losses, Sync

# The linear map that features enter by; the last map, which has another name where labels lie on edges.
_CALLED = {"embed": ("enter",), "head": ("head", "edge_head")}


@dataclass(frozen=True)
class FedAvg(Sync):
    r"""McMahan et al. 2017: every ``local_epochs`` epochs  w <- sum_i n_i w_i / sum_i n_i,  n_i = owned training nodes.

    ``local_steps`` counts a round in steps instead (0: in epochs). ``weights``: n_i counts training ``nodes``,
    or is 1 for all ``silos`` that have some. ``private`` names what stays at home: parts of the classifier (``head``,
    ``embed``, ``layers.1``, ...; FedPer), or another model as a whole (``generator``).
    Optimiser state belongs to the silo: neither averaged nor reset.
    """

    local_epochs: int = 1
    local_steps: int = 0
    weights: str = "nodes"
    private: tuple[str, ...] = ()
    name: ClassVar[str] = "fedavg"
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, least in (("local_epochs", 1), ("local_steps", 0)):
            if getattr(self, name) < least:
                raise IsthmusError(f"sync.{name} is {getattr(self, name)}; it must be at least {least}.")
        if self.local_steps and self.local_epochs > 1:
            raise IsthmusError("sync.local_steps and sync.local_epochs both say when a round ends; use one of them.")
        if self.weights not in ("nodes", "silos"):
            raise unknown("sync.weights", self.weights, ("nodes", "silos"))

    @property
    def personal(self) -> bool:
        """Whether a part of the model stays at home."""
        return bool(self.private)

    def round_over(self, step: int, epoch: int, epoch_over: bool) -> bool:
        """After every ``local_epochs`` epochs, or ``local_steps`` steps."""
        if self.local_steps:
            return step % self.local_steps == 0
        return epoch_over and epoch % self.local_epochs == 0

    def shares(self, name: str) -> bool:
        """Whether a parameter takes part in the average."""
        return not any(_within(name, part) for part in self.private)

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, which averages after every round."""
        return LiveFedAvg(self, site, model, losses)


class LiveFedAvg(LiveSync):
    """Averages one model over silos."""

    spec: FedAvg

    def __init__(self, spec: FedAvg, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        names, others = model.sets.names(), set(site.learner.models) - {CLASSIFIER}
        for part in spec.private if model.name == CLASSIFIER else ():
            if part not in others and not any(_within(name, part) for name in names):
                known = {name.rpartition(".")[0] for name in names} | others
                raise unknown("part of the model in sync.private", part, known)

    def round_end(self) -> None:
        """Replace parameters that silos share by their weighted means over silos."""
        sets = self.model.sets
        if self.model.name in self.spec.private:
            return
        names = [name for name in sets.names() if self.spec.shares(name)]
        sets.load(names, self.site.wire.total(Kind.PARAMETERS, sets.flat(names), self.portions()))

    def portions(self) -> Tensor:
        """The weight of each of my silos in a mean over present silos, n_i / sum_j n_j: [mine]."""
        counts, wire = self.site.layout.pools[TRAIN].counts, self.site.wire
        weights = (counts if self.spec.weights == "nodes" else counts > 0).to(self.site.dtype)
        total = weights[list(wire.members.present)].sum().clamp(min=1)
        return (weights / total)[list(wire.mine)].to(self.site.device)


def _within(name: str, part: str) -> bool:
    """Whether a parameter belongs to a part of the model, by the part's name or by what it is called for users."""
    return any(name == each or name.startswith(f"{each}.") for each in _CALLED.get(part, (part,)))
