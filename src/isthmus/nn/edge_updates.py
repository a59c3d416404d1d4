"""Embeddings of edges, updated from the rows of both ends after every layer (Egressy and others, 2024)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import Features, concat
from isthmus.graph.graph import Schema
from isthmus.nn.block import Block, Rows
from isthmus.nn.edges import EdgeEncoder, Edges, Embedded, Encoding
from isthmus.nn.layer import dense
from isthmus.nn.linear import Linear, product
from isthmus.nn.maps import gather, gather_targets, some_rows
from isthmus.nn.sets import Stackable, two_sided


class EdgeUpdates(nn.Module):
    """e_0 = W [attributes, ports] + b, and after layer l  e_l = e_(l-1) + MLP_l([h_l(u), h_l(v), e_(l-1)]) / 2.

    As in the public code of Multi-GNN, the encodings are mapped to the hidden width once, layer l + 1 reads e_l, and
    the edge head reads the embedding after the last layer. In a directed model an edge has two embeddings with
    parameters of their own, one along and one against its direction; the head reads the one along it. Where labels lie
    on nodes, there is no update after the last layer, because nothing would read it.

    An update reads only rows that its layer reads too, so that a host that can compute a layer can update its edges.
    """

    def __init__(self, encoder: EdgeEncoder | None, schema: Schema, layers: int, hidden: int, directed: bool) -> None:
        super().__init__()
        if encoder is None or not encoder.width:
            raise IsthmusError(
                "edge_updates=true, but edges have neither features nor ports to start from; give edges features, use "
                "ports > 0, or edge_updates=false."
            )
        inner, scored = layers - 1, schema.target == "edge"
        if not inner and not scored:
            raise IsthmusError("edge_updates=true, but after the one layer nobody reads edges; use layers > 1.")
        self.enter = Linear(encoder.width, hidden)
        self.steps = nn.ModuleList(EdgeUpdate(hidden) for _ in range(inner + scored))
        if directed:
            for part in (self.enter, *self.steps[:inner]):  # only the head reads what comes after the last layer
                two_sided(part)

    def forward(self, place: int, h: Features, block: Block, before: Edges) -> Edges:
        """The embeddings that layer ``place`` reads of a block's edges, from its source rows ``h``.

        ``before`` holds the encodings of these edges for the first two layers, and later the embeddings that the layer
        before read.
        """
        if isinstance(before, Encoding):
            start = self._start(before, block)
            if place == 0:
                return start
            e = start.dense()
        else:
            assert isinstance(before, Tensor)
            e = before if block.kept is None else some_rows(before, block.kept.nonzero().flatten())
        rows = dense(concat([h] * block.targets.sides))
        out: Tensor = self.steps[place - 1](e, rows, block.of_targets(rows), block)
        return out

    def along(self, block: Block, encoding: Encoding, ends: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """The final embeddings of seed edges: [E, hidden]; ``ends`` are the rows of both ends after every layer."""
        e = self._start(encoding, block).dense()
        for step, (source, target) in zip(self.steps, ends, strict=True):
            e = step(e, source, target, block)
        return e

    def _start(self, encoding: Encoding, block: Block) -> Embedded:
        """The embeddings e_0 of a block's edges."""
        assert self.enter.bias is not None
        weight, bias = (_for_rows(p, self.enter, block.edges) for p in (self.enter.weight, self.enter.bias))
        return Embedded(encoding, weight, bias, block.edges)


class EdgeUpdate(Stackable):
    """e_uv + (W_2 ReLU(W_1 [h_u, h_v, e_uv] + b_1) + b_2) / 2."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.first = Linear(3 * hidden, hidden)
        self.second = Linear(hidden, hidden)

    def forward(self, e: Tensor, source: Tensor, target: Tensor, block: Block) -> Tensor:
        """New embeddings of a block's edges [E, hidden], from its source rows and target rows."""
        assert self.first.bias is not None and self.second.bias is not None
        parameters = (self.first.weight, self.first.bias, self.second.weight, self.second.bias)
        first, first_bias, second, second_bias = (_for_rows(p, self, block.edges) for p in parameters)
        of_source, of_target, of_edge = first.split(self.hidden, 1)
        # Rows are mapped before they are gathered: there are fewer of them than edges.
        inner = product(e, of_edge, None, block.edges)
        inner = inner + gather(product(source, of_source, None, block.sources), block)
        inner = inner + gather_targets(product(target, of_target, first_bias, block.targets), block)
        return torch.add(e, product(inner.relu(), second, second_bias, block.edges), alpha=0.5)


def _for_rows(p: Tensor, part: Stackable, rows: Rows) -> Tensor:
    """The sets of a parameter that rows use: those of both sides, or of the first side alone."""
    return p[: len(p) // part.sides * rows.sides]
