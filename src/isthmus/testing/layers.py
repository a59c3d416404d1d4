"""The contract of layers: subclass ``LayerContract`` in the tests of a new one.

.. code-block:: python

    class TestMine(LayerContract):
        layer = Mine
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import SparseRows
from isthmus.nn.block import Block, Rows
from isthmus.nn.layer import Layer
from isthmus.nn.sets import stack_sets

INPUTS, OUTPUTS, EDGE = 5, 8, 3


def random_block(nodes: int, edges: int, seed: int = 0, alone: int = 1) -> Block:
    """A random multigraph with parallel edges; its first ``alone`` nodes have no edge."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(min(alone, nodes - 1), nodes, (2, edges), generator=generator)
    if edges > 1:
        ends[:, 1] = ends[:, 0]  # a parallel edge
    src, dst = ends[:, torch.argsort(ends[1], stable=True)]
    degree = torch.bincount(dst, minlength=nodes)
    rows = Rows((0, nodes), torch.arange(nodes) + 1000 * seed)
    return Block(
        src, dst, rows, rows,
        attr=torch.randn(edges, EDGE, generator=generator, dtype=torch.float64),
        ports=torch.randint(0, 6, (edges, 2), generator=generator),
        src_degree=degree, dst_degree=degree,
    )  # fmt: skip


def join(blocks: Sequence[Block]) -> Block:
    """Blocks of several silos as one block-diagonal block."""

    def under(name: str, shift: str | None = None) -> Any:
        begin, parts = 0, []
        for block in blocks:
            part = getattr(block, name)
            parts.append(part if part is None or shift is None else part + begin)
            begin += len(getattr(block, shift)) if shift else 0
        return None if parts[0] is None else torch.cat(parts)

    return Block(
        under("src", "sources"), under("dst", "targets"),
        _join_rows([block.sources for block in blocks]), _join_rows([block.targets for block in blocks]),
        own=under("own", "sources"), attr=under("attr"), ports=under("ports"),
        src_degree=under("src_degree"), dst_degree=under("dst_degree"),
        reverse=join([block.reverse for block in blocks if block.reverse]) if blocks[0].reverse else None,
    )  # fmt: skip


def turned(block: Block) -> Block:
    """A one-silo block with the direction of every edge turned around."""
    dst, by = torch.sort(block.src, stable=True)
    degree = torch.bincount(dst, minlength=len(block.targets))
    return Block(
        block.dst[by], dst, block.targets, block.sources,
        attr=None if block.attr is None else block.attr[by],
        ports=None if block.ports is None else block.ports[by].flip(1),
        src_degree=degree, dst_degree=degree,
    )  # fmt: skip


def _join_rows(parts: Sequence[Rows]) -> Rows:
    ptr = [0]
    for part in parts:
        ptr.append(ptr[-1] + len(part))
    return Rows(tuple(ptr), torch.cat([part.keys for part in parts]))


def permute(block: Block, order: Tensor) -> Block:
    """A one-silo block with row i moved to ``order[i]``."""
    assert block.own is None and block.attr is not None
    dst, by = torch.sort(order[block.dst], stable=True)
    rows = Rows(block.targets.ptr, _moved(block.targets.keys, order))
    degree = None if block.dst_degree is None else _moved(block.dst_degree, order)
    return Block(
        order[block.src[by]], dst, rows, rows,
        attr=block.attr[by], ports=None if block.ports is None else block.ports[by],
        src_degree=degree, dst_degree=degree,
    )  # fmt: skip


def _moved(x: Tensor, order: Tensor) -> Tensor:
    return torch.empty_like(x).index_copy(0, order, x)


def some_edges(block: Block, kept: Tensor) -> Block:
    """The block with only the edges where ``kept`` [E] is true; degrees stay those of the whole graph."""
    return replace(
        block,
        src=block.src[kept],
        dst=block.dst[kept],
        attr=None if block.attr is None else block.attr[kept],
        ports=None if block.ports is None else block.ports[kept],
        cache={},
    )


def some_targets(block: Block, targets: Tensor) -> Block:
    """The block that computes only these rows, in ascending order, with their whole neighbourhoods."""
    place = torch.full((len(block.targets),), -1).index_copy(0, targets, torch.arange(len(targets)))
    part = some_edges(block, place[block.dst] >= 0)
    rows = Rows((0, len(targets)), block.targets.keys[targets])
    degree = None if block.dst_degree is None else block.dst_degree[targets]
    return replace(part, dst=place[part.dst], targets=rows, own=targets, dst_degree=degree)


class LayerContract:
    """Properties of a layer: subclass it; ``layer`` is a callable ``(inputs, outputs, edge) -> Layer``."""

    layer: Callable[..., Layer]

    def widths(self) -> tuple[int, ...]:
        """Widths of the edge encodings to try."""
        return (0, EDGE) if self.build(0).uses_edges else (0,)

    def build(self, edge: int) -> Layer:
        """A layer with every parameter away from its starting value, so that biases and the like count."""
        made = type(self).layer(INPUTS, OUTPUTS, edge).double()
        generator = torch.Generator().manual_seed(edge)
        for p in made.parameters():
            p.data = 0.5 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
        return made

    def rows(self, block: Block, seed: int = 0) -> Tensor:
        """Random source rows."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(len(block.sources), INPUTS, generator=generator, dtype=torch.float64)

    def run(self, layer: Layer, h: Tensor | SparseRows, block: Block) -> Tensor:
        """Apply the layer with the block's edge attributes as encodings, where it reads them."""
        out: Tensor = layer(h, block, block.attr if layer.edge else None)
        return out

    def test_every_parameter_has_the_set_dimension(self) -> None:
        """Stacking finds a leading dimension of 1 everywhere."""
        for edge in self.widths():
            layer = self.build(edge)
            stack_sets(layer, 2, 2)
            assert all(len(p) == 2 for p in [*layer.parameters(), *layer.buffers()])

    def test_three_sets_equal_three_layers(self) -> None:
        """A stacked layer on a block-diagonal block does what separate layers do on the parts."""
        for edge in self.widths():
            blocks = [random_block(6, 11, 1), random_block(3, 0, 2), random_block(8, 20, 3)]
            inputs = [self.rows(block, 7 + i).requires_grad_() for i, block in enumerate(blocks)]
            apart = [copy.deepcopy(self.build(edge)) for _ in blocks]
            for i, layer in enumerate(apart):
                for p in layer.parameters():
                    p.data *= 1 + i
            parts = [self.run(*each) for each in zip(apart, inputs, blocks, strict=True)]
            _learn(torch.cat(parts))

            together = self.build(edge)
            stack_sets(together, 3, 3)
            for p, *own in zip(together.parameters(), *(layer.parameters() for layer in apart), strict=True):
                p.data = torch.cat([each.data for each in own])
            h = torch.cat([x.detach() for x in inputs]).requires_grad_()
            out = self.run(together, h, join(blocks))
            _learn(out)

            close(out, torch.cat(parts))
            close(h.grad, torch.cat([x.grad for x in inputs if x.grad is not None]))
            for p, *own in zip(together.parameters(), *(layer.parameters() for layer in apart), strict=True):
                grads = [torch.zeros_like(each) if each.grad is None else each.grad for each in own]
                close(p.grad, torch.cat(grads))

    def test_order_of_rows_does_not_matter(self) -> None:
        """Permuted rows give permuted outputs."""
        for edge in self.widths():
            block, layer = random_block(9, 20), self.build(edge)
            h, order = self.rows(block), torch.randperm(9, generator=torch.Generator().manual_seed(3))
            moved = self.run(layer, _moved(h, order), permute(block, order))
            close(moved, _moved(self.run(layer, h, block), order))

    def test_some_targets_equal_the_whole(self) -> None:
        """A block for a few targets with whole neighbourhoods gives their rows of the full computation."""
        for edge in self.widths():
            block, layer, targets = random_block(9, 20), self.build(edge), torch.tensor([0, 3, 4, 8])
            h = self.rows(block)
            close(self.run(layer, h, some_targets(block, targets)), self.run(layer, h, block)[targets])

    def test_sparse_rows_equal_dense_rows(self) -> None:
        """Sparse rows give the outputs of the dense rows with equal numbers."""
        for edge in self.widths():
            block, layer = random_block(9, 20), self.build(edge)
            h = self.rows(block).relu()
            close(self.run(layer, SparseRows.from_dense(h), block), self.run(layer, h, block))

    def test_partial_aggregates_merge(self) -> None:
        """Aggregates of two halves of the edges merge to that of all; a layer that cannot do so says it."""
        for edge in self.widths():
            block, layer = random_block(9, 20), self.build(edge)
            h, half = self.rows(block), torch.arange(20) % 3 == 0
            here, there = some_edges(block, half), some_edges(block, ~half)
            if layer.monoid is None:
                self._refuses(layer, h, here)
                continue
            beyond = layer.partial(h, there, there.attr if edge else None)
            merged = layer(h, here, here.attr if edge else None, beyond)
            close(merged, self.run(layer, h, block))

    def _refuses(self, layer: Layer, h: Tensor, block: Block) -> None:
        try:
            layer(h, block, block.attr if layer.edge else None, {})
        except IsthmusError as error:
            assert type(layer).__name__ in str(error)
        else:
            raise AssertionError("a layer without a monoid must refuse partial aggregates")

    def test_isolated_nodes_and_no_edges_are_finite(self) -> None:
        """Neither value nor gradient breaks where a target has no edge, or nobody has one."""
        for edge in self.widths():
            for block in (random_block(9, 20, alone=5), random_block(4, 0)):
                layer, h = self.build(edge), self.rows(block).requires_grad_()
                out = self.run(layer, h, block)
                _learn(out)
                assert h.grad is not None and bool(torch.isfinite(out).all() and torch.isfinite(h.grad).all())
                assert all(p.grad is None or bool(torch.isfinite(p.grad).all()) for p in layer.parameters())

    def test_gradients_reach_everything(self) -> None:
        """Every parameter and every input row has a gradient that is not 0."""
        for edge in self.widths():
            block, layer = random_block(9, 30), self.build(edge)
            h = self.rows(block).requires_grad_()
            _learn(self.run(layer, h, block))
            assert h.grad is not None and bool(h.grad.any(1).all())
            for name, p in layer.named_parameters():
                assert p.grad is not None and bool(p.grad.any()), name


def _learn(out: Tensor) -> None:
    out.square().sum().backward()


def close(found: Tensor | None, expected: Tensor | None) -> None:
    """Assert that tensors are equal to 1e-10 relative and 1e-12 absolute."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
