"""Arithmetic in the prime field p = 2^61 - 1 on int64 tensors, and Lagrange shares of rows in it.

Elements are kept as canonical residues in [0, p). As 2^61 is 1 modulo p, a number is reduced by adding what lies above
its lower 61 bits to them; sums of up to four elements fit into int64 before that (4 (p - 1) < 2^63).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.kernels import compiled
from isthmus.protect.chacha import keystream

PRIME = 2**61 - 1
LARGEST_DEGREE = 3  # of the polynomial behind the shares
LARGEST_CONSTANT = 16
_HALF = 31  # bits of the lower half of an element; 30 remain above
_CHUNK = 1 << 22  # numbers that are gathered at once where rows are added in plain torch


def reduce(x: Tensor) -> Tensor:
    """The canonical residues of whole numbers: [0, p)."""
    return torch.remainder(x, PRIME)


def to_field(signed: Tensor) -> Tensor:
    """Whole numbers in (-p/2, p/2) as elements of the field; a number beyond is an error."""
    if signed.numel():
        low, high = (int(end) for end in signed.aminmax())
        if max(-low, high) > PRIME // 2:
            raise IsthmusError(
                f"Numbers from {low} to {high} do not fit the field of 2^61 - 1: they must lie within ±{PRIME // 2}. "
                "Use a coarser fixed-point step or a smaller bound."
            )
    return reduce(signed)


def from_field(x: Tensor) -> Tensor:
    """Elements of the field as whole numbers in (-p/2, p/2)."""
    return torch.where(x > PRIME // 2, x - PRIME, x)


def uniform(words: Tensor) -> Tensor:
    """Elements of the field from random 64-bit words (int64), in the shape of ``words``.

    The lower 61 bits of a word are the element; p itself stands for 0. So 0 is drawn with probability 2^-60 and every
    other element with 2^-61: the distance to the uniform distribution is below 2^-61.
    """
    lower = words & PRIME
    return lower.masked_fill_(lower == PRIME, 0)


def times(x: Tensor, constant: int) -> Tensor:
    """``constant`` times x modulo p, for elements x and a whole constant of at most 16 in size.

    The upper four bits of x are multiplied apart from the lower 57, so that neither product overflows; what of the
    upper product reaches 2^61 returns at the lower end.
    """
    if abs(constant) > LARGEST_CONSTANT:
        raise IsthmusError(f"Constants of the field are at most {LARGEST_CONSTANT} in size; got {constant}.")
    if abs(constant) <= 4:
        return reduce(x * constant)
    upper = (x >> 57) * constant
    return reduce((x & (2**57 - 1)) * constant + ((upper & 15) << 57) + (upper >> 4))


def combine(coefficients: Sequence[int], tensors: Sequence[Tensor]) -> Tensor:
    """The sum of coefficient times tensor modulo p, for tensors of elements and whole coefficients of at most 16."""
    pairs = list(zip(tensors, coefficients, strict=True))
    if sum(map(abs, coefficients)) <= 4:  # no sum overflows: one reduction at the end is enough
        total = tensors[0] * coefficients[0]
        for x, c in pairs[1:]:
            total.add_(x, alpha=c)
        return total.remainder_(PRIME)
    total = times(*pairs[0])
    for x, c in pairs[1:]:
        total.add_(times(x, c)).remainder_(PRIME)
    return total


def share_out(h: Tensor, shares: Tensor) -> Tensor:
    """Complete Lagrange shares [n, T + 1, w] of rows h [n, w]: the first T are there, uniform, and the last is written.

    With the polynomial g of degree T through g(0) = h and g(j) = z_j, j = 1..T, share i is g(i), i = 1..T + 1. The
    first T shares are therefore the z themselves, and the last is an alternating sum with binomials, for
    T = 1, 2, 3: 2 z1 - h, h - 3 z1 + 3 z2, and -h + 4 z1 - 6 z2 + 4 z3.

    Each coefficient is a unit modulo p. Whichever share is left out, the map from z to the other T shares is thus
    one-to-one for every h: where z is uniform, any T shares are uniform and independent of h. All T + 1 give h.
    """
    shares[:, -1] = combine(_of_the_last(shares.shape[1] - 1), (h, *shares[:, :-1].unbind(1)))
    return shares


def _of_the_last(degree: int) -> list[int]:
    """The coefficients of the row, and of shares 1 to T, in share T + 1."""
    return [(-1) ** (_degree(degree) - k) * math.comb(degree + 1, k) for k in range(degree + 1)]


def deal(h: Tensor, copies: Tensor, key: bytes, shares: Tensor) -> None:
    """Write shares [m, T + 1, w] of the rows h[copies], for elements h [n, w]; the first T come from a key's stream.

    The stream is that of ChaCha20; its words become elements, message by message, share by share.
    """
    low, high = (int(end) for end in copies.aminmax()) if len(copies) else (0, -1)
    if low < 0 or high >= len(h):
        raise IsthmusError(f"Messages must carry rows 0 to {len(h) - 1}; got {low} to {high}.")
    coefficients, degree = _of_the_last(shares.shape[1] - 1), shares.shape[1] - 1
    kernels = compiled(h.device) if h.device.type == "cpu" else None  # the GPU's module has no stream
    if kernels is not None:
        kernels.shared_out(h, copies, key, coefficients, shares)
        return
    drawn = shares[:, :degree]
    drawn.copy_(uniform(keystream(key, drawn.numel(), h.device)).reshape(drawn.shape))
    share_out(h.index_select(0, copies), shares)


def interpolate(shares: Tensor) -> Tensor:
    """The rows behind shares [n, T + 1, w], which are g(0): [n, w]. Sums of shares give sums of rows."""
    degree = _degree(shares.shape[1] - 1)
    coefficients = [(-1) ** (k + 1) * math.comb(degree + 1, k) for k in range(1, degree + 2)]
    return combine(coefficients, shares.unbind(1))


def _degree(found: int) -> int:
    if not 1 <= found <= LARGEST_DEGREE:
        raise IsthmusError(f"Shares have a degree T from 1 to {LARGEST_DEGREE}; got {found}.")
    return found


def add_rows(x: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
    """Sums modulo p at each target t of the rows x[near[ptr[t]:ptr[t + 1]]]: elements [n, ...] to [targets, ...]."""
    return _over_lists(x, near, ptr, modular=True)


def add_whole(x: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
    """Sums of signed whole rows over the same lists as ``add_rows``, without a modulus: [n, ...] to [targets, ...].

    The caller knows that no sum overflows int64.
    """
    return _over_lists(x, near, ptr, modular=False)


def _over_lists(x: Tensor, near: Tensor, ptr: Tensor, modular: bool) -> Tensor:
    """Sums of rows of any shape over lists of neighbours, compiled where the rows lie on a CPU."""
    _check_lists(x, near, ptr)
    rows = x.reshape(len(x), math.prod(x.shape[1:]))
    kernels = compiled(x.device) if x.device.type == "cpu" else None  # the GPU's module adds no whole numbers
    if kernels is not None:
        out: Tensor = kernels.sum_near(rows, near, ptr, modular)
    else:
        out = _modular_sums(rows, near, ptr) if modular else _sums(rows, near, ptr)
    return out.reshape(len(ptr) - 1, *x.shape[1:])


def _check_lists(x: Tensor, near: Tensor, ptr: Tensor) -> None:
    """Compiled code would read foreign memory where a list names a row that is not there."""
    if {x.dtype, near.dtype, ptr.dtype} != {torch.int64}:
        raise IsthmusError(f"Rows, near and ptr must be int64; got {x.dtype}, {near.dtype} and {ptr.dtype}.")
    if int(ptr[0]) != 0 or int(ptr[-1]) != len(near) or bool((ptr.diff() < 0).any()):
        raise IsthmusError(f"ptr must rise from 0 to the {len(near)} entries of near; got {ptr.tolist()[:9]} ...")
    if len(near) and not 0 <= int(near.min()) <= int(near.max()) < len(x):
        raise IsthmusError(f"near must name rows 0 to {len(x) - 1}; got {int(near.min())} to {int(near.max())}.")


def _modular_sums(rows: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
    """Sums modulo p in plain torch: the halves of each number are added apart, exact below 2^32 neighbours."""
    sums = _sums(torch.cat((rows >> _HALF, rows & (2**_HALF - 1)), 1), near, ptr)
    upper, lower = sums[:, : rows.shape[1]], sums[:, rows.shape[1] :]
    # upper * 2^31: its lower 30 bits move up, the rest returns at the lower end.
    moved = ((upper & (2**30 - 1)) << _HALF) + (upper >> 30)
    return reduce(moved + reduce(lower))


def _sums(rows: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
    """Sums of the listed rows at each target in plain torch: [targets, width]."""
    targets = torch.arange(len(ptr) - 1, device=ptr.device).repeat_interleave(ptr.diff())
    out = rows.new_zeros(len(ptr) - 1, rows.shape[1])
    edges = max(1, _CHUNK // max(1, rows.shape[1]))  # at once: all would make a matrix [E, width]
    for to, some in zip(targets.split(edges), near.split(edges), strict=True):
        out.index_add_(0, to, rows.index_select(0, some))
    return out
