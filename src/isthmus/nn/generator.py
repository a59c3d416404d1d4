"""A generator of neighbours that nobody knows (NeighGen of FedSage+, DGen of FedDEP): how many, and a row for each."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from isthmus.graph.features import Features
from isthmus.nn.block import Block, Rows
from isthmus.nn.layer import Layer
from isthmus.nn.linear import Linear


class Generator(nn.Module):
    """A code of each node's neighbourhood; from it a number of missing neighbours, and from code + noise their rows.

    ``layers`` encode (each [hidden] to [hidden]); at most ``most`` rows of ``width`` numbers are made for a node,
    through a layer of ``wide`` units.
    """

    def __init__(self, features: int, hidden: int, layers: Sequence[Layer], most: int, width: int, wide: int) -> None:
        super().__init__()
        self.hidden, self.most, self.width = hidden, most, width
        self.enter = Linear(features, hidden)
        self.layers = nn.ModuleList(layers)
        self.number = Linear(hidden, 1)
        self.first = Linear(hidden, wide)
        self.second = Linear(wide, most * width)

    def encode(self, x: Features, x_rows: Rows, blocks: Sequence[Block]) -> Tensor:
        """The code of each target of the last block: [targets, hidden]."""
        h: Tensor = self.enter(x, x_rows).relu()
        for layer, block in zip(self.layers, blocks, strict=True):
            h = layer(h, block).relu()
        return h

    def count(self, code: Tensor, rows: Rows) -> Tensor:
        """How many neighbours each node misses, as a number that can be trained: [n], 0 or more."""
        number: Tensor = self.number(code, rows).squeeze(1)
        return number.relu()

    def generate(self, code: Tensor, rows: Rows) -> Tensor:
        """A row for each of the ``most`` neighbours that a node may miss, from its (noisy) code: [n, most, width].

        Numbers lie in -1..1, as those of rows of unit length do.
        """
        made: Tensor = self.second(self.first(code, rows).relu(), rows).tanh()
        return made.view(len(code), self.most, self.width)
