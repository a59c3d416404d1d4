"""Federated averaging: local training, then the mean of all silos' parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from isthmus.errors import IsthmusError
from isthmus.sync.base import Sync
from isthmus.wire.ledger import Kind

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class FedAvg(Sync):
    r"""McMahan et al. 2017: every ``local_epochs`` epochs  w <- sum_i n_i w_i / sum_i n_i,  n_i = owned training nodes.

    ``private`` names the parts of the model (``head``, ``embed``, ``layers.1``, ...) that stay at home (FedPer).
    Optimiser state belongs to the silo and is neither averaged nor reset.
    """

    local_epochs: int = 1
    private: tuple[str, ...] = ()
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.local_epochs < 1:
            raise IsthmusError(f"sync.local_epochs is {self.local_epochs}; it must be at least 1.")

    @property
    def personal(self) -> bool:
        """Whether a part of the model stays at home."""
        return bool(self.private)

    def round_over(self, step: int, epoch: int, epoch_over: bool) -> bool:
        """After every ``local_epochs`` epochs."""
        return epoch_over and epoch % self.local_epochs == 0

    def shares(self, name: str) -> bool:
        """Whether a parameter takes part in the average."""
        return not any(name == part or name.startswith(f"{part}.") for part in self.private)

    def round_end(self, run: Run) -> None:
        """Average what is shared, weighted by training nodes."""
        weights = run.train_pool.counts.to(run.dtype)
        names = [name for name in run.sets.names() if self.shares(name)]
        mine = weights[list(run.wire.mine)].to(run.device)
        weighted = run.sets.flat(names) * (mine / weights.sum().clamp(min=1))[:, None]
        run.sets.load(names, run.wire.total(Kind.PARAMETERS, weighted))
