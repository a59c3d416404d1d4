"""Vectors of whole numbers under masks that cancel in sums over a group (Bonawitz et al. 2017), and the groups.

Numbers are added modulo 2^64, not modulo a prime: int64 tensors wrap by themselves, so that no sum needs a reduction,
and eight bytes of a random stream are a uniform mask without a draw being thrown away. Nothing here is multiplied or
divided, which is what a prime would be for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError

GROUP = 64  # clients whose vectors are added before anybody reads them
LARGEST = 2**63 - 1  # the largest sum that an int64 holds


@dataclass(frozen=True)
class ClientGroups:
    """Clients 0 .. n-1 in runs: group i has the clients ``starts[i]`` up to, without it, ``starts[i + 1]``."""

    starts: tuple[int, ...]  # [groups + 1]
    asked: int  # the size that was asked for

    @property
    def runs(self) -> tuple[range, ...]:
        """The clients of each group."""
        return tuple(range(*ends) for ends in zip(self.starts[:-1], self.starts[1:], strict=True))

    @property
    def smallest(self) -> int:
        """The number of clients of the smallest group; 0 where there is no client."""
        return min(map(len, self.runs), default=0)

    @property
    def shortfall(self) -> str:
        """A sentence where a group is smaller than was asked for; empty where none is."""
        if self.smallest >= self.asked:
            return ""
        return f"There are {self.smallest} clients, so that sums are over {self.smallest}, not over {self.asked}."


def groups(n: int, size: int = GROUP) -> ClientGroups:
    """Divide ``n`` clients into groups of ``size``; the rest joins the last group, so that none is smaller.

    Fewer than ``size`` clients are one smaller group, and ``shortfall`` says so.
    """
    if n < 0 or size < 2:
        raise IsthmusError(f"{n} clients in groups of {size}: groups have 2 clients or more, else a sum is a vector.")
    count = max(n // size, min(n, 1))
    return ClientGroups((*(i * size for i in range(count)), n), size)


def largest_input(members: int) -> int:
    """The largest absolute value that each of ``members`` numbers may have, so that no sum of them wraps."""
    return LARGEST // members


def check_inputs(x: Tensor, members: int) -> None:
    """Refuse numbers whose sum over ``members`` vectors might wrap, and numbers that are not whole."""
    if x.dtype != torch.int64:
        raise IsthmusError(f"Numbers to be summed under masks are {x.dtype}; make whole numbers (int64) of them first.")
    most = largest_input(members)
    low, high = (int(each) for each in torch.aminmax(x)) if x.numel() else (0, 0)
    if low < -most or high > most:
        raise IsthmusError(
            f"Numbers to be summed over {members} vectors lie between {low:,} and {high:,}; a sum can wrap unless all "
            f"are within ±{most:,}: use a coarser step of the fixed point, or smaller groups."
        )


def pair_masks(member: int, streams: Iterable[tuple[int, Tensor]], width: int) -> Tensor:
    """The sum of a member's masks with others: +PRG(s_uv) where u < v, else -PRG(s_uv), modulo 2^64: [width].

    ``streams``: the number of each other member, and the words that both make of their common key.
    """
    total = torch.zeros(width, dtype=torch.int64)
    for other, words in streams:
        total.add_(words) if member < other else total.sub_(words)
    return total


def simulated_masks(secret: bytes, round: int, members: Sequence[int], width: int) -> tuple[Tensor, Tensor]:
    """Masks of one group whose keys follow from one secret: [members, width]; and their sum [width].

    Pairs cancel, so that the sum is that of the members' own masks, which an aggregator removes after it has added up
    the masked vectors. Whoever has the secret has all keys: this shows what an aggregator sees, and hides nothing.
    """
    count = len(members)
    if len(set(members)) < count:
        raise IsthmusError(f"Members {list(members)} of a group must differ.")
    first, second = torch.triu_indices(count, count, 1)
    name = b"isthmus masks" + secret + np.array([round, *members], dtype="<i8").tobytes()
    drawn = hashlib.shake_256(name).digest(8 * width * (len(first) + count))
    words = torch.from_numpy(np.frombuffer(drawn, dtype="<i8").copy()).reshape(-1, width)
    pairs, own = words[: len(first)], words[len(first) :]
    number = torch.tensor(members, dtype=torch.int64)
    pairs = torch.where((number[first] < number[second])[:, None], pairs, -pairs)
    return own.clone().index_add_(0, first, pairs).index_add_(0, second, pairs, alpha=-1), own.sum(0)
