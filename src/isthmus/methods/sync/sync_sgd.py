"""Synchronous gradient descent: one parameter set, one optimiser state, the gradient sum of all silos every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from isthmus.core.errors import unknown
from isthmus.core.kinds import Kind
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.methods.sync.base import LiveSync, Losses, Sync
from isthmus.sample.order import WEIGHTS


@dataclass(frozen=True)
class SyncSGD(Sync):
    """g <- sum_i w_i grad of (silo i's mean seed loss); every silo takes the same step.

    w_i is the silo's share of the seeds where batches are joint, so that all seeds count alike. Where each silo draws
    its own, ``weights`` says what it is a share of: training ``nodes``, ``seeds`` of the step, or ``silos`` that have
    any, which then count alike (empty: nodes).
    """

    weights: str = ""
    name: ClassVar[str] = "sync-sgd"
    lockstep: ClassVar[bool] = True
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.weights not in ("", *WEIGHTS):
            raise unknown("sync.weights", self.weights, WEIGHTS)

    @property
    def seed_weights(self) -> str:
        """By what a silo is weighted, where each silo draws its own batch."""
        return self.weights

    def shares(self, name: str) -> bool:
        """Whether silos agree on a parameter: on all of them."""
        return True

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, which sums gradients at every step."""
        return LiveSyncSGD(self, site, model, losses)


class LiveSyncSGD(LiveSync):
    """Sums the gradients of one model over silos."""

    def gradients(self, active: Tensor) -> None:
        """Replace the gradients of this host by the sum over all silos."""
        sets, wire = self.model.sets, self.site.wire
        flat = sets.flat_gradients()
        if sets.count == 1 and not wire.protect.separates(Kind.GRADIENTS):  # this host's silos are summed already
            total = wire.total_of_hosts(Kind.GRADIENTS, flat[0])
        else:
            total = wire.total(Kind.GRADIENTS, flat)
        sets.load_gradients(total)
