"""Message passing along and against the edges of a directed multigraph (Egressy and others, 2024)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import Features, concat
from isthmus.nn.block import Block, Rows
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer
from isthmus.nn.sets import two_sided


class Directed(nn.Module):
    """y = layer_in(h, edges) + layer_out(h, reversed edges), each with weights of its own.

    Both are computed as one layer with two parameter sets on a block that has all rows twice: half as many calls on
    larger matrices, which a GPU computes faster.
    """

    def __init__(
        self,
        layer: type[Layer],
        inputs: int,
        outputs: int,
        edge: int = 0,
        bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.layer = layer(inputs, outputs, edge, bias, **options)
        two_sided(self.layer)

    def set_degree(self, inward: Tensor, outward: Tensor | None = None) -> None:
        """Take each silo's mean of log(degree + 1) over its incoming and its outgoing edges: [silos] each."""
        if outward is None:
            raise IsthmusError("A directed model needs degree constants of outgoing edges too.")
        self.layer.set_degree(torch.stack((inward, outward), 1))

    def forward(self, h: Features, block: Block, edge: Edges | None = None) -> Tensor:
        """The sum of both directions: [targets, outputs]; ``edge`` is what the edges of ``both_sides(block)`` carry."""
        inward, outward = self.layer(concat([h, h]), both_sides(block), edge).chunk(2)
        both: Tensor = inward + outward
        return both


def both_sides(block: Block) -> Block:
    """A block with all rows twice: the first copies receive along the edges, the second against them."""
    if block.reverse is None:
        raise IsthmusError("A directed model also reads outgoing edges; sample with both directions (Block.reverse).")
    if "both_sides" not in block.cache:
        block.cache["both_sides"] = _under_each_other(block, block.reverse)
    found: Block = block.cache["both_sides"]
    return found


def _under_each_other(first: Block, second: Block) -> Block:
    """One block with the rows and edges of ``first`` followed by those of ``second``."""

    def under(name: str, shift: int = 0) -> Tensor | None:
        a, b = getattr(first, name), getattr(second, name)
        return None if a is None else torch.cat((a, b + shift if shift else b))

    src, dst = under("src", len(first.sources)), under("dst", len(first.targets))
    assert src is not None and dst is not None
    made = Block(
        src,
        dst,
        sources=_twice(first.sources, second.sources),
        targets=_twice(first.targets, second.targets),
        own=under("own", len(first.sources)),
        attr=under("attr"),
        ports=under("ports"),
        src_degree=under("src_degree"),
        dst_degree=under("dst_degree"),
        kept=under("kept"),
    )
    made.edges = _twice(first.edges, second.edges)
    return made


def _twice(first: Rows, second: Rows) -> Rows:
    """The rows of both sides, those of ``second`` after those of ``first``."""
    ptr = (*first.ptr, *(len(first) + end for end in second.ptr[1:]))
    return Rows(ptr, first.keys, sides=2)  # dropout comes after the sides are summed: one key a node is enough
