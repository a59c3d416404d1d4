"""Graph attention of Velickovic and others, 2018."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import Features
from isthmus.nn.block import Block, Rows
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer
from isthmus.nn.linear import Linear, product
from isthmus.nn.maps import gather, gather_targets, sum_edges
from isthmus.nn.monoid import State, largest
from isthmus.nn.sets import per_row


class GAT(Layer):
    """y_v = sum_u a_uv W h_u + b over the neighbours and v itself, for each head.

    a_uv = softmax_u LeakyReLU(p . W h_u + q . W h_v + r . W_e e_uv). The loop of v carries the mean encoding
    of its edges; self-loops of the data are left out. Heads of width outputs / heads stand side by side; with
    ``concat=False`` each is as wide as the output and their mean is taken.
    """

    uses_edges = True
    uses_degrees = False
    final: ClassVar[dict[str, Any]] = {"concat": False}
    unmergeable = "a softmax weight depends on every neighbour at once, so parts of the sum do not merge"

    def __init__(
        self,
        inputs: int,
        outputs: int,
        edge: int = 0,
        bias: bool = True,
        *,
        heads: int = 4,
        concat: bool = True,
    ) -> None:
        super().__init__(inputs, outputs, edge, bias)
        if heads < 1 or (concat and outputs % heads):
            raise IsthmusError(f"GAT cannot share {outputs} outputs between {heads} heads; use a divisor of {outputs}.")
        self.heads, self.concat = heads, concat
        self.width = outputs // heads if concat else outputs
        self.lin = Linear(inputs, heads * self.width, bias=False)
        self.from_source = self.fresh("from_source", heads, self.width)  # p
        self.from_target = self.fresh("from_target", heads, self.width)  # q
        self.encode = Linear(edge, heads * self.width, bias=False) if edge else None  # W_e
        self.from_edge = self.fresh("from_edge", heads, self.width) if edge else None  # r
        self.bias = self.fresh("bias", outputs) if bias else None

    def forward(self, h: Features, block: Block, edge: Edges | None = None, beyond: State | None = None) -> Tensor:
        """Target rows [targets, outputs] by attention over all edges of a target and its loop."""
        if beyond is not None:
            raise self.refusal()
        kept, block = _without_loops(block)
        encoded = None if self.encode is None else self.encoded(edge)
        if encoded is not None and kept is not None:
            encoded = encoded[kept]
        z: Tensor = self.lin(h, block.sources)
        mine = block.of_targets(z)
        along, loop = self._scores(z, mine, block, encoded)
        along, loop = _softmax(along, loop, block)
        sent = (along[:, :, None] * self._heads(gather(z, block))).flatten(1)
        out = sum_edges(sent, block) + (loop[:, :, None] * self._heads(mine)).flatten(1)
        out = out if self.concat else self._heads(out).mean(1)
        return out if self.bias is None else out + per_row(self.bias, block.targets)

    def _scores(self, z: Tensor, mine: Tensor, block: Block, encoded: Tensor | None) -> tuple[Tensor, Tensor]:
        """LeakyReLU(p . W h_u + q . W h_v + r . W_e e_uv) for edges and for loops: [E or targets, heads]."""
        source = self._dot(z, self.from_source, block.sources)
        target = self._dot(mine, self.from_target, block.targets)
        along = gather(source, block) + gather_targets(target, block)
        loop = block.of_targets(source) + target
        if encoded is not None and self.encode is not None and self.from_edge is not None:
            # r . W_e is folded into one narrow matrix, so that edges are never as wide as rows.
            weight = self.encode.weight.view(-1, self.edge, self.heads, self.width)
            folded = (weight * self.from_edge[:, None]).sum(-1)
            score = product(encoded, folded, None, block.edges)
            along = along + score
            loop = loop + sum_edges(score, block) / block.count.clamp(min=1).to(score.dtype)[:, None]
        return functional.leaky_relu(along, 0.2), functional.leaky_relu(loop, 0.2)

    def _dot(self, z: Tensor, vector: Tensor, rows: Rows) -> Tensor:
        """The inner product of each head's part of a row with its vector: [n, heads]."""
        return self._heads(z * per_row(vector.flatten(1), rows)).sum(-1)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.heads, self.width)


def _softmax(along: Tensor, loop: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """The attention weights of edges and of loops, from their scores; those of a target sum to 1."""
    # A shift changes nothing but the range, so no gradient passes through it.
    top = torch.maximum(largest(along.detach(), block), loop.detach())
    along, loop = (along - gather_targets(top, block)).exp(), (loop - top).exp()
    total = sum_edges(along, block) + loop
    return along / gather_targets(total, block), loop / total


def _without_loops(block: Block) -> tuple[Tensor | None, Block]:
    """The edges that are no self-loops (None: all edges), and the block of these edges."""
    if "without_loops" not in block.cache:
        own = block.dst if block.own is None else block.own[block.dst]
        kept = (block.src != own).nonzero().flatten()
        whole = len(kept) == len(block.src)
        part = None
        if not whole:
            part = replace(
                block, src=block.src[kept], dst=block.dst[kept], attr=None, ports=None, reverse=None, cache={}
            )
        block.cache["without_loops"] = (None if whole else kept, part)
    kept_edges, found = block.cache["without_loops"]
    return kept_edges, block if found is None else found
