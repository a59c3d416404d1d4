"""Graph isomorphism network of Xu and others, 2019; with edge features that of Hu and others, 2020."""

from __future__ import annotations

from torch import Tensor

from isthmus.graph.features import Features
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer, dense
from isthmus.nn.linear import Linear
from isthmus.nn.maps import gather
from isthmus.nn.monoid import SUM, Aggregate, Message
from isthmus.nn.sets import per_row


class GIN(Layer):
    """y_v = W_2 ReLU(W_1 ((1 + eps) h_v + sum_u m_uv) + b_1) + b_2, with m_uv = h_u.

    With edge features m_uv = ReLU(h_u + W_e e_uv + b_e). ``train_eps`` makes eps a parameter; it starts at 0.
    """

    monoid = SUM
    uses_edges = True
    uses_degrees = False

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True, *, train_eps: bool = False) -> None:
        super().__init__(inputs, outputs, edge, bias)
        self.eps = self.fresh("eps", 1) if train_eps else None
        self.encode = Linear(edge, inputs) if edge else None
        self.first = Linear(inputs, outputs, bias=False)
        self.first_bias = self.fresh("first_bias", outputs)
        self.second = Linear(outputs, outputs, bias)

    def prepare(self, h: Features, block: Block) -> Tensor:
        """W_1 h_u, since W_1 commutes with the sum; h_u itself with edge features, where a ReLU comes before W_1."""
        if self.encode is not None:
            return dense(h)
        z: Tensor = self.first(h, block.sources)
        return z

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """The message of edge (u, v): the prepared row of u; with edge features ReLU(h_u + W_e e_uv + b_e)."""
        if self.encode is None:
            return Message(rows=dense(h))
        encoded = self.encode(self.encoded(edge), block.edges)
        return Message(values=(gather(dense(h), block) + encoded).relu())

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """W_2 ReLU(W_1 ((1 + eps) own + sum) + b_1) + b_2: [targets, outputs]."""
        own = block.of_targets(dense(h))
        own = own if self.eps is None else own + per_row(self.eps, block.targets) * own
        z = own + near.value
        z = z if self.encode is None else self.first(z, block.targets)
        out: Tensor = self.second((z + per_row(self.first_bias, block.targets)).relu(), block.targets)
        return out
