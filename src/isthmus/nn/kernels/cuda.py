"""The same kernels for a GPU, in Triton: one program for each target (or source) and a stretch of channels."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256  # channels of one program


@triton.jit  # type: ignore[untyped-decorator]
def _message(rows, src, values, table, at, e, c, seen, channels, LOOKUPS: tl.constexpr, VALUES: tl.constexpr):  # type: ignore[no-untyped-def]
    m = tl.load(rows + tl.load(src + e) * channels + c, mask=seen, other=0.0)
    if VALUES:
        m += tl.load(values + e * channels + c, mask=seen, other=0.0)
    for i in tl.static_range(LOOKUPS):
        m += tl.load(table + tl.load(at + e * LOOKUPS + i) * channels + c, mask=seen, other=0.0)
    return m


@triton.jit  # type: ignore[untyped-decorator]
def _moments(  # type: ignore[no-untyped-def]
    rows, src, ptr, values, table, at, out, targets, channels, width,
    LOOKUPS: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    begin, end = tl.load(ptr + v), tl.load(ptr + v + 1)
    real = out.dtype.element_ty
    total = tl.zeros([BLOCK], real)
    square = tl.zeros([BLOCK], real)
    low = tl.full([BLOCK], float("inf"), real)
    high = tl.full([BLOCK], float("-inf"), real)
    for e in range(begin, end):
        m = _message(rows, src, values, table, at, e, c, seen, channels, LOOKUPS, VALUES)
        total += m
        square += m * m
        low = tl.minimum(low, m)
        high = tl.maximum(high, m)
    count = tl.maximum(end - begin, 1).to(real)
    mean = total / count
    variance = square / count - mean * mean
    some = end > begin
    to = out + ((c // width) * targets + v) * 4 * width + c % width
    tl.store(to, mean, mask=seen)
    tl.store(to + width, tl.where(some, low, 0.0), mask=seen)
    tl.store(to + 2 * width, tl.where(some, high, 0.0), mask=seen)
    tl.store(to + 3 * width, tl.where(variance > 1e-5, tl.sqrt(tl.maximum(variance, 1e-5)), 0.0), mask=seen)


@triton.jit  # type: ignore[untyped-decorator]
def _moments_back(  # type: ignore[no-untyped-def]
    rows, src, ptr, values, table, at, out, grad, edges, targets, channels, width,
    LOOKUPS: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    v = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    begin, end = tl.load(ptr + v), tl.load(ptr + v + 1)
    real = out.dtype.element_ty
    place = ((c // width) * targets + v) * 4 * width + c % width
    mean = tl.load(out + place, mask=seen, other=0.0)
    low = tl.load(out + place + width, mask=seen, other=0.0)
    high = tl.load(out + place + 2 * width, mask=seen, other=0.0)
    std = tl.load(out + place + 3 * width, mask=seen, other=0.0)
    lows = tl.zeros([BLOCK], real)
    highs = tl.zeros([BLOCK], real)
    for e in range(begin, end):
        m = _message(rows, src, values, table, at, e, c, seen, channels, LOOKUPS, VALUES)
        lows += tl.where(m == low, 1.0, 0.0).to(real)
        highs += tl.where(m == high, 1.0, 0.0).to(real)
    count = tl.maximum(end - begin, 1).to(real)
    # Tied edges share equally: the order of edges makes no difference.
    to_low = tl.load(grad + place + width, mask=seen, other=0.0) / tl.maximum(lows, 1.0)
    to_high = tl.load(grad + place + 2 * width, mask=seen, other=0.0) / tl.maximum(highs, 1.0)
    to_std = tl.load(grad + place + 3 * width, mask=seen, other=0.0)
    deviation = tl.where(std > 0, to_std / (count * tl.where(std > 0, std, 1.0)), 0.0)
    shift = tl.load(grad + place, mask=seen, other=0.0) / count - deviation * mean
    for e in range(begin, end):
        m = _message(rows, src, values, table, at, e, c, seen, channels, LOOKUPS, VALUES)
        g = shift + deviation * m + tl.where(m == low, to_low, 0.0) + tl.where(m == high, to_high, 0.0)
        tl.store(edges + e * channels + c, g, mask=seen)


@triton.jit  # type: ignore[untyped-decorator]
def _gathered(edges, ptr, order, out, channels, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    s = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seen = c < channels
    total = tl.zeros([BLOCK], out.dtype.element_ty)
    for k in range(tl.load(ptr + s), tl.load(ptr + s + 1)):
        total += tl.load(edges + tl.load(order + k) * channels + c, mask=seen, other=0.0)
    tl.store(out + s * channels + c, total, mask=seen)


def moments(
    rows: Tensor,
    src: Tensor,
    ptr: Tensor,
    groups: int,
    values: Tensor | None,
    table: Tensor | None,
    at: Tensor | None,
) -> Tensor:
    """Mean, minimum, maximum and deviation at each target: [groups, targets, 4, width]."""
    targets, channels = len(ptr) - 1, rows.shape[1]
    out = rows.new_empty(groups, targets, 4, channels // groups)
    if targets:
        inputs = _inputs(rows, src, ptr, values, table, at)
        sizes = targets, channels, channels // groups, *_kinds(values, at), BLOCK
        _moments[_grid(targets, channels)](*inputs, out, *sizes)
    return out


def moments_back(
    rows: Tensor,
    src: Tensor,
    ptr: Tensor,
    groups: int,
    values: Tensor | None,
    table: Tensor | None,
    at: Tensor | None,
    out: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the messages [E, d], and of the table."""
    targets, channels = len(ptr) - 1, rows.shape[1]
    edges = rows.new_empty(len(src), channels)
    if targets:
        inputs = _inputs(rows, src, ptr, values, table, at)
        sizes = targets, channels, channels // groups, *_kinds(values, at), BLOCK
        _moments_back[_grid(targets, channels)](*inputs, out, grad, edges, *sizes)
    if table is None or at is None:
        return edges, None
    # Adding in place would add in changing order; a product does not.
    used = (torch.arange(len(table), device=at.device)[:, None, None] == at).sum(2).to(edges.dtype)
    return edges, used @ edges


def gathered(edges: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
    """Sums of edge rows at their sources: [sources, d]."""
    sources, channels = len(ptr) - 1, edges.shape[1]
    out = edges.new_empty(sources, channels)
    if sources:
        _gathered[_grid(sources, channels)](edges, ptr, order, out, channels, BLOCK)
    return out


def _inputs(
    rows: Tensor, src: Tensor, ptr: Tensor, values: Tensor | None, table: Tensor | None, at: Tensor | None
) -> tuple[Any, ...]:
    """What all kernels read; a tensor that is not there is never touched, so any pointer will do."""
    return rows, src, ptr, *(rows if t is None else t for t in (values, table)), src if at is None else at


def _kinds(values: Tensor | None, at: Tensor | None) -> tuple[int, bool]:
    return 0 if at is None else at.shape[1], values is not None


def _grid(rows: int, channels: int) -> tuple[int, int]:
    return rows, -(-channels // BLOCK)
