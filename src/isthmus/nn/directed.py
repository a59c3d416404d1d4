"""Message passing along and against the edges of a directed multigraph (Egressy and others, 2024)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from isthmus.errors import IsthmusError
from isthmus.graph.features import Features
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer


class Directed(nn.Module):
    """y = layer_in(h, edges) + layer_out(h, reversed edges), each with weights of its own."""

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
        self.inward = layer(inputs, outputs, edge, bias, **options)
        self.outward = layer(inputs, outputs, edge, bias, **options)

    def set_degree(self, inward: Tensor, outward: Tensor | None = None) -> None:
        """Degree constants [silos] of both directions."""
        if outward is None:
            raise IsthmusError("A directed model needs degree constants of outgoing edges too.")
        self.inward.set_degree(inward)
        self.outward.set_degree(outward)

    def forward(self, h: Features, block: Block, edge: Edges | None = None, back: Edges | None = None) -> Tensor:
        """Both directions, summed; ``back`` holds the encodings of the reversed edges."""
        out: Tensor = self.inward(h, block, edge) + self.outward(h, reverse(block), back)
        return out


def reverse(block: Block) -> Block:
    """The block of outgoing edges, which a directed model cannot do without."""
    if block.reverse is None:
        raise IsthmusError("A directed model also reads outgoing edges; sample with both directions (Block.reverse).")
    return block.reverse
