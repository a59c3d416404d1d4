"""LLCG with gradients shared at every step, as Swift-FedGNN's paper compares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind, Purpose
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.methods.sync.base import LiveSync, Losses
from isthmus.methods.sync.correction import ServerBatch
from isthmus.methods.sync.sync_sgd import LiveSyncSGD, SyncSGD
from isthmus.nn.model import ModelConfig
from isthmus.protect.base import Chain


@dataclass(frozen=True)
class LLCGEveryStep(SyncSGD):
    """W <- W - eta grad of the mean loss of ``seeds`` training nodes with all their neighbours, taken by the server.

    Silos train by the mean of their gradients. Every ``every`` steps each adds its share of the seeds, by its number of
    training nodes (0: as many seeds as a silo's batch), and the features of all nodes within reach of any seed go to
    the server, with the edges between them and the labels of the seeds. ``neighbours`` of a node are drawn at each hop
    (-1: all).
    """

    every: int = 10
    seeds: int = 0
    neighbours: int = -1
    name: ClassVar[str] = "llcg-every-step"
    needs_all: ClassVar[str] = "the batch on which the server steps is dealt among all silos"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise IsthmusError(f"sync.every is {self.every}; it must be at least 1.")
        ServerBatch(self.seeds, self.neighbours)  # refuses what cannot be drawn, before anything is opened

    @property
    def batch(self) -> ServerBatch:
        """What the server computes a correction on."""
        return ServerBatch(self.seeds, self.neighbours)

    def server_steps(self, step: int, round_over: bool) -> int:
        """One after every ``every``-th step, from the first on."""
        return int(step % self.every == 0)

    def check(self, model: ModelConfig, protect: Chain, agreed: bool, view: str) -> None:
        """Refuse what the server cannot compute, and gradients that must be seen silo by silo."""
        self.batch.check(model, agreed, view, self.name)
        if protect.separates(Kind.GRADIENTS):
            raise IsthmusError(
                "The server corrects one set of parameters that all silos hold at every step; leave out "
                "protect.clip_gradients and protect.sigma_gradients."
            )

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, which corrects after steps."""
        return LiveLLCGEveryStep(self, site, model, losses)


class LiveLLCGEveryStep(LiveSyncSGD):
    """Lets everybody step by the server's gradient, with the optimiser that all silos share."""

    spec: LLCGEveryStep

    def __init__(self, spec: LLCGEveryStep, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        self._correction = spec.batch.open(site, model, losses)

    def step_end(self, step: int) -> None:
        """At every ``every``-th step, let all silos step by the gradient that the server computes on its batch."""
        if not self.spec.server_steps(step, round_over=False):
            return
        wire, sets = self.site.wire, self.model.sets
        with wire.ledger.during(Purpose.CORRECTION):
            told = wire.answer(Kind.GRADIENTS, self._correction.gradient(step))
        sets.load_gradients(told.to(sets.flat_gradients())[0])
        self.model.step([True])
