"""Linear maps between rows of nodes and rows of edges, each with its transpose as gradient.

Autograd's own backward of a gather is a scatter with one addition for each edge. On a CPU a sparse matrix product
computes that sum several times faster, and on a GPU a sum over sorted segments computes it in a fixed order. Both
directions of every map are therefore written in these ways here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from isthmus.nn.block import Block

for text in ("Sparse CSR tensor support is in beta", "Sparse invariant checks are implicitly disabled"):
    warnings.filterwarnings("ignore", message=text)

Map = Callable[[Tensor], Tensor]


class _LinearMap(torch.autograd.Function):
    """y = A x, with the gradient A^T g."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Map, back: Map) -> Tensor:
        ctx.there, ctx.back = there, back
        return there(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return linear_map(grads[0], ctx.back, ctx.there), None, None


def linear_map(x: Tensor, there: Map, back: Map) -> Tensor:
    """``there(x)`` for a linear map whose transpose is ``back``."""
    out: Tensor = _LinearMap.apply(x, there, back)  # type: ignore[no-untyped-call]
    return out


def csr(ptr: Tensor, index: Tensor, value: Tensor, columns: int) -> Tensor:
    """A sparse matrix from its rows; columns may repeat and need no order."""
    shape = (len(ptr) - 1, columns)
    return torch.sparse_csr_tensor(ptr, index, value, size=shape, check_invariants=False)


def transpose(index: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Row pointers of a transposed CSR matrix, and the places of its entries in the original matrix.

    On a CPU SciPy counts the entries of each column, several times faster than they are sorted: it transposes a matrix
    of one row that holds the places themselves.
    """
    if index.is_cuda:
        ordered, order = torch.sort(index, stable=True)
        return torch.searchsorted(ordered, torch.arange(columns + 1, device=index.device)), order
    row = csr_array((np.arange(len(index)), index.numpy(), np.array([0, len(index)])), shape=(1, columns)).tocsc()
    return torch.from_numpy(row.indptr.astype(np.int64)), torch.from_numpy(row.data)


def gather(rows: Tensor, block: Block) -> Tensor:
    """y_e = x_src(e): [sources, d] to [E, d]."""
    return linear_map(rows, lambda x: x.index_select(0, block.src), lambda g: _to_sources(g, block))


def gather_targets(rows: Tensor, block: Block) -> Tensor:
    """y_e = x_dst(e): [targets, d] to [E, d]."""
    return linear_map(rows, lambda x: x.index_select(0, block.dst), lambda g: _to_targets(g, block))


def sum_edges(values: Tensor, block: Block) -> Tensor:
    """y_v = sum of x_e over the edges into v: [E, d] to [targets, d]."""
    return linear_map(values, lambda x: _to_targets(x, block), lambda g: g.index_select(0, block.dst))


def sum_rows(rows: Tensor, block: Block, weight: Tensor | None = None) -> Tensor:
    """y_v = sum of w_e x_src(e) over the edges into v: [sources, d] to [targets, d]; w is a constant."""
    fixed = None if weight is None else weight.detach()
    return linear_map(rows, lambda x: _along(x, block, fixed), lambda g: _against(g, block, fixed))


def sum_lists(x: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
    """y_t = sum of x_i over the rows i in near[ptr[t]:ptr[t + 1]]: [n, d] to [len(ptr) - 1, d], without a gradient."""
    if x.is_cuda:
        return _segments(x.index_select(0, near), ptr)
    return csr(ptr, near, torch.ones(len(near), dtype=x.dtype), len(x)) @ x


def select(table: Tensor, at: Tensor) -> Tensor:
    """y_i = table[at_i], for a small table and many rows."""

    def back(g: Tensor) -> Tensor:
        if not g.is_cuda:
            return g.new_zeros(len(table), g.shape[1]).index_add_(0, at, g)
        # On a GPU index_add adds in changing order; a product does not.
        return (torch.arange(len(table), device=g.device)[:, None] == at).to(g.dtype) @ g

    return linear_map(table, lambda x: x.index_select(0, at), back)


def some_rows(x: Tensor, at: Tensor) -> Tensor:
    """y_i = x[at_i], where no row is taken twice."""

    def back(g: Tensor) -> Tensor:
        return g.new_zeros(len(x), g.shape[1]).index_copy_(0, at, g)

    return linear_map(x, lambda rows: rows.index_select(0, at), back)


def _to_targets(x: Tensor, block: Block) -> Tensor:
    """Sums of edge rows at their targets: [E, d] to [targets, d]."""
    if x.is_cuda:
        return _segments(x, block.dst_ptr)

    def make(one: Tensor) -> Tensor:
        return csr(block.dst_ptr, torch.arange(len(one)), one, len(one))

    return _cached(block, "to_targets", x.dtype, make) @ x


def _to_sources(x: Tensor, block: Block) -> Tensor:
    """Sums of edge rows at their sources: [E, d] to [sources, d]."""
    ptr, order = source_order(block)
    if x.is_cuda:
        return _segments(x.index_select(0, order), ptr)
    return _cached(block, "to_sources", x.dtype, lambda one: csr(ptr, order, one, len(one))) @ x


def _along(x: Tensor, block: Block, weight: Tensor | None) -> Tensor:
    """Weighted sums of source rows at targets: [sources, d] to [targets, d]."""
    if x.is_cuda:
        return _segments(_scaled(x.index_select(0, block.src), weight), block.dst_ptr)

    def make(value: Tensor) -> Tensor:
        return csr(block.dst_ptr, block.src, value, len(block.sources))

    return (_cached(block, "along", x.dtype, make) if weight is None else make(weight)) @ x


def _against(g: Tensor, block: Block, weight: Tensor | None) -> Tensor:
    """Weighted sums of target rows at sources, the transpose of ``_along``: [targets, d] to [sources, d]."""
    if g.is_cuda:
        return _to_sources(_scaled(g.index_select(0, block.dst), weight), block)
    ptr, order = source_order(block)

    def make(value: Tensor) -> Tensor:
        return csr(ptr, block.dst[order], value, len(block.targets))

    return (_cached(block, "against", g.dtype, make) if weight is None else make(weight[order])) @ g


def _segments(x: Tensor, ptr: Tensor) -> Tensor:
    """Sums of the rows between consecutive pointers, on a GPU: [len(ptr) - 1, d].

    A cuSPARSE product is no alternative: it refuses a matrix with more entries than places, which parallel edges can
    make, and adds the entries of a long row in changing order.
    """
    return torch.segment_reduce(x.contiguous(), "sum", offsets=ptr, axis=0, unsafe=True)


def _scaled(x: Tensor, weight: Tensor | None) -> Tensor:
    return x if weight is None else weight[:, None] * x


def source_order(block: Block) -> tuple[Tensor, Tensor]:
    """The edges grouped by source: pointers [sources + 1] into an order of the edges [E]."""
    if "source_order" not in block.cache:
        block.cache["source_order"] = transpose(block.src, len(block.sources))
    found: tuple[Tensor, Tensor] = block.cache["source_order"]
    return found


def _cached(block: Block, name: str, dtype: torch.dtype, make: Map) -> Tensor:
    """The sparse matrix that ``make`` builds from ones, made once for a block and number format."""
    key = f"{name} {dtype}"
    if key not in block.cache:
        block.cache[key] = make(torch.ones(len(block.src), dtype=dtype, device=block.src.device))
    found: Tensor = block.cache[key]
    return found


@dataclass(frozen=True)
class Lookup:
    """y_e = sum over l of table[at[e, l]], for a small table and many edges."""

    table: Tensor  # [entries, d]
    at: Tensor  # [E, lookups] int64

    def each(self) -> Tensor:
        """The looked-up sums of all edges: [E, d]."""
        found = [select(self.table, at) for at in self.at.unbind(1)]
        return found[0] if len(found) == 1 else torch.stack(found).sum(0)
