"""LLCG: local training in growing rounds, the mean of parameters, then steps of the server on nodes of all silos."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind, Purpose
from isthmus.engine.learner import Learned
from isthmus.engine.optimisers import OPTIMISERS
from isthmus.engine.site import Site
from isthmus.methods.sync.base import LiveSync, Losses
from isthmus.methods.sync.correction import ServerBatch
from isthmus.methods.sync.fedavg import FedAvg, LiveFedAvg
from isthmus.nn.model import ModelConfig
from isthmus.protect.base import Chain


@dataclass(frozen=True)
class LLCG(FedAvg):
    """After K rho^r local steps of round r  w <- mean_i w_i,  then S times  w <- w - gamma grad L(w)  at the server.

    K is ``local_steps``, rho ``growth``; rounds are counted from 0, and their steps rounded up. S is ``corrections``,
    and L the mean loss of ``seeds`` training nodes of all silos (0: as many as a silo's batch), with ``neighbours``
    drawn for each node at each hop (-1: all): their features go to the server. Its optimiser is of the kind that silos
    have, with a state of its own and a learning rate gamma = ``lr`` (0: ``train.lr``).
    """

    local_steps: int = 16
    weights: str = "silos"
    growth: float = 1.1
    corrections: int = 1
    seeds: int = 0
    neighbours: int = -1
    lr: float = 0.0
    name: ClassVar[str] = "llcg"
    needs_all: ClassVar[str] = "the batch on which the server steps is dealt among all silos"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps < 1:
            raise IsthmusError("sync.local_steps is 0, but rounds of llcg are counted in steps; give 1 or more.")
        if not 1 <= self.growth < math.inf:
            raise IsthmusError(f"sync.growth is {self.growth}; rounds grow by a factor of 1 or more.")
        if self.corrections < 0 or not 0 <= self.lr < math.inf:
            raise IsthmusError(
                f"sync.corrections is {self.corrections} and sync.lr {self.lr}; both must be 0 or more (corrections 0: "
                "the server takes no step; lr 0: that of train.lr)."
            )
        if self.corrections and self.private:
            raise IsthmusError(
                f"sync.private is {', '.join(self.private)}, but the server steps on the whole model; leave it out, or "
                "use sync=fedavg."
            )
        ServerBatch(self.seeds, self.neighbours)  # refuses what cannot be drawn, before anything is opened

    @property
    def batch(self) -> ServerBatch:
        """What the server computes a correction on."""
        return ServerBatch(self.seeds, self.neighbours)

    def round_over(self, step: int, epoch: int, epoch_over: bool) -> bool:
        """After K steps, then after K rho more, K rho^2 more, ..., each rounded up."""
        if self.growth == 1:
            return super().round_over(step, epoch, epoch_over)
        end = rounds = 0
        while end < step:
            end += math.ceil(self.local_steps * self.growth**rounds - 1e-9)  # 100 * 1.1 is a little more than 110
            rounds += 1
        return end == step

    def server_steps(self, step: int, round_over: bool) -> int:
        """S after every round."""
        return self.corrections if round_over else 0

    def check(self, model: ModelConfig, protect: Chain, agreed: bool, view: str) -> None:
        """Where the server steps: refuse what it cannot compute, and protection that its steps would undo."""
        if not self.corrections:
            return
        self.batch.check(model, agreed, view, self.name)
        if protect.separates(Kind.PARAMETERS):
            raise IsthmusError(
                "The server steps on features as they are, and what it tells then is not what clip and noise were "
                "meant for; leave out protect.clip_parameters and protect.sigma_parameters, or use sync=fedavg."
            )

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, whose server steps after every round."""
        return LiveLLCG(self, site, model, losses)


class LiveLLCG(LiveFedAvg):
    """Averages after a round, and lets the server step from the mean; ``state`` is that of the server's optimiser."""

    spec: LLCG

    def __init__(self, spec: LLCG, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        self._correction = spec.batch.open(site, model, losses) if spec.corrections else None
        self._step = 0  # the last one of this phase

    def step_end(self, step: int) -> None:
        """Remember the number of the step, from which the server's draws after a round follow."""
        self._step = step

    def round_end(self) -> None:
        """Average parameters; then the server takes its steps from the mean, and sends the result to all silos."""
        super().round_end()
        if self._correction is None:
            return
        wire, sets = self.site.wire, self.model.sets
        names = list(sets.parameters)
        with wire.ledger.during(Purpose.CORRECTION):
            first = self._step * self.spec.corrections
            for number in range(first, first + self.spec.corrections):
                gradient = self._correction.gradient(number)
                if gradient is not None:
                    sets.load(names, self._stepped(sets.flat(names)[0], gradient[0]))
            told = wire.answer(Kind.PARAMETERS, None if gradient is None else sets.flat(names)[:1])
        sets.load(names, told[0])

    def _stepped(self, values: Tensor, gradient: Tensor) -> Tensor:
        """Parameters [numbers] after a step of the server's own optimiser."""
        train, parameter = self.site.train, nn.Parameter(values)
        parameter.grad = gradient
        rate = self.spec.lr or train.lr
        make = OPTIMISERS[train.optimiser]
        optimiser = make([parameter], lr=rate, weight_decay=train.weight_decay, fused=True)
        optimiser.state[parameter].update(self.state)
        optimiser.step()
        self.state = {name: kept for name, kept in optimiser.state[parameter].items() if isinstance(kept, Tensor)}
        return parameter.data
