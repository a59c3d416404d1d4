"""Linear maps between rows, each with its transpose: the only ways numbers travel along edges.

Autograd's own backward of a gather is a scatter with one addition for each edge. A sparse matrix product does
the same sum several times faster, in a fixed order on every device; so forward and backward are both written
as products here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isthmus.nn.block import Block

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")

Map = Callable[[Tensor], Tensor]


class _Map(torch.autograd.Function):
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
    out: Tensor = _Map.apply(x, there, back)  # type: ignore[no-untyped-call]
    return out


def csr(ptr: Tensor, index: Tensor, value: Tensor, columns: int) -> Tensor:
    """A sparse matrix from its rows; columns may repeat and need no order."""
    shape = (len(ptr) - 1, columns)
    return torch.sparse_csr_tensor(ptr, index, value, size=shape, check_invariants=False)


def transpose(index: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Row pointers of the transposed matrix, and where its entries stand in the original one."""
    ordered, order = torch.sort(index, stable=True)
    return torch.searchsorted(ordered, torch.arange(columns + 1, device=index.device)), order


def gather(rows: Tensor, block: Block) -> Tensor:
    """y_e = x_src(e): [sources, d] to [E, d]."""
    return linear_map(rows, lambda x: x.index_select(0, block.src), lambda g: _by_source(block, g.dtype) @ g)


def spread(rows: Tensor, block: Block) -> Tensor:
    """y_e = x_dst(e): [targets, d] to [E, d]."""
    return linear_map(rows, lambda x: x.index_select(0, block.dst), lambda g: _by_target(block, g.dtype) @ g)


def sum_edges(values: Tensor, block: Block) -> Tensor:
    """y_v = sum of x_e over the edges into v: [E, d] to [targets, d]."""
    return linear_map(
        values, lambda x: _by_target(block, x.dtype) @ x, lambda g: g.index_select(0, block.dst)
    )


def sum_rows(rows: Tensor, block: Block, weight: Tensor | None = None) -> Tensor:
    """y_v = sum of w_e x_src(e) over the edges into v: [sources, d] to [targets, d]; [E, d] is never made.

    ``weight`` [E] is a constant here.
    """
    return linear_map(
        rows, lambda x: _adjacency(block, x.dtype, weight) @ x, lambda g: _adjoint(block, g.dtype, weight) @ g
    )


def _adjacency(block: Block, dtype: torch.dtype, weight: Tensor | None) -> Tensor:
    if weight is not None:
        return csr(block.dst_ptr, block.src, weight.detach().to(dtype), len(block.sources))
    return _cached(
        block, "adjacency", dtype, lambda one: csr(block.dst_ptr, block.src, one, len(block.sources))
    )


def _adjoint(block: Block, dtype: torch.dtype, weight: Tensor | None) -> Tensor:
    ptr, order = _source_order(block)
    if weight is not None:
        value = weight.detach().to(dtype)
        return csr(ptr, block.dst[order], value[order], len(block.targets))
    return _cached(block, "adjoint", dtype, lambda one: csr(ptr, block.dst[order], one, len(block.targets)))


def _by_target(block: Block, dtype: torch.dtype) -> Tensor:
    """[targets, E]: which edges end at each target."""
    return _cached(
        block,
        "by_target",
        dtype,
        lambda one: csr(block.dst_ptr, torch.arange(len(one), device=one.device), one, len(one)),
    )


def _by_source(block: Block, dtype: torch.dtype) -> Tensor:
    """[sources, E]: which edges begin at each source."""
    ptr, order = _source_order(block)
    return _cached(block, "by_source", dtype, lambda one: csr(ptr, order, one, len(block.src)))


def _source_order(block: Block) -> tuple[Tensor, Tensor]:
    if "source_order" not in block.cache:
        block.cache["source_order"] = transpose(block.src, len(block.sources))
    found: tuple[Tensor, Tensor] = block.cache["source_order"]
    return found


def _cached(block: Block, name: str, dtype: torch.dtype, make: Map) -> Tensor:
    """A matrix of ones that follows from the edges alone: made once for a block."""
    key = f"{name} {dtype}"
    if key not in block.cache:
        block.cache[key] = make(torch.ones(len(block.src), dtype=dtype, device=block.src.device))
    found: Tensor = block.cache[key]
    return found
