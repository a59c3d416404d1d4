"""Small things that torch leaves to its callers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def stacked(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Equal tensors under each other: [parts, ...]; without any, an empty one for parts such as ``like``."""
    return torch.stack(list(parts)) if parts else like.new_zeros(0, *like.shape)


def by_value(value: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """Places ordered by the number 0..count-1 that stands there, and ascending for each; and how often each stands.

    Narrow numbers are sorted in one or two passes, in time that is linear in their number.
    """
    narrow = torch.int8 if count < 2**7 else torch.int16 if count < 2**15 else torch.int64
    return torch.argsort(value.to(narrow), stable=True), torch.bincount(value, minlength=count).tolist()


def renumbered(rows: Tensor, ptr: Sequence[int], onto: Sequence[int]) -> Tensor:
    """Rows [n] of parts that begin at ``ptr``, as rows of the same parts where these begin at ``onto``."""
    if tuple(ptr) == tuple(onto):
        return rows
    here, there = (torch.tensor(each, dtype=torch.int64, device=rows.device) for each in (ptr, onto))
    if not len(rows):  # a host without silos has nobody's part of a stack
        return rows
    return rows + (there - here)[torch.searchsorted(here[1:], rows, right=True)]


def keep_freed_blocks() -> None:
    """Have the C library keep blocks that are freed, rather than return them to the system and fetch them anew.

    The GNU C library keeps as much as the largest block that was ever freed (up to 32 MiB): one such block is enough.
    Without it, a step on a small graph pays for new pages at every intermediate result (5 to 15 % of its time).
    """
    torch.empty(31 << 20, dtype=torch.uint8)
