"""The kernels for a GPU: each function launches a Triton program on tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isthmus.kernels import programs
from isthmus.kernels.messages import Activation, Messages

BLOCK = 256  # channels of one program


def moments(of: Messages) -> Tensor:
    """Mean, minimum, maximum and deviation of the messages at each target: [groups, targets, 4, width]."""
    out = of.rows.new_empty(of.groups, of.targets, 4, of.width)
    if of.targets:
        programs.moments_program[_grid(of.targets, of.rows)](*_inputs(of), out, *_sizes(of))
    return out


def moments_back(of: Messages, out: Tensor, grad: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of the messages [E, d], of the table, and of what all messages of a target share."""
    edges = of.rows.new_empty(len(of.src), of.rows.shape[1])
    common = None if of.common is None else torch.empty_like(of.common)
    if of.targets:
        ends = out, grad, edges, edges if common is None else common
        programs.moments_back_program[_grid(of.targets, of.rows)](*_inputs(of), *ends, *_sizes(of))
    if of.table is None or of.at is None:
        return edges, None, common
    # Adding rows in place would add in changing order; a product with how often each edge uses each entry does not.
    uses = edges.new_zeros(len(edges), len(of.table))
    uses.scatter_add_(1, of.at, edges.new_ones(1, 1).expand_as(of.at))
    return edges, uses.T @ edges, common


def gathered(edges: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
    """Sums of edge rows at their sources: [sources, d]."""
    out = edges.new_empty(len(ptr) - 1, edges.shape[1])
    if len(out):
        programs.gathered_program[_grid(len(out), edges)](edges, ptr, order, out, edges.shape[1], BLOCK)
    return out


def scale(x: Tensor, own: Tensor, count: Tensor, delta: Tensor) -> Tensor:
    """PNA's scaled sum of x [groups, rows, 3 width], plus own: [rows, groups * width]."""
    out = torch.empty_like(own)
    if len(own):
        sizes = len(own), own.shape[1], x.shape[2] // 3, BLOCK
        programs.scale_program[_grid(len(own), own)](x, own, count, delta, out, *sizes)
    return out


def scale_back(grad: Tensor, groups: int, count: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the ``x`` of ``scale``: [groups, rows, 3 width]."""
    rows, width = len(grad), grad.shape[1] // groups
    to = grad.new_empty(groups, rows, 3 * width)
    if rows:
        programs.scale_back_program[_grid(rows, grad)](grad, count, delta, to, rows, grad.shape[1], width, BLOCK)
    return to


def activate(h: Tensor, by: Activation) -> Tensor:
    """The rows after normalisation, ReLU and dropout: [n, d]."""
    out = torch.empty_like(h)
    if len(h):
        inputs = h, by.mean, by.scale, by.shift, by.silo, by.ids, out
        chance = by.key, by.bound, by.kept, by.kept < 65536
        programs.activate_program[_grid(len(h), h)](*inputs, h.shape[1], *_steps(by), _step(by.shift), *chance, BLOCK)
    return out


def activate_back(grad: Tensor, h: Tensor, y: Tensor, by: Activation) -> tuple[Tensor, Tensor]:
    """The gradient of h [n, d], and each row's part in the gradients of shift and scale [n, 2 d]."""
    to_h, parts = torch.empty_like(h), h.new_empty(len(h), 2 * h.shape[1])
    if len(h):
        inputs = grad, h, y, by.mean, by.scale, by.silo, to_h, parts
        programs.activate_back_program[_grid(len(h), h)](*inputs, h.shape[1], *_steps(by), by.kept, BLOCK)
    return to_h, parts


def hash_ids(key: int, ids: Tensor) -> Tensor:
    """The hash of each id with ``key``: int64, in the shape of ``ids``."""
    ids = ids.contiguous()
    out = torch.empty_like(ids)
    if ids.numel():
        programs.draw_program[(-(-ids.numel() // 1024),)](ids, out, key, ids.numel(), 1024)
    return out


def _steps(by: Activation) -> tuple[int, int]:
    return _step(by.mean), _step(by.scale)


def _step(x: Tensor) -> int:
    """The row stride of a tensor with a row for each silo; 0 where all silos share one row."""
    return x.shape[1] if len(x) > 1 else 0


def _inputs(of: Messages) -> tuple[Any, ...]:
    """The tensors that all programs on messages read; an absent one is never read, so another stands in for it."""
    floats = (of.rows if t is None else t for t in (of.values, of.table, of.common))
    return of.rows, of.src, of.ptr, of.src if of.at is None else of.at, *floats


def _sizes(of: Messages) -> tuple[Any, ...]:
    """The sizes and flags of messages, in the order in which the programs take them."""
    parts = of.lookups, of.values is not None, of.common is not None
    return of.targets, of.rows.shape[1], of.width, *parts, BLOCK


def _grid(rows: int, wide: Tensor) -> tuple[int, int]:
    """The launch grid: one program for each row and each block of channels."""
    return rows, -(-wide.shape[1] // BLOCK)
