"""How parameters agree between silos: the base class of every sync, in which each silo keeps its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.nn.model import ModelConfig
from isthmus.protect.base import Chain
from isthmus.sample.batches import Batch


class Losses(Protocol):
    """The part of an objective that a sync may call: the loss of each seed of a batch."""

    def seed_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of each seed: [seeds]."""
        ...


@dataclass(frozen=True)
class Sync:
    """The options of a sync; ``open`` gives the live one. In this one every silo keeps its own parameters.

    ``lockstep``: all silos hold equal parameters at every step, so that a host needs only one set of them.
    ``alone``: silos train models of their own, each selected on its own validation score.
    ``mixes``: each silo gets back its own mean of what silos share, so that parameters differ after a round too.
    """

    name: ClassVar[str] = "alone"
    lockstep: ClassVar[bool] = False
    alone: ClassVar[bool] = True
    mixes: ClassVar[bool] = False
    needs_all: ClassVar[str] = ""  # why it cannot go on without a member; empty: it can

    @property
    def personal(self) -> bool:
        """Whether silos end with models of their own."""
        return self.alone

    @property
    def seed_weights(self) -> str:
        """By what a silo is weighted in a loss of all silos: nodes, seeds or silos; empty: the default of batches."""
        return ""

    @property
    def separates(self) -> bool:
        """Whether it needs the gradient of each silo's own loss: one parameter set a silo, and no rows across."""
        return False

    @property
    def noisy(self) -> bool:
        """Whether it draws from silos' secrets."""
        return False

    def round_over(self, step: int, epoch: int, epoch_over: bool) -> bool:
        """Whether a round of local training ends after this step of a phase (steps and epochs count from 1)."""
        return epoch_over

    def server_steps(self, step: int, round_over: bool) -> int:
        """How many steps of its own the server takes after this step of a phase (counted from 0).

        ``round_over``: a round ends there.
        """
        return 0

    def shares(self, name: str) -> bool:
        """Whether a parameter takes part: silos agree on it, or where the sync ``mixes``, get means of it."""
        return False

    def check(self, model: ModelConfig, protect: Chain, agreed: bool, view: str) -> None:
        """Refuse what this sync cannot work with, before any data is read; ``view`` is that of the exchange."""

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync of one model on one host."""
        return LiveSync(self, site, model, losses)


class LiveSync:
    """A sync at work on one model of one host; ``state`` is checkpointed."""

    def __init__(self, spec: Sync, site: Site, model: Learned, losses: Losses) -> None:
        self.spec, self.site, self.model, self.losses = spec, site, model, losses
        self.state: dict[str, Tensor] = {}

    def shared(self) -> dict[str, Tensor]:
        """Beside parameters, what all silos hold alike when a round begins, for one that returns: {name: tensor}."""
        return {}

    def take_over(self, name: str, x: Tensor) -> None:
        """Write what :meth:`shared` gave on another host into this one's state."""
        raise AssertionError(f"{self.spec.name} shares no {name}")

    def round_begin(self) -> None:
        """Called when a round of local training starts."""

    def gradients(self, active: Tensor) -> None:
        """Called after the backward pass, before the optimiser steps; ``active`` [my silos]: who had seeds."""

    def step_end(self, step: int) -> None:
        """Called after the optimiser has taken a step of a phase (counted from 0)."""

    def round_end(self) -> None:
        """Called after a round of local training."""
