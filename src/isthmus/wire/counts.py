"""Arithmetic of the ledger's books: messages counted by pair of parties, by step, and by party."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from isthmus.core.parcel import Traffic

if TYPE_CHECKING:  # loaded where tables are made, so that training needs no more than torch
    import pyarrow as pa

Sent = Sequence[tuple[Traffic, int]]  # messages, and the bytes of one of their rows
_PARTIES = 2**31  # more than a federation has
_BELOW = 2**30  # numbers of parties begin above -_BELOW: silos at 0, the server and devices of silos below


@dataclass(frozen=True)
class Counts:
    """How many messages, rows and bytes each sender sent to each receiver."""

    pairs: np.ndarray  # [n] sender and receiver as one number (`pair_numbers`), ascending
    counts: np.ndarray  # [n, 3] messages, rows, bytes

    @property
    def sender(self) -> np.ndarray:
        """Numbers of the parties that sent: [n]."""
        return self.pairs // _PARTIES - _BELOW

    @property
    def receiver(self) -> np.ndarray:
        """Numbers of the parties that received: [n]."""
        return self.pairs % _PARTIES - _BELOW

    @staticmethod
    def total(each: Sequence[Counts]) -> Counts:
        """The sum of counts, by pair; all are sorted together, which takes less than adding them one by one."""
        first, *others = each
        if all(np.array_equal(first.pairs, other.pairs) for other in others):
            return Counts(first.pairs, np.sum([one.counts for one in each], axis=0))
        return _summed(np.concatenate([one.pairs for one in each]), np.concatenate([one.counts for one in each]))

    def lines(self, before: Sequence[int], after: Sequence[int]) -> np.ndarray:
        """A line for each pair: ``before``, sender, receiver, ``after``, messages, rows, bytes."""
        fixed = [
            np.broadcast_to(np.array(part, dtype=np.int64), (len(self.pairs), len(part))) for part in (before, after)
        ]
        ends = np.stack([self.sender, self.receiver], 1)
        return np.concatenate([fixed[0], ends, fixed[1], self.counts], 1, dtype=np.int64)


def count(sent: Sent) -> Counts:
    """Messages, rows and bytes by pair; a `Traffic` that was sent several times (layer after layer) is read once."""
    alike: dict[int, tuple[Traffic, list[int]]] = {}  # by identity, with the bytes of a row each time
    for traffic, row_size in sent:
        alike.setdefault(id(traffic), (traffic, []))[1].append(row_size)
    each = [traffic for traffic, _ in alike.values()]
    sender, receiver, rows = (
        np.concatenate([getattr(one, name) for one in each]).astype(np.int64) for name in ("sender", "receiver", "rows")
    )
    lengths = [len(one.rows) for one in each]
    times, size = (np.repeat([how(sizes) for _, sizes in alike.values()], lengths) for how in (len, sum))
    return _summed(pair_numbers(sender, receiver), np.stack([times, rows * times, rows * size], 1))


def pair_numbers(sender: np.ndarray, receiver: np.ndarray) -> np.ndarray:
    """Sender and receiver as one number, in the order of (sender, receiver)."""
    numbers: np.ndarray = (sender.astype(np.int64) + _BELOW) * _PARTIES + receiver + _BELOW
    return numbers


def _summed(pairs: np.ndarray, counts: np.ndarray) -> Counts:
    """Counts with each pair once, ascending, from pairs in any order that may be listed several times."""
    if len(pairs) > 1 and not bool((pairs[1:] > pairs[:-1]).all()):
        order = np.argsort(pairs, kind="stable")
        pairs, counts = pairs[order], counts[order]
        first = np.flatnonzero(np.append(True, pairs[1:] > pairs[:-1]))
        pairs, counts = pairs[first], np.add.reduceat(counts, first)
    return Counts(pairs, counts)


def loads(counts: Counts) -> np.ndarray:
    """Bytes that each party sent and received: [parties, 3] of number, sent, received."""
    ends = counts.sender, counts.receiver
    first = min((int(each.min()) for each in ends if len(each)), default=0)
    size = 1 + max((int(each.max()) for each in ends if len(each)), default=first) - first
    seen = np.zeros(size, dtype=bool)
    whole = np.zeros((size, 3), dtype=np.int64)
    whole[:, 0] = np.arange(size) + first
    for column, each in enumerate(ends, 1):
        whole[:, column] = np.bincount(each - first, counts.counts[:, 2], size).astype(np.int64)
        seen[each - first] = True
    return whole[seen]


def total_of_loads(each: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of loads, each [parties, 3] of number, sent, received; parties ascending."""
    lines = np.concatenate([np.zeros((0, 3), dtype=np.int64), *each])
    numbers, place = np.unique(lines[:, 0], return_inverse=True)
    sums = np.zeros((len(numbers), 2), dtype=np.int64)
    np.add.at(sums, place, lines[:, 1:])
    return np.column_stack([numbers, sums])


def busiest(parties: np.ndarray) -> np.ndarray:
    """Of loads [parties, 3], the rows of the party that sent most and of the one that received most.

    The time that a step takes on a network depends on these two alone.
    """
    return parties[np.unique(parties[:, 1:].argmax(0))] if len(parties) else parties


def at_moment(when: Sequence[int], lines: np.ndarray) -> np.ndarray:
    """Lines with the columns epoch, step and purpose (``when``) put in front of each."""
    return np.concatenate([np.broadcast_to(np.array(when, dtype=np.int64), (len(lines), len(when))), lines], 1)


def loads_of(lines: Tensor) -> dict[tuple[int, ...], np.ndarray]:
    """Loads [parties, 3] of each (epoch, step, purpose), from lines that have these three columns in front."""
    return {tuple(when.tolist()): _lines_with(lines, (0, 1, 2), when)[:, 3:] for when in lines[:, :3].unique(dim=0)}


def sums_of(keys: Tensor, counts: Tensor) -> dict[tuple[int, ...], tuple[list[int], Counts]]:
    """Read the sums over steps of a checkpoint: {(purpose, kind, event, model): ([first epoch and step], counts)}."""
    found = {}
    parts = counts.numpy().copy()
    stops = keys[:, -1].cumsum(0).tolist()
    for (*key, epoch, step, length), stop in zip(keys.tolist(), stops, strict=True):
        here = parts[stop - length : stop]
        found[tuple(key)] = [epoch, step], Counts(here[:, 0], here[:, 1:])
    return found


def _lines_with(lines: Tensor, columns: Sequence[int], values: Tensor) -> np.ndarray:
    """The lines whose ``columns`` hold ``values``."""
    chosen: np.ndarray = lines[(lines[:, list(columns)] == values).all(1)].numpy()
    return chosen


def grouped(lines: Tensor, keys: int, how: str = "sum") -> Tensor:
    """Merge lines with equal first ``keys`` columns: the others are summed, or their largest is taken (``amax``)."""
    if not len(lines):
        return lines
    head = lines[:, :keys]
    low = head.amin(0)
    spans = (head.amax(0) - low + 1).tolist()
    number = torch.zeros(len(lines), dtype=torch.int64)
    for column, span in enumerate(spans):  # all keys as one number that sorts as they do
        number = number * span + head[:, column] - low[column]
    each, place = number.unique(return_inverse=True)
    head = head.new_empty(len(each), keys).index_copy_(0, place, head)
    rest = torch.zeros(len(head), lines.shape[1] - keys, dtype=lines.dtype)
    at = place[:, None].expand(-1, rest.shape[1])
    return torch.cat([head, rest.scatter_reduce(0, at, lines[:, keys:], how)], 1)


def as_lines(rows: Sequence[np.ndarray | Sequence[Sequence[int]]], width: int) -> Tensor:
    """Lists of lines joined into one table of whole numbers: [lines, width]."""
    parts = [np.asarray(part, dtype=np.int64).reshape(-1, width) for part in rows]
    return torch.from_numpy(np.concatenate([*parts, np.zeros((0, width), dtype=np.int64)]))


def as_table(lines: Tensor, columns: Sequence[str], names: Mapping[str, Callable[[int], str]]) -> pa.Table:
    """An Arrow table of whole numbers; in the columns that ``names`` has, its function gives the word of a number."""
    import pyarrow as pa

    found = {}
    for i, name in enumerate(columns):
        values = lines[:, i].numpy()
        if name in names:
            known, place = np.unique(values, return_inverse=True)
            words = np.array([names[name](value) for value in known.tolist()], dtype=object)
            found[name] = pa.array(words[place] if len(known) else [], pa.string())
        else:
            found[name] = pa.array(values, pa.int64())
    return pa.table(found)
