"""GraphSAGE of Hamilton, Ying and Leskovec, 2017."""

from __future__ import annotations

from torch import Tensor

from isthmus.core.errors import unknown
from isthmus.graph.features import Features, SparseRows
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer, at_targets, dense
from isthmus.nn.linear import Linear
from isthmus.nn.monoid import MAX, MEAN, Aggregate, Message, Monoid

AGGREGATES: dict[str, Monoid] = {"mean": MEAN, "max": MAX}


class SAGE(Layer):
    """y_v = W_near aggregate_u(h_u) + W_own h_v + b, where the aggregate is the mean or the maximum."""

    uses_degrees = False

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True, *, aggregate: str = "mean") -> None:
        super().__init__(inputs, outputs, edge, bias)
        if aggregate not in AGGREGATES:
            raise unknown("aggregate", aggregate, AGGREGATES)
        self.monoid: Monoid = AGGREGATES[aggregate]
        self.near = Linear(inputs, outputs, bias=False)
        self.own = Linear(inputs, outputs, bias)

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """The message of edge (u, v): h_u, or W_near h_u where the map comes before the mean."""
        return Message(rows=self.near(h, block.sources) if self._early(h) else dense(h))

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """W_near aggregate + W_own h_v + b: [targets, outputs]."""
        mapped = near.value if self._early(h) else self.near(near.value, block.targets)
        return mapped + at_targets(self.own, h, block)

    def _early(self, h: Features) -> bool:
        """Whether W_near comes before the aggregate: for means, which commute with it, where it makes rows narrower."""
        return self.monoid is MEAN and (isinstance(h, SparseRows) or self.inputs > self.outputs)
