"""The compiled kernels of the processor, called on tensors; ranges of rows go to as many threads as torch uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

from isthmus.kernels.messages import Activation, Messages
from isthmus.kernels.native import library

FEWEST = 1024  # rows for which another thread is worth its start


def moments(of: Messages) -> Tensor:
    """Mean, minimum, maximum and deviation at each target: [groups, targets, 4, width]."""
    out = of.rows.new_empty(of.groups, of.targets, 4, of.width)
    call, inputs = _function("moments", of.rows), _inputs(of)
    _over(of.targets, lambda first, last, _: call(first, last, *inputs, *_pointers(of.common, out)))
    return out


def moments_back(of: Messages, out: Tensor, grad: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of the messages [E, d], of the table, and of what is common to a target's edges."""
    edges = of.rows.new_empty(len(of.src), of.rows.shape[1])
    # Each thread has a table of its own; they are summed at the end.
    tables = None if of.table is None else of.table.new_zeros(_jobs(of.targets), *of.table.shape)
    common = None if of.common is None else torch.empty_like(of.common)
    call, inputs = _function("moments_back", of.rows), _inputs(of)

    def work(first: int, last: int, job: int) -> None:
        mine = None if tables is None else tables[job]
        call(first, last, *inputs, *_pointers(of.common, out, grad, edges, mine, common))

    _over(of.targets, work)
    return edges, None if tables is None else tables.sum(0), common


def gathered(edges: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
    """Sums of edge rows at their sources: [sources, d]."""
    out = edges.new_empty(len(ptr) - 1, edges.shape[1])
    call, inputs = _function("gathered", edges), _pointers(ptr, order, edges, out)
    _over(len(out), lambda first, last, _: call(first, last, edges.shape[1], *inputs))
    return out


def scale(x: Tensor, own: Tensor, count: Tensor, delta: Tensor) -> Tensor:
    """The scaled sum [rows, groups * width] of x [groups, rows, 3 width] and own."""
    out = torch.empty_like(own)
    call, inputs = _function("scale", x), _pointers(x, own, count, delta, out)
    _over(len(own), lambda first, last, _: call(first, last, len(own), len(x), x.shape[2] // 3, *inputs))
    return out


def scale_back(grad: Tensor, groups: int, count: Tensor, delta: Tensor) -> Tensor:
    """The gradient of x."""
    rows, width = len(grad), grad.shape[1] // groups
    to = grad.new_empty(groups, rows, 3 * width)
    call, inputs = _function("scale_back", grad), _pointers(grad, count, delta, to)
    _over(rows, lambda first, last, _: call(first, last, rows, groups, width, *inputs))
    return to


def activate(h: Tensor, by: Activation) -> Tensor:
    """Normalised, cut off at 0, and thinned out rows."""
    out = torch.empty_like(h)
    call = _function("activate", h)
    inputs = [*_pointers(h), *_stepped(by.mean), *_stepped(by.scale), *_stepped(by.shift), *_pointers(by.silo, by.ids)]
    chance = by.key, by.bound, by.kept
    _over(len(h), lambda first, last, _: call(first, last, h.shape[1], *inputs, *chance, out.data_ptr()))
    return out


def activate_back(grad: Tensor, h: Tensor, y: Tensor, by: Activation) -> tuple[Tensor, Tensor]:
    """The gradient of h, and each row's part in those of shift and scale: [n, 2 d]."""
    to_h, parts = torch.empty_like(h), h.new_empty(len(h), 2 * h.shape[1])
    call = _function("activate_back", h)
    inputs = [*_pointers(grad, h, y), *_stepped(by.mean), *_stepped(by.scale), *_pointers(by.silo)]
    ends = by.kept, *_pointers(to_h, parts)
    _over(len(h), lambda first, last, _: call(first, last, h.shape[1], *inputs, *ends))
    return to_h, parts


def draw(key: int, ids: Tensor) -> Tensor:
    """The hash of each id."""
    ids = ids.contiguous()
    out = torch.empty_like(ids)
    call, inputs = _of_words(library().draw), _pointers(ids, out)
    _over(ids.numel(), lambda first, last, _: call(first, last, key, *inputs))
    return out


def _function(name: str, like: Tensor) -> Callable[..., None]:
    return _of_words(library()[f"{name}_{str(like.dtype).removeprefix('torch.')}"])


def _of_words(function: Callable[..., None]) -> Callable[..., None]:
    return lambda *words: function(*(ctypes.c_int64(word) for word in words))


def _stepped(x: Tensor) -> tuple[int, int]:
    """A tensor of one row for each silo, or of one row for all: where it begins, and how far apart its rows are."""
    return _pointers(x)[0], x.shape[1] if len(x) > 1 else 0


def _inputs(of: Messages) -> list[int]:
    return [
        of.targets,
        of.groups,
        of.width,
        *_pointers(of.ptr, of.src, of.rows, of.values, of.table, of.at),
        of.lookups,
    ]


def _pointers(*tensors: Tensor | None) -> list[int]:
    assert all(t is None or t.is_contiguous() for t in tensors)
    return [0 if t is None else t.data_ptr() for t in tensors]


def _jobs(rows: int) -> int:
    return max(1, min(torch.get_num_threads(), rows // FEWEST))


def _over(rows: int, work: Callable[[int, int, int], None]) -> None:
    """Give each thread a range of rows."""
    jobs = _jobs(rows)
    ends = [rows * job // jobs for job in range(jobs + 1)]
    ranges = list(zip(ends, ends[1:], range(jobs), strict=False))
    if jobs == 1:
        work(*ranges[0])
    else:
        list(_pool(jobs).map(lambda each: work(*each), ranges))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
