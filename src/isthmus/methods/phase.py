"""A phase: a stretch of training with one composition of parts, and which parts go together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import DEVICE
from isthmus.engine.learner import CLASSIFIER
from isthmus.engine.settings import TrainConfig
from isthmus.methods.exchange.base import Exchange, Nothing, need_sums
from isthmus.methods.objective.base import Objective
from isthmus.methods.schedule import Schedule
from isthmus.methods.sync.base import Sync
from isthmus.nn.model import ModelConfig
from isthmus.protect.base import Chain
from isthmus.sample.order import rule_of

AXES = ("exchange", "schedule", "sync", "objective")  # of a phase


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one composition of parts.

    ``learns`` names the models that step; ``net`` the one whose logits meet the labels. ``batches``: ``local`` (each
    silo its own batches, degree constants, normalisation moments and class weights) or ``joint`` (one global batch by
    ranks, and statistics that all agree on). ``epochs``: how long it lasts; 0, which only the last phase may have, is
    until training ends.
    """

    name: str = "train"
    learns: tuple[str, ...] = (CLASSIFIER,)
    net: str = CLASSIFIER
    exchange: Exchange = field(default_factory=Nothing)
    schedule: Schedule = field(default_factory=Schedule)
    sync: Sync = field(default_factory=Sync)
    objective: Objective = field(default_factory=Objective)
    batches: str = "local"
    epochs: int = 0

    def with_batches(self, train: TrainConfig) -> Phase:
        """The phase with the batches that training asks for, if it asks for any, and the exchange in their form."""
        batches = train.batches or self.batches
        return replace(self, batches=batches, exchange=self.exchange.with_batches(batches))

    def check(self, model: ModelConfig, train: TrainConfig, protect: Chain) -> None:
        """Refuse parts that cannot go together, before any data is read."""
        phase = self.with_batches(train)
        phase.exchange.check(model)
        phase.sync.check(model, protect, train.agrees(phase.batches), phase.exchange.view)
        rule_of(phase.batches, phase.sync.seed_weights)
        phase.check_shares(model, protect)
        phase.check_whole_graphs(train)
        if protect.bounds_seeds:
            phase.check_local()
        phase.check_sync(protect)
        if not phase.schedule.always and not phase.exchange.stepwise:
            raise IsthmusError(
                f"exchange={phase.exchange.name} exchanges nothing within steps, so that there is nothing to schedule; "
                "leave schedule.* out, or use a method such as swift-fedgnn or sync-sgd+fwd-bwd-le."
            )

    def check_whole_graphs(self, train: TrainConfig) -> None:
        """Refuse samples and silos at rest where an exchange needs all neighbours of every node."""
        if self.exchange.whole_graphs and train.batch:
            raise IsthmusError(
                f"exchange={self.exchange.name} adds up all neighbours of every node, but train.batch={train.batch} "
                "draws some; use train.batch=0."
            )
        if self.exchange.whole_graphs and not self.schedule.always:
            raise IsthmusError(
                f"exchange={self.exchange.name} serves all silos at every step: one that rests would compute along "
                "edges that its devices alone know; leave schedule.* out."
            )

    def check_sync(self, protect: Chain) -> None:
        """Refuse objectives, masks and exchanges that do not fit the way in which silos agree on parameters."""
        if self.objective.holds and self.sync.lockstep:
            raise IsthmusError(
                f"objective={self.objective.name} holds back the parameters of each silo by itself, but with "
                f"sync={self.sync.name} all silos take the same steps; use sync=fedavg, or objective=task."
            )
        if protect.of_totals and self.sync.mixes:
            raise IsthmusError(
                f"protect=server-masks lets the server read sums of models alone, but sync={self.sync.name} has it "
                "compare each silo's; use sync=fedavg, or leave server-masks out."
            )
        if self.sync.separates and self.exchange.stepwise:
            raise IsthmusError(
                f"sync={self.sync.name} reads the gradient of each silo's own loss, but with "
                f"exchange={self.exchange.name} rows cross at steps, and losses of others are in it; use "
                "exchange=nothing, or sync=sync-sgd."
            )

    def check_shares(self, model: ModelConfig, protect: Chain) -> None:
        """Refuse shares of rows that nobody adds up on their way, and sums of rows that cannot be added up sealed."""
        if protect.shares and not self.exchange.sums:
            raise IsthmusError(
                f"protect=shares opens sums of rows alone, but exchange={self.exchange.name} adds nothing up on the "
                "way; use exchange=hifgl or exchange=swift, or leave shares out."
            )
        if self.exchange.sums and self.exchange.levels == (DEVICE,) and not protect.adds:
            raise IsthmusError(
                f"exchange={self.exchange.name} adds rows up before anybody reads them, which shorter number formats "
                "do not allow; use protect=fixed-point instead."
            )
        if self.exchange.sums and protect.holders > self.exchange.holders:
            raise IsthmusError(
                f"protect.threshold={protect.holders - 1} divides each row among {protect.holders} holders, but with "
                f"exchange={self.exchange.name} there are {self.exchange.holders} that read nothing alone; use "
                "protect.threshold=1."
            )
        if self.exchange.sums and protect.adds_sealed:
            need_sums(model)

    def check_local(self) -> None:
        """Refuse what lets a silo's gradients depend on more than its own seeds and its own parameters."""
        if self.sync.lockstep:
            raise IsthmusError(
                f"protect=dp-sgd acts on steps that silos take by themselves, but sync={self.sync.name} has all take "
                "one step together; use a sync such as fedavg."
            )
        if getattr(self.exchange, "adjoint", False):
            raise IsthmusError(
                f"protect=dp-sgd bounds a silo's own gradients, but exchange={self.exchange.name} sends derivatives of "
                "its loss to others; use exchange.adjoint=false, or exchange=nothing."
            )


def one_phase(**parts: Any) -> tuple[Phase, ...]:
    """The phases of a method that has one: ``one_phase(sync=FedAvg())``."""
    return (Phase(**parts),)
