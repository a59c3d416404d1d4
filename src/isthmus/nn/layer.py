"""The parent of every layer: message -> aggregate -> update on one graph, without regard to silos."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import Features, SparseRows
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges
from isthmus.nn.linear import Linear, product
from isthmus.nn.monoid import Aggregate, Message, Monoid, State
from isthmus.nn.sets import Stackable


class Layer(Stackable):
    """y_v = update(h_v, merge of message(h_u, e) over the edges e = (u, v)).

    A layer is built by ``(inputs, outputs, edge, bias, **options)``: ``edge`` is the width of the edge
    encodings, and ``bias=False`` leaves out a bias that a following batch normalisation would cancel.
    Keyword-only arguments are its options. To add a layer, write ``message`` and ``update``, pass the class to
    ``isthmus.nn.register``, and test it with a subclass of ``isthmus.testing.LayerContract``.
    """

    monoid: Monoid | None = None
    uses_edges: ClassVar[bool] = False
    uses_degrees: ClassVar[bool] = True  # reads src_degree and dst_degree of blocks
    final: ClassVar[dict[str, Any]] = {}  # options that differ where the layer's output is the logits
    unmergeable: ClassVar[str] = "it has no aggregate that merges"  # why monoid is None, if it is

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True) -> None:
        super().__init__()
        if edge and not self.uses_edges:
            raise IsthmusError(f"{type(self).__name__} does not read edge features; build it with edge=0.")
        self.inputs, self.outputs, self.edge = inputs, outputs, edge

    def prepare(self, h: Features, block: Block) -> Features:
        """What ``message`` and ``update`` both need of each source row, computed once; by default the row itself."""
        return h

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """The message of each edge, from prepared source rows and edge encodings."""
        raise NotImplementedError

    def common(self, h: Features, block: Block) -> Tensor | None:
        """What is added to every message of a target: [targets, d], or None; only ``Moments`` supports it."""
        return None

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """The new rows of the targets, from prepared source rows and the aggregate: [targets, outputs]."""
        raise NotImplementedError

    def partial(self, h: Features, block: Block, edge: Edges | None = None) -> State:
        """The state of a block's edges alone, to be merged with those of other silos' edges."""
        if self.monoid is None:
            raise self.refusal()
        return self.monoid.reduce(self.message(self.prepare(h, block), block, edge), block)

    def forward(self, h: Features, block: Block, edge: Edges | None = None, beyond: State | None = None) -> Tensor:
        """Target rows [targets, outputs] from source rows; ``beyond`` is the state of other silos' edges."""
        if self.monoid is None:
            raise self.refusal()
        h = self.prepare(h, block)
        message, common = self.message(h, block, edge), self.common(h, block)
        return self.update(h, self.monoid.collect(message, block, beyond, common), block)

    def set_degree(self, inward: Tensor, outward: Tensor | None = None) -> None:
        """Take each silo's mean of log(degree + 1): [silos]; only PNA uses it."""

    def refusal(self) -> IsthmusError:
        """The error for a layer whose aggregate does not merge."""
        return IsthmusError(
            f"{type(self).__name__} cannot take partial aggregates from beyond the boundary: "
            f"{self.unmergeable}. Exchange rows instead, or choose gcn, sage, gin or pna."
        )

    def encoded(self, edge: Edges | None) -> Tensor:
        """The edge encodings as a matrix [E, edge]; raises where there are none."""
        edge = self.present(edge)
        return edge if isinstance(edge, Tensor) else edge.dense()

    def present(self, edge: Edges | None) -> Edges:
        """The edge encodings in the form in which they were given; raises where there are none."""
        if edge is None:
            raise IsthmusError(f"{type(self).__name__} was built for edge encodings of width {self.edge}; none came.")
        return edge


def at_targets(linear: Linear, h: Features, block: Block) -> Tensor:
    """The linear map of the targets' own rows: [targets, outputs]."""
    return product_at_targets(h, linear.weight, linear.bias, block)


def product_at_targets(h: Features, weight: Tensor, bias: Tensor | None, block: Block) -> Tensor:
    """The targets' own rows times weight, plus bias; sparse rows are multiplied before they are gathered."""
    if isinstance(h, SparseRows):
        return block.of_targets(product(h, weight, bias, block.sources))
    return product(block.of_targets(h), weight, bias, block.targets)


def dense(h: Features) -> Tensor:
    """Rows as an ordinary matrix, for a layer that must gather them before any product."""
    return h.dense() if isinstance(h, SparseRows) else h
