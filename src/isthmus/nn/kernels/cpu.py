"""The compiled kernels of the processor, called on tensors; ranges of rows go to as many threads as torch uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

from isthmus.nn.kernels.native import library

FEWEST = 1024  # rows for which another thread is worth its start


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
    targets, width = len(ptr) - 1, rows.shape[1] // groups
    out = rows.new_empty(groups, targets, 4, width)
    call = _function("moments", rows)
    inputs = _pointers(ptr, src, rows, values, table, at)
    sizes = targets, groups, width
    _over(targets, lambda first, last, _: call(first, last, *sizes, *inputs, _lookups(at), out.data_ptr()))
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
    targets, width = len(ptr) - 1, rows.shape[1] // groups
    edges = rows.new_empty(len(src), rows.shape[1])
    jobs = _jobs(targets)
    tables = None if table is None else table.new_zeros(jobs, *table.shape)  # one for each thread, summed at the end
    call = _function("moments_back", rows)
    inputs = _pointers(ptr, src, rows, values, table, at)

    def work(first: int, last: int, job: int) -> None:
        mine = 0 if tables is None else tables[job].data_ptr()
        ends = out.data_ptr(), grad.data_ptr(), edges.data_ptr(), mine
        call(first, last, targets, groups, width, *inputs, _lookups(at), *ends)

    _over(targets, work)
    return edges, None if tables is None else tables.sum(0)


def gathered(edges: Tensor, ptr: Tensor, order: Tensor) -> Tensor:
    """Sums of edge rows at their sources: [sources, d]."""
    sources, channels = len(ptr) - 1, edges.shape[1]
    out = edges.new_empty(sources, channels)
    call, inputs = _function("gathered", edges), _pointers(ptr, order, edges)
    _over(sources, lambda first, last, _: call(first, last, channels, *inputs, out.data_ptr()))
    return out


def _function(name: str, like: Tensor) -> Callable[..., None]:
    function: Callable[..., None] = library()[f"{name}_{str(like.dtype).removeprefix('torch.')}"]
    return lambda *words: function(*(ctypes.c_int64(word) for word in words))


def _pointers(*tensors: Tensor | None) -> list[int]:
    assert all(t is None or t.is_contiguous() for t in tensors)
    return [0 if t is None else t.data_ptr() for t in tensors]


def _lookups(at: Tensor | None) -> int:
    return 0 if at is None else at.shape[1]


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
