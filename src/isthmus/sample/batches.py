"""What one step computes on: its seeds, the rows that each layer reads, and the batch of both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from isthmus.graph.features import Features
from isthmus.nn.block import Block, Rows
from isthmus.wire.route import Asked, Route


@dataclass(frozen=True)
class Seeds:
    """What a step learns from: stack rows (or edges) in ascending order, each with its slot in the batch.

    ``count`` is the number of seeds of the whole federation in this step.
    """

    index: Tensor  # [s] stack rows, or edge numbers ordered by the silo that scores them
    slot: Tensor  # [s] place in the batch, for ego ids
    ptr: tuple[int, ...]  # by silo
    count: int
    weights: Tensor  # [my silos] what one seed counts in a loss that all silos share
    share: Tensor | None = None  # [s] what a seed counts in its silo's own mean (None: all alike)

    def counts(self) -> Tensor:
        """Seeds of each of my silos."""
        return torch.tensor(self.ptr).diff()

    def of(self, silos: Tensor) -> Seeds:
        """The seeds of some of my silos alone; ``silos`` [my silos] bool says which."""
        counts = self.counts()
        kept = torch.repeat_interleave(silos, counts).to(self.index.device)
        share = None if self.share is None else self.share[kept]
        ptr = (0, *(counts * silos).cumsum(0).tolist())
        return replace(self, index=self.index[kept], slot=self.slot[kept], ptr=ptr, share=share)

    def amounts(self) -> Tensor:
        """The sum of the shares of each silo's seeds: [my silos]."""
        if self.share is None:
            return self.counts()
        return torch.stack([part.sum() for part in self.share.split(self.counts().tolist())])


@dataclass(frozen=True)
class LayerRows:
    """Which stack rows (ascending) are there before each layer and after the last.

    ``read``: those that the layer reads; ``held``: those of them that this host has computed. They differ where halo
    rows come from their owners.
    """

    read: list[Tensor]
    held: list[Tensor]
    asks: tuple[Asked, ...] = ()  # what was asked of other silos at each hop
    trimmed: bool = True  # else all layers read the same rows
    routes: dict[int, Route] = field(default_factory=dict)  # by layer, as they come to be used


@dataclass(frozen=True)
class Batch:
    """Everything a forward pass needs. Blocks go from the widest (first layer) to the seeds' own rows (last)."""

    step: int
    x: Features
    x_rows: Rows
    feature_row: Tensor | None  # the row of x that each row of layer 0 uses (None: its own)
    blocks: list[Block]
    layout: LayerRows
    ends: tuple[Tensor, ...]  # where the seeds (one tensor), or both ends of seed edges, stand in the last rows
    seed_edges: Block | None  # the seeds as edges, where they are edges
    seed_rows: Rows
    y: Tensor
    ego: Tensor | None
    seeds: Seeds
