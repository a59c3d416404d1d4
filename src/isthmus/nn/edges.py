"""What a layer sees of an edge: its attributes and its ports."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.nn.block import Block, Rows
from isthmus.nn.linear import product
from isthmus.nn.maps import Lookup
from isthmus.nn.sets import Stackable, check_sets


@dataclass(frozen=True)
class Encoding:
    """The encodings of edges with their tables not yet looked up: [attributes, table[at_0], table[at_1], ...].

    Tables are far shorter than edges, so a linear map of the encodings maps the tables instead.
    """

    attr: Tensor | None  # [E, attributes]
    tables: tuple[Tensor, ...] = ()  # each [sets, entries, width]
    at: Tensor | None = None  # [E, tables]: entries, counted through the tables of all sets, one table after the other

    def dense(self) -> Tensor:
        """[E, width]."""
        parts = [] if self.attr is None else [self.attr]
        before = 0
        for i, table in enumerate(self.tables):
            assert self.at is not None
            parts.append(Lookup(table.flatten(0, 1), self.at[:, i : i + 1] - before).each())
            before += len(table) * table.shape[1]
        return torch.cat(parts, 1)

    def mapped(self, weight: Tensor, rows: Rows) -> tuple[Tensor | None, Lookup | None]:
        """The encodings times weight [sets, width, outputs]: a part for each edge and a part to look up."""
        begin = 0 if self.attr is None else self.attr.shape[1]
        values = None if self.attr is None else product(self.attr, weight[:, :begin], None, rows)
        if self.at is None:
            return values, None
        parts = []
        for table in self.tables:
            end = begin + table.shape[2]
            parts.append((table @ weight[:, begin:end]).flatten(0, 1))
            begin = end
        return values, Lookup(torch.cat(parts), self.at)


Edges = Tensor | Encoding  # encodings of edges: [E, width], or with tables not yet looked up


def mapped(edge: Edges, weight: Tensor, rows: Rows) -> tuple[Tensor | None, Lookup | None]:
    """Encodings times weight, in either form."""
    return edge.mapped(weight, rows) if isinstance(edge, Encoding) else (product(edge, weight, None, rows), None)


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

    def forward(self, block: Block) -> Encoding | None:
        """The encodings of a block's edges, or None where there is nothing to encode."""
        if not self.width:
            return None
        if self.edge_features and block.attr is None:
            raise IsthmusError(f"The model reads {self.edge_features} edge features, but the block has none.")
        attr = block.attr if self.edge_features else None
        if self.near is None or self.far is None:
            return Encoding(attr)
        return Encoding(attr, (self.near, self.far), self._entries(block, len(self.near)))

    def _entries(self, block: Block, sets: int) -> Tensor:
        """The entries of both tables that each edge uses: [E, 2]."""
        if block.ports is None:
            raise IsthmusError("The model reads port numbers, but the block has none; number the ports first.")
        key = f"ports {self.ports} {sets}"
        if key not in block.cache:
            at = block.ports.clamp(max=self.ports - 1)
            if sets > 1:
                check_sets(sets, block.targets)
                at = at + (block.edges.silo * self.ports)[:, None]
            block.cache[key] = at + torch.tensor([0, sets * self.ports], device=at.device)
        found: Tensor = block.cache[key]
        return found
