"""What a layer reads of edges: their attributes, and trained vectors of their ports."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.nn.block import Block, Rows
from isthmus.nn.linear import product
from isthmus.nn.maps import Lookup, select
from isthmus.nn.sets import Stackable


@dataclass(frozen=True)
class Encoding:
    """Encodings of edges whose tables are not looked up yet: [attributes, an entry of each part of the table].

    There are far fewer table entries than edges, so a linear map of the encodings is applied to the table.
    """

    attr: Tensor | None  # [E, attributes]
    table: Tensor | None = None  # [sets, parts, entries, width]
    at: Tensor | None = None  # [E, parts]: entries, counted through all parts of all sets

    def dense(self) -> Tensor:
        """The encodings as a matrix: [E, width]."""
        parts = [] if self.attr is None else [self.attr]
        if self.table is not None and self.at is not None:
            table = self.table.flatten(0, 2)
            parts += [select(table, at) for at in self.at.unbind(1)]
        return torch.cat(parts, 1)

    def mapped(self, weight: Tensor, rows: Rows, bias: Tensor | None = None) -> tuple[Tensor | None, Lookup | None]:
        """The encodings times weight [sets, width, outputs], plus bias.

        Returned as two addends, either of which may be None: values [E, outputs], and a table to look up.
        """
        begin = 0 if self.attr is None else self.attr.shape[1]
        values = None if self.attr is None else product(self.attr, weight[:, :begin], bias, rows)
        if self.table is None or self.at is None:
            return values, None
        sized = weight[:, begin:].unflatten(1, (self.table.shape[1], self.table.shape[3]))
        table = self.table @ sized
        if values is None and bias is not None:  # an edge looks up one entry of each part
            table = table + bias[:, None, None] / table.shape[1]
        return values, Lookup(table.flatten(0, 2), self.at)


@dataclass(frozen=True)
class Embedded:
    """Embeddings W e + b of encodings e, not multiplied yet: a layer's own map of them becomes one product with e."""

    of: Encoding
    weight: Tensor  # [sets, width, hidden]
    bias: Tensor  # [sets, hidden]
    rows: Rows

    def dense(self) -> Tensor:
        """The embeddings as a matrix: [E, hidden]."""
        values, lookup = self.of.mapped(self.weight, self.rows, self.bias)
        parts = [] if values is None else [values]
        parts += [] if lookup is None else [lookup.each()]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def mapped(self, weight: Tensor, rows: Rows) -> tuple[Tensor | None, Lookup | None]:
        """The embeddings times weight [sets, hidden, outputs], as two addends: values, and a table to look up."""
        return self.of.mapped(self.weight @ weight, rows, (self.bias[:, None] @ weight).squeeze(1))


Edges = Tensor | Encoding | Embedded  # what a layer reads of edges: a matrix [E, width], or a form that makes one


def mapped(edge: Edges, weight: Tensor, rows: Rows) -> tuple[Tensor | None, Lookup | None]:
    """What a layer reads of edges, times weight [sets, width, outputs]: values, and a table to look up."""
    return (product(edge, weight, None, rows), None) if isinstance(edge, Tensor) else edge.mapped(weight, rows)


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
        """Standard normal starting values, as is usual for embeddings."""
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def forward(self, block: Block) -> Encoding | None:
        """The encodings of a block's edges; None where there are neither features nor ports."""
        if not self.width:
            return None
        if self.edge_features and block.attr is None:
            raise IsthmusError(f"The model reads {self.edge_features} edge features, but the block has none.")
        attr = block.attr if self.edge_features else None
        if self.tables is None:
            return Encoding(attr)
        sides = block.targets.sides  # both sides read the same tables, but map them by parameters of their own
        tables = self.tables if sides == 1 else self.tables.repeat(sides, 1, 1, 1)
        return Encoding(attr, tables, self._entries(block, len(tables)))

    def _entries(self, block: Block, sets: int) -> Tensor:
        """The table entries of each edge's ports at its target and at its source: [E, 2]."""
        if block.ports is None:
            raise IsthmusError("The model reads port numbers, but the block has none; number the ports first.")
        key = f"ports {self.ports} {sets}"
        if key not in block.cache:
            at = block.ports.clamp(max=self.ports - 1)
            at[:, 1].add_(self.ports)
            edges = block.edges.by_sets(sets) if sets > 1 else block.edges
            if sets == 2:  # two sides of one shared set, most often: a slice, without looking edges up
                at[edges.ptr[1] :].add_(2 * self.ports)
            elif sets > 2:
                at.add_((edges.silo * 2 * self.ports)[:, None])
            block.cache[key] = at
        found: Tensor = block.cache[key]
        return found
