"""The compiled C kernels for a CPU, called on tensors; rows are divided between as many threads as torch uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

from isthmus.kernels.messages import Activation, Messages
from isthmus.kernels.native import library

FEWEST = 1024  # rows of a thread, at least: fewer are not worth starting one


def moments(of: Messages) -> Tensor:
    """Mean, minimum, maximum and deviation of the messages at each target: [groups, targets, 4, width]."""
    out = of.rows.new_empty(of.groups, of.targets, 4, of.width)
    call, inputs = _function("moments", of.rows), _inputs(of)
    _over(of.targets, lambda first, last, _: call(first, last, *inputs, *_pointers(of.common, out)))
    return out


def moments_back(of: Messages, out: Tensor, grad: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of the messages [E, d], of the table, and of what all messages of a target share."""
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
    """PNA's scaled sum of x [groups, rows, 3 width], plus own: [rows, groups * width]."""
    out = torch.empty_like(own)
    call, inputs = _function("scale", x), _pointers(x, own, count, delta, out)
    _over(len(own), lambda first, last, _: call(first, last, len(own), len(x), x.shape[2] // 3, *inputs))
    return out


def scale_back(grad: Tensor, groups: int, count: Tensor, delta: Tensor) -> Tensor:
    """The gradient of the ``x`` of ``scale``: [groups, rows, 3 width]."""
    rows, width = len(grad), grad.shape[1] // groups
    to = grad.new_empty(groups, rows, 3 * width)
    call, inputs = _function("scale_back", grad), _pointers(grad, count, delta, to)
    _over(rows, lambda first, last, _: call(first, last, rows, groups, width, *inputs))
    return to


def activate(h: Tensor, by: Activation) -> Tensor:
    """The rows after normalisation, ReLU and dropout: [n, d]."""
    out = torch.empty_like(h)
    call = _function("activate", h)
    inputs = [*_pointers(h), *_stepped(by.mean), *_stepped(by.scale), *_stepped(by.shift), *_pointers(by.silo, by.ids)]
    chance = by.key, by.bound, by.kept
    _over(len(h), lambda first, last, _: call(first, last, h.shape[1], *inputs, *chance, out.data_ptr()))
    return out


def activate_back(grad: Tensor, h: Tensor, y: Tensor, by: Activation) -> tuple[Tensor, Tensor]:
    """The gradient of h [n, d], and each row's part in the gradients of shift and scale [n, 2 d]."""
    to_h, parts = torch.empty_like(h), h.new_empty(len(h), 2 * h.shape[1])
    call = _function("activate_back", h)
    inputs = [*_pointers(grad, h, y), *_stepped(by.mean), *_stepped(by.scale), *_pointers(by.silo)]
    ends = by.kept, *_pointers(to_h, parts)
    _over(len(h), lambda first, last, _: call(first, last, h.shape[1], *inputs, *ends))
    return to_h, parts


def hash_ids(key: int, ids: Tensor) -> Tensor:
    """The hash of each id with ``key``: int64, in the shape of ``ids``."""
    ids = ids.contiguous()
    out = torch.empty_like(ids)
    call, inputs = _of_words(library().draw), _pointers(ids, out)
    _over(ids.numel(), lambda first, last, _: call(first, last, key, *inputs))
    return out


def sum_near(x: Tensor, near: Tensor, ptr: Tensor, modular: bool) -> Tensor:
    """Sums of the int64 rows x[near[ptr[t]:ptr[t + 1]]] at each target: [targets, width].

    With ``modular`` they are sums modulo 2^61 - 1 of numbers below it; without, the caller knows that none overflows.
    """
    x, near, ptr = x.contiguous(), near.contiguous(), ptr.contiguous()
    out = x.new_empty(len(ptr) - 1, x.shape[1])
    call = _of_words(library().sums_modular if modular else library().sums_whole)
    inputs = _pointers(ptr, near, x, out)
    _over(len(out), lambda first, last, _: call(first, last, x.shape[1], *inputs))
    return out


def shared_out(rows: Tensor, copies: Tensor, key: bytes, coefficients: Sequence[int], shares: Tensor) -> None:
    """Write shares [messages, T + 1, width] of the rows that messages carry: T from a key's stream, and the last."""
    rows, copies = rows.contiguous(), copies.contiguous()
    words, numbers = torch.frombuffer(bytearray(key), dtype=torch.int32), torch.tensor(coefficients)
    width, degree = rows[:1].numel(), len(coefficients) - 1
    call, inputs = _of_words(library().shared_out), _pointers(words, copies, rows, numbers, shares)
    _over(len(copies), lambda first, last, _: call(first, last, degree, width, *inputs))


def chacha_words(key: bytes, words: int) -> Tensor:
    """The first words of the stream of a key: int64 [words]."""
    given, out = torch.frombuffer(bytearray(key), dtype=torch.int32), torch.empty(words, dtype=torch.int64)
    call, inputs = _of_words(library().chacha_words), _pointers(given, out)
    _over(words, lambda first, last, _: call(first, last, *inputs))
    return out


def _function(name: str, like: Tensor) -> Callable[..., None]:
    """The C function for the number format of ``like``."""
    return _of_words(library()[f"{name}_{str(like.dtype).removeprefix('torch.')}"])


def _of_words(function: Callable[..., None]) -> Callable[..., None]:
    """The C function as a Python function of 64-bit whole numbers: sizes and pointers."""
    return lambda *words: function(*(ctypes.c_int64(word) for word in words))


def _stepped(x: Tensor) -> tuple[int, int]:
    """Pointer and row stride of a tensor with a row for each silo; the stride is 0 where all silos share one row."""
    return _pointers(x)[0], x.shape[1] if len(x) > 1 else 0


def _inputs(of: Messages) -> list[int]:
    """The sizes and pointers of messages, in the order in which the C functions take them."""
    return [
        of.targets,
        of.groups,
        of.width,
        *_pointers(of.ptr, of.src, of.rows, of.values, of.table, of.at),
        of.lookups,
    ]


def _pointers(*tensors: Tensor | None) -> list[int]:
    """The addresses of tensors, 0 for None."""
    assert all(t is None or t.is_contiguous() for t in tensors)
    return [0 if t is None else t.data_ptr() for t in tensors]


def _jobs(rows: int) -> int:
    """The number of threads for so many rows."""
    return max(1, min(torch.get_num_threads(), rows // FEWEST))


def _over(rows: int, work: Callable[[int, int, int], None]) -> None:
    """Call ``work(first, last, job)`` for a range of rows in each thread, and wait for all."""
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
