"""GraphSAGE with the aggregator that Hamilton, Ying and Leskovec, 2017, call GCN: a node is one of its neighbours."""

from __future__ import annotations

from torch import Tensor

from isthmus.graph.features import Features
from isthmus.nn.block import Block, Rows
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer, dense
from isthmus.nn.linear import Linear
from isthmus.nn.monoid import MEAN, Aggregate, Message
from isthmus.nn.sets import per_row


class SAGEGCN(Layer):
    """y_v = W mean of h_u over u = v and all neighbours u of v, + b (the paper's equation 2)."""

    monoid = MEAN
    uses_degrees = False

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, edge, bias)
        self.lin = Linear(inputs, outputs, bias=False)
        self.bias = self.fresh("bias", outputs) if bias else None
        self._first = outputs < inputs  # whether rows are multiplied before they are added up: the fewer numbers

    def _mapped(self, h: Features, rows: Rows) -> Tensor:
        """W h_v: [n, outputs]."""
        out: Tensor = self.lin(h, rows)
        return out

    def prepare(self, h: Features, block: Block) -> Features:
        """W h_u where that is shorter than h_u, since W commutes with the mean; else h_u, of [sources, inputs]."""
        return self._mapped(h, block.sources) if self._first else h

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """The message of edge (u, v): the prepared row of u."""
        return Message(rows=dense(h))

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """(n mean + own row) / (n + 1) + b, where n is the number of neighbours that were read: [targets, outputs]."""
        assert near.count is not None
        mean = (near.count * near.value + block.of_targets(dense(h))) / (near.count + 1)
        out = mean if self._first else self._mapped(mean, block.targets)
        return out if self.bias is None else out + per_row(self.bias, block.targets)
