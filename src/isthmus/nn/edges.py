"""What a layer sees of an edge: its attributes and its ports."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.nn.block import Block
from isthmus.nn.maps import select
from isthmus.nn.sets import Stackable, check_sets


class EdgeEncoder(Stackable):
    """e = [attributes, near[port at the target], far[port at the source]].

    A port is the number of a neighbour in the order of first contact, so parallel edges share it. Ports
    beyond the tables share the last row.
    """

    def __init__(self, edge_features: int, ports: int, width: int = 8) -> None:
        super().__init__()
        self.edge_features, self.ports = edge_features, ports
        self.width = edge_features + (2 * width if ports else 0)
        self.near = self.fresh("near", ports, width) if ports else None  # [sets, ports, 8]
        self.far = self.fresh("far", ports, width) if ports else None

    def start(self, name: str, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Standard normal, as embeddings usually start."""
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def forward(self, block: Block) -> Tensor | None:
        """Encodings [E, width], or None where there is nothing to encode."""
        parts = []
        if self.edge_features:
            if block.attr is None:
                raise IsthmusError(f"The model reads {self.edge_features} edge features, but the block has none.")
            parts.append(block.attr)
        if self.near is not None and self.far is not None:
            if block.ports is None:
                raise IsthmusError("The model reads port numbers, but the block has none; number the ports first.")
            at = block.ports.clamp(max=self.ports - 1) + _first_row(self.near, block)
            parts += [_look_up(self.near, at[:, 0]), _look_up(self.far, at[:, 1])]
        return torch.cat(parts, 1) if parts else None


def _first_row(table: nn.Parameter, block: Block) -> Tensor:
    """Where each edge's own table begins when the tables of all sets lie under each other: [E, 1]."""
    if len(table) == 1:
        return block.dst.new_zeros(1, 1)
    check_sets(len(table), block.targets)
    return (block.edges.silo() * table.shape[1])[:, None]


def _look_up(table: nn.Parameter, at: Tensor) -> Tensor:
    return select(table.flatten(0, 1), at)
