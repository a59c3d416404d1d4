"""A layer that reads no neighbours; several of them are a multilayer perceptron, a baseline without the graph."""

from __future__ import annotations

from torch import Tensor

from isthmus.graph.features import Features
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges
from isthmus.nn.layer import Layer, at_targets
from isthmus.nn.linear import Linear
from isthmus.nn.monoid import State


class Dense(Layer):
    """y_v = W h_v + b."""

    unmergeable = "it reads no neighbours, so there is nothing to aggregate"
    uses_degrees = False

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, edge, bias)
        self.lin = Linear(inputs, outputs, bias)

    def forward(self, h: Features, block: Block, edge: Edges | None = None, beyond: State | None = None) -> Tensor:
        """The linear map of the targets' own rows: [targets, outputs]."""
        if beyond is not None:
            raise self.refusal()
        return at_targets(self.lin, h, block)
