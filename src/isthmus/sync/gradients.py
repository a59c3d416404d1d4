"""Synchronous gradient descent: one parameter set, one optimiser state, the gradient sum of all silos every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from isthmus.sync.base import Sync
from isthmus.wire.ledger import Kind

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class SyncSGD(Sync):
    """g <- sum_i w_i grad of (silo i's mean seed loss); every silo takes the same step.

    w_i is the silo's share of the seeds where batches are joint, so that all seeds count alike; its share of the
    training nodes where each silo draws its own.
    """

    lockstep: ClassVar[bool] = True
    alone: ClassVar[bool] = False

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
