"""How parameters agree between silos."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class Sync:
    """The nothing of this axis: every silo keeps its own parameters.

    ``lockstep`` says that all silos hold equal parameters at every step, so that a host needs only one set of them.
    ``alone`` says that silos are models of their own, each selected on its own validation score.
    """

    lockstep: ClassVar[bool] = False
    alone: ClassVar[bool] = True
    state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # checkpointed

    @property
    def personal(self) -> bool:
        """Whether silos end with models of their own."""
        return self.alone

    @property
    def seed_weights(self) -> str:
        """What a silo's share in a loss of all silos is a share of; empty: as the batches have it."""
        return ""

    def round_over(self, step: int, epoch: int, epoch_over: bool) -> bool:
        """Whether a round of local training ends after this step (steps and epochs are counted from 1)."""
        return epoch_over

    def shares(self, name: str) -> bool:
        """Whether silos agree on a parameter."""
        return False

    def gradients(self, run: Run) -> None:
        """After the backward pass, before the optimiser steps."""

    def round_end(self, run: Run) -> None:
        """After a round of local training."""
