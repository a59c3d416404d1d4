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
    """The encodings of edges with their table not yet looked up: [attributes, sum of the table's entries at_e].

    A table is far shorter than the edges, so a linear map of the encodings maps the table instead.
    """

    attr: Tensor | None  # [E, attributes]
    table: Tensor | None = None  # [sets, entries, width]
    at: Tensor | None = None  # [E, lookups]: entries, counted through the tables of all sets

    def dense(self) -> Tensor:
        """[E, width]."""
        parts = [] if self.attr is None else [self.attr]
        if self.table is not None and self.at is not None:
            parts.append(Lookup(self.table.flatten(0, 1), self.at).each())
        return torch.cat(parts, 1)

    def mapped(self, weight: Tensor, rows: Rows) -> tuple[Tensor | None, Lookup | None]:
        """The encodings times weight [sets, width, outputs]: a part for each edge and a part to look up."""
        if self.attr is None and self.table is not None and self.at is not None:
            return None, Lookup((self.table @ weight).flatten(0, 1), self.at)
        assert self.attr is not None
        begin = self.attr.shape[1]
        values = product(self.attr, weight[:, :begin], None, rows)
        if self.table is None or self.at is None:
            return values, None
        return values, Lookup((self.table @ weight[:, begin:]).flatten(0, 1), self.at)


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
        self.tables = self.fresh("tables", 2, ports, width) if ports else None  # near and far: [sets, 2, ports, 8]

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
        if self.tables is None:
            return Encoding(attr)
        # Side by side, so that an edge's encoding is the sum of two entries: near ones end, far ones begin with zeros.
        sets, _, ports, width = self.tables.shape
        apart = torch.eye(2, dtype=self.tables.dtype, device=self.tables.device).view(1, 2, 1, 2, 1)
        both = (self.tables[:, :, :, None] * apart).view(sets, 2 * ports, 2 * width)
        return Encoding(attr, both, self._entries(block, sets))

    def _entries(self, block: Block, sets: int) -> Tensor:
        """The entries that each edge uses, near and far: [E, 2]."""
        if block.ports is None:
            raise IsthmusError("The model reads port numbers, but the block has none; number the ports first.")
        key = f"ports {self.ports} {sets}"
        if key not in block.cache:
            at = block.ports.clamp(max=self.ports - 1)
            if sets > 1:
                check_sets(sets, block.targets)
                at = at + (block.edges.silo * 2 * self.ports)[:, None]
            block.cache[key] = at + torch.arange(0, 2 * self.ports, self.ports, device=at.device)
        found: Tensor = block.cache[key]
        return found
