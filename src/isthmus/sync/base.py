"""How parameters agree between silos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from isthmus.train import Run


@dataclass(frozen=True)
class Sync:
    """The nothing of this axis: every silo keeps its own parameters.

    ``lockstep`` says that all silos hold equal parameters at every step, so that a host needs only one set of them.
    ``alone`` says that silos are models of their own, each selected on its own validation score.
    """

    lockstep: ClassVar[bool] = False
    alone: ClassVar[bool] = True

    @property
    def personal(self) -> bool:
        """Whether silos end with models of their own."""
        return self.alone

    @property
    def epochs_per_round(self) -> int:
        """Epochs of local training between two calls of :meth:`round_end`."""
        return 1

    def gradients(self, run: Run) -> None:
        """After the backward pass, before the optimiser steps."""

    def round_end(self, run: Run) -> None:
        """After a round of local training."""
