"""The compiled kernels as autograd functions; ``kernels`` is the module that computes them on a device."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isthmus.kernels.messages import Activation, Messages
from isthmus.nn.block import Block, Rows
from isthmus.nn.maps import source_order
from isthmus.nn.sets import sums_by_silo


class _FusedMoments(torch.autograd.Function):
    """The autograd node of ``fused_moments``; messages are not stored but computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        values: Tensor | None,
        table: Tensor | None,
        common: Tensor | None,
        of: Messages,
        block: Block,
        kernels: ModuleType,
    ) -> Tensor:
        of = replace(of, rows=rows, values=values, table=table, common=common)
        out: Tensor = kernels.moments(of)
        ctx.save_for_backward(rows, values, table, common, out)
        ctx.of, ctx.block, ctx.kernels = replace(of, values=None, table=None, common=None), block, kernels
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, values, table, common, out = ctx.saved_tensors
        of = replace(ctx.of, rows=rows, values=values, table=table, common=common)
        edges, to_table, to_common = ctx.kernels.moments_back(of, out, grad.contiguous())
        to_rows = ctx.kernels.gathered(edges, *source_order(ctx.block))
        return to_rows, None if values is None else edges, to_table, to_common, None, None, None


def fused_moments(of: Messages, block: Block, kernels: ModuleType) -> Tensor:
    """Mean, minimum, maximum and deviation of the messages at each target: [groups, targets, 4, width]."""
    parts = (None if t is None else t.contiguous() for t in (of.rows, of.values, of.table, of.common))
    out: Tensor = _FusedMoments.apply(*parts, of, block, kernels)  # type: ignore[no-untyped-call]
    return out


class _Scale(torch.autograd.Function):
    """The autograd node of ``fused_scale``; no gradient for count and delta, which are constants."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: Tensor, count: Tensor, delta: Tensor, kernels: ModuleType) -> Tensor:
        ctx.save_for_backward(count, delta)
        ctx.groups, ctx.kernels = len(x), kernels
        out: Tensor = kernels.scale(x.contiguous(), own.contiguous(), count, delta)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.kernels.scale_back(grad.contiguous(), ctx.groups, *ctx.saved_tensors), grad, None, None, None


def fused_scale(x: Tensor, own: Tensor, count: Tensor, delta: Tensor, kernels: ModuleType) -> Tensor:
    """PNA's scalers: own + x_0 + x_1 log(d + 1) / delta + x_2 delta / log(d + 1), d being the count of edges.

    x is [groups, n, 3 width]; the result is [n, groups * width].
    """
    out: Tensor = _Scale.apply(x, own, count, delta, kernels)  # type: ignore[no-untyped-call]
    return out


class _Activate(torch.autograd.Function):
    """The autograd node of ``fused_activate``; entries whose result is positive are those that pass gradients on."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, mean: Tensor, scale: Tensor, shift: Tensor, by: Activation, rows: Rows, kernels: ModuleType
    ) -> Tensor:
        out: Tensor = kernels.activate(h, by)
        ctx.save_for_backward(h, mean, scale, shift, out)
        ctx.by, ctx.rows, ctx.kernels = by, rows, kernels
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, mean, scale, shift, out = ctx.saved_tensors
        to_h, parts = ctx.kernels.activate_back(grad.contiguous(), h, out, ctx.by)
        to_shift, to_scale = sums_by_silo(parts, ctx.rows).chunk(2, 1)
        ends = _like(-scale * to_shift, mean), _like(to_scale, scale), _like(to_shift, shift)
        return to_h, *ends, None, None, None


def _like(x: Tensor, shape: Tensor) -> Tensor:
    """Sums of each silo [silos, d], added up where ``shape`` shows that all silos share one row."""
    return x if len(x) == len(shape) else x.sum(0, keepdim=True)


def fused_activate(h: Tensor, by: Activation, rows: Rows, kernels: ModuleType) -> Tensor:
    """dropout(ReLU((h - mean) scale + shift)): [n, d], with gradients for h, mean, scale and shift."""
    out: Tensor = _Activate.apply(h.contiguous(), by.mean, by.scale, by.shift, by, rows, kernels)  # type: ignore[no-untyped-call]
    return out
