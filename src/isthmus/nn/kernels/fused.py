"""The compiled aggregates as one autograd node."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isthmus.nn.block import Block
from isthmus.nn.maps import source_order


class _Moments(torch.autograd.Function):
    """Keeps the rows and the four aggregates; messages are made again on the way back, never stored."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        values: Tensor | None,
        table: Tensor | None,
        at: Tensor | None,
        block: Block,
        groups: int,
        kernels: ModuleType,
    ) -> Tensor:
        rows = rows.contiguous()
        values, table = (None if t is None else t.contiguous() for t in (values, table))
        out: Tensor = kernels.moments(rows, block.src, block.dst_ptr, groups, values, table, at)
        ctx.save_for_backward(rows, values, table, at, out)
        ctx.block, ctx.groups, ctx.kernels = block, groups, kernels
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, values, table, at, out = ctx.saved_tensors
        block, kernels = ctx.block, ctx.kernels
        inputs = rows, block.src, block.dst_ptr, ctx.groups, values, table, at
        edges, to_table = kernels.moments_back(*inputs, out, grad.contiguous())
        to_rows = kernels.gathered(edges, *source_order(block)) if ctx.needs_input_grad[0] else None
        return to_rows, edges if values is not None else None, to_table, None, None, None, None


def moments(
    rows: Tensor,
    values: Tensor | None,
    table: Tensor | None,
    at: Tensor | None,
    block: Block,
    groups: int,
    kernels: ModuleType,
) -> Tensor:
    """Mean, minimum, maximum and deviation of rows[src] + values + table[at] at each target.

    [groups, targets, 4, width]: channels lie in ``groups`` of equal width.
    """
    out: Tensor = _Moments.apply(rows, values, table, at, block, groups, kernels)  # type: ignore[no-untyped-call]
    return out
