"""Ego ids: a trained vector for each slot of a batch, added to the row of the seed in that slot."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.nn.block import Rows
from isthmus.nn.maps import select
from isthmus.nn.sets import Stackable


class Ego(Stackable):
    """h_i + T[slot of i] for the seeds of a batch, as if a one-hot of the slot were an input feature."""

    def __init__(self, batch: int, width: int) -> None:
        super().__init__()
        self.batch = batch
        self.table = self.fresh("table", batch, width)  # [sets, batch, width]

    def forward(self, h: Tensor, ego: Tensor | None, rows: Rows) -> Tensor:
        """The rows, with the slot's vector added to each seed; ``ego`` [n] holds slots, and -1 for other rows."""
        if ego is None:
            raise IsthmusError(
                "The model reads ego ids, so it needs batches of seeds; switch ego off for full batches."
            )
        at = (ego >= 0).nonzero().flatten()
        slot = ego[at]
        if len(slot) and int(slot.max()) >= self.batch:
            raise IsthmusError(f"Ego slot {int(slot.max())} in a model for batches of {self.batch} seeds.")
        if len(self.table) > 1:
            slot = slot + rows.by_sets(len(self.table)).silo[at] * self.batch
        return torch.index_add(h, 0, at, select(self.table.flatten(0, 1), slot))
