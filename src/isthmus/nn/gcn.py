"""Graph convolution of Kipf and Welling, 2017."""

from __future__ import annotations

from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import Features
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer, dense
from isthmus.nn.linear import Linear
from isthmus.nn.monoid import MEAN, Aggregate, Message
from isthmus.nn.sets import per_row


class GCN(Layer):
    """y_v = sum_u W h_u / sqrt((d_u + 1)(d_v + 1)) + W h_v / (d_v + 1) + b.

    d is the true in-degree. The factor splits: the source scales its row before it is sent, the target scales the sum,
    so that neither needs the other's degree. Where neighbours are sampled, the sum is estimated by d_v times their
    mean, which is unbiased and exact when all neighbours are present. A self-loop in the data is an edge like any
    other.
    """

    monoid = MEAN

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, edge, bias)
        self.lin = Linear(inputs, outputs, bias=False)
        self.bias = self.fresh("bias", outputs) if bias else None

    def prepare(self, h: Features, block: Block) -> Tensor:
        """W h_u / sqrt(d_u + 1): [sources, outputs]."""
        z: Tensor = self.lin(h, block.sources)
        return z * _degree(block.src_degree, z).add(1).rsqrt()

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """The message of edge (u, v): the prepared row of u."""
        return Message(rows=dense(h))

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """(d_v mean + own row) / sqrt(d_v + 1) + b: [targets, outputs]."""
        degree = _degree(block.dst_degree, near.value)
        out = (degree * near.value + block.of_targets(dense(h))) * degree.add(1).rsqrt()
        return out if self.bias is None else out + per_row(self.bias, block.targets)


def _degree(degree: Tensor | None, like: Tensor) -> Tensor:
    """Degrees as a column in the number format of ``like``; raises where the block has none."""
    if degree is None:
        raise IsthmusError("GCN needs the true in-degrees: fill src_degree and dst_degree of the block.")
    return degree.to(like.dtype)[:, None]
