"""The site: what parts of a method are opened with, which is a layout of the data, the models, and how to train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.engine.absence import STOPPING, AbsenceConfig
from isthmus.engine.layout import Layout
from isthmus.engine.learner import CLASSIFIER, Learner
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import Federation
from isthmus.graph.graph import TRAIN, Schema
from isthmus.graph.stack import Stack
from isthmus.nn.model import GNN, LAYERS, ModelConfig
from isthmus.nn.norm import Pass
from isthmus.sample.batcher import Batcher
from isthmus.sample.neighbours import Draws
from isthmus.wire.route import Boundary
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class Site:
    """What a part may read and use on one host during a phase.

    ``agreed``: silos agree on statistics. ``whole``: passes over whole graphs, without sampling, cross the boundary.
    ``of``: the name of the model that this phase is about. ``absence``: what happens where a party is not there.
    """

    layout: Layout
    learner: Learner
    train: TrainConfig
    seed: int
    dtype: torch.dtype
    agreed: bool
    whole: bool
    of: str = CLASSIFIER
    absence: AbsenceConfig = STOPPING

    @property
    def federation(self) -> Federation:
        """My silos, and what was agreed before training."""
        return self.layout.federation

    @property
    def wire(self) -> Wire:
        """The wire, by which everything leaves a silo."""
        return self.layout.federation.wire

    @property
    def schema(self) -> Schema:
        """What all silos agreed to learn."""
        return self.layout.federation.schema

    @property
    def stack(self) -> Stack:
        """The silos of this host as one block-diagonal graph."""
        return self.layout.stack

    @property
    def train_stack(self) -> Stack:
        """The stack with the edges that training may see: those of the past alone, where it is asked for."""
        past = self.train.messages == "past" and self.stack.edge_split is not None
        return self.stack.until(TRAIN) if past else self.stack

    @property
    def boundary(self) -> Boundary:
        """Which rows of this host's silos other silos hold, and which rows of other silos they hold."""
        return self.layout.boundary

    @property
    def net(self) -> GNN:
        """The model whose logits meet the labels: the classifier, unless the phase is about another one."""
        net = self.learner.models[self.of].module
        assert isinstance(net, GNN)
        return net

    @property
    def model(self) -> ModelConfig:
        """The configuration of the model `net`: its layers, widths and options."""
        return self.net.config

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.layout.stack.keys.device

    @property
    def degrees(self) -> bool:
        """Whether the layers of the model (`net`) read degrees."""
        return LAYERS[self.model.name].uses_degrees

    @property
    def draws(self) -> Draws:
        """What neighbours are drawn by: seed, whether anew at every step, and whether draws are counted."""
        return Draws(self.seed, self.train.redraw, self.federation.drawn if self.train.draws == "refill" else None)

    def batcher(self, stack: Stack, reads_halo: bool) -> Batcher:
        """A batcher of the model (`net`) on ``stack``; ``reads_halo``: its layers read rows of far ends."""
        shape = stack, self.model.layers, self.model.directed
        return Batcher(*shape, self.schema.target, self.model.ego, reads_halo, self.degrees, self.train.trim)

    def present(self, rows: Tensor) -> Tensor:
        """Which of some stack rows lie in silos that are present: [n] bool."""
        here = torch.tensor([silo in self.wire.members.present for silo in self.stack.silos], dtype=torch.bool)
        return here.to(rows.device)[self.stack.silo_of(rows)]

    def passing(self, training: bool, step: int = 0, agree: bool = True) -> Pass:
        """One forward pass; silos share normalisation moments where they agree on statistics."""
        return Pass(training, self.seed, step, self.total_moments if agree else None)

    @property
    def total_moments(self) -> Callable[[Tensor], Tensor] | None:
        """The function that sums normalisation moments over all silos; None where silos keep their own statistics."""
        return (lambda x: self.wire.total(Kind.STATISTICS, x)) if self.agreed else None
