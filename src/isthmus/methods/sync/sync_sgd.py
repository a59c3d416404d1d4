"""Synchronous gradient descent: one parameter set, one optimiser state, the gradient sum of all silos every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from isthmus.errors import unknown
from isthmus.sample.order import WEIGHTS
from isthmus.sync.base import Sync
from isthmus.wire.ledger import Kind

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class SyncSGD(Sync):
    """g <- sum_i w_i grad of (silo i's mean seed loss); every silo takes the same step.

    w_i is the silo's share of the seeds where batches are joint, so that all seeds count alike. Where each silo draws
    its own, ``weights`` says what it is a share of: training ``nodes``, ``seeds`` of the step, or ``silos`` that have
    any, which then count alike (empty: nodes).
    """

    weights: str = ""
    lockstep: ClassVar[bool] = True
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.weights not in ("", *WEIGHTS):
            raise unknown("sync.weights", self.weights, WEIGHTS)

    @property
    def seed_weights(self) -> str:
        """As ``weights`` says."""
        return self.weights

    def shares(self, name: str) -> bool:
        """Silos agree on all parameters."""
        return True

    def gradients(self, run: Run) -> None:
        """Replace the gradients of this host by those of the federation."""
        flat = run.sets.flat_gradients()
        if run.wire.protect.separates(Kind.GRADIENTS):  # a set for each silo
            total = run.wire.total(Kind.GRADIENTS, flat)
        else:
            total = run.wire.total_of_hosts(Kind.GRADIENTS, flat[0])
        run.sets.load_gradients(total)
