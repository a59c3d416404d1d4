"""The nearest of given rows: in a table, among the rows that belong to a node, and among rows that other silos keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind
from isthmus.graph.features import Features, SparseRows
from isthmus.nn.maps import csr
from isthmus.wire.wire import Wire

ENTRIES = 2**21  # distances that are held in memory at a time
# Silos that a silo asks at a time. With more, rows of one step would fill the memory of a simulation; and blocks of
# many megabytes are taken from the system anew each time, which takes longer than to fill them.
AT_ONCE = 4


def differences(rows: Tensor, table: Features, at: Tensor) -> Tensor:
    """Rows less those rows of a table that are at the given places: z_i - x_at(i)."""
    if isinstance(table, Tensor):
        return rows - table[at]
    there = table.take(at)
    entries = there.row * table.width + there.index
    return rows.flatten().index_add(0, entries, there.value, alpha=-1).view_as(rows)


@torch.no_grad()
def nearest(rows: Tensor, table: Features) -> Tensor:
    """For each row the place of the nearest row in a table that has some: argmin_u ||z - x_u||^2, as [rows] places.

    ||z||^2 is the same for all u, so that ||x_u||^2 - 2 z x_u is compared instead.
    """
    lengths = _squared_lengths(table)
    found = [torch.zeros(0, dtype=torch.int64, device=rows.device)]
    for block in rows.split(_block(len(table))):
        found.append((lengths[:, None] - 2 * _products(table, block)).argmin(0))
    return torch.cat(found)


def _products(table: Features, rows: Tensor) -> Tensor:
    """Products of every row of a table with every given row: [table, rows]."""
    if isinstance(table, SparseRows):
        return csr(table.ptr, table.index, table.value, table.width) @ rows.T
    return table @ rows.T


def _squared_lengths(table: Features) -> Tensor:
    if isinstance(table, Tensor):
        return table.square().sum(1)
    return table.value.new_zeros(len(table)).index_add_(0, table.row, table.value.square())


def distances_to_groups(rows: Tensor, table: Tensor, groups: Tensor) -> Tensor:
    """Of each row the squared distance to the nearest row of every group, summed over groups: [rows].

    ``groups`` [S, size] are places in the table; a group with fewer rows names one of them several times. With c_j the
    nearest row of group j and c their mean, sum_j ||z - c_j||^2 = S ||z - c||^2 + sum_j ||c_j||^2 - S ||c||^2.
    """
    if not groups.numel():
        return rows.new_zeros(len(rows))
    with torch.no_grad():
        lengths = table.square().sum(1)
        chosen = torch.cat([_chosen(block, table, lengths, groups) for block in rows.split(_block(groups.numel()))])
        mean = chosen @ table / len(groups)
        spread = chosen @ lengths - len(groups) * mean.square().sum(1)
    return len(groups) * (rows - mean).square().sum(1) + spread


def _chosen(rows: Tensor, table: Tensor, lengths: Tensor, groups: Tensor) -> Tensor:
    """Which rows of a table are the nearest of their group, 1 or 0: [rows, table]."""
    away = lengths - 2 * rows @ table.T
    best = away[:, groups].argmin(2)
    places = groups.expand(len(rows), -1, -1).gather(2, best[:, :, None]).squeeze(2)
    return torch.zeros_like(away).scatter_(1, places, 1.0)


def _block(entries: int) -> int:
    """How many rows are compared at a time where each has so many distances."""
    return max(1, ENTRIES // max(entries, 1))


@torch.no_grad()
def nearest_of_pairs(rows: Tensor, table: Features, row: Tensor, entry: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest of the table's rows that each of ``rows`` is paired with: those in pairs, and their places.

    Pair i is of ``row[i]`` and ``entry[i]``, a place in the table.
    """
    steps = _block(rows.shape[1])
    away = [rows.new_zeros(0)]
    for r, e in zip(row.split(steps), entry.split(steps), strict=True):
        away.append(differences(rows[r], table, e).square().sum(1))
    distance = torch.cat(away)
    least = distance.new_full((len(rows),), torch.inf).scatter_reduce(0, row, distance, "amin")
    best = (distance == least[row]).nonzero().flatten()
    first = best.new_full((len(rows),), len(row)).scatter_reduce(0, row[best], best, "amin")
    some = (first < len(row)).nonzero().flatten()
    return some, entry[first[some]]


class Told(NamedTuple):
    """What other silos together say of some rows: sums over those that answered."""

    gradient: Tensor  # [n, width] of 2 (z - x_u), where x_u is the row of a silo that is nearest to z
    away: Tensor  # [n] of ||z - x_u||^2
    silos: Tensor  # [n] how many answered


def ask_others(wire: Wire, rows: Sequence[Tensor], tables: Sequence[Features]) -> list[Told]:
    """What other silos say of the rows that each of my silos generated, by the rows that they keep to themselves.

    ``rows`` [n, width] of each of my silos go to all other silos, which answer with the gradients of their squared
    distances to the nearest row in a table. ``tables`` are those of my silos; one whose table is empty answers nothing.
    """
    place = {silo: i for i, silo in enumerate(wire.mine)}
    found = [Told(torch.zeros_like(each), *each.new_zeros(2, len(each))) for each in rows]
    for pairs in _rounds(wire):
        asked = {(i, j): rows[place[i]] for i, j in pairs if i in place and len(rows[place[i]])}
        answers: dict[tuple[int, int], Tensor] = {}
        for j, letters in _by_receiver(wire.post_together(Kind.GENERATED, asked)).items():
            answers |= {(j, i): each for i, each in _answers(wire, letters, tables[place[j]]).items()}
        for i, letters in _by_receiver(wire.post_together(Kind.ROW_GRADIENTS, answers)).items():
            _add(wire, letters, found[place[i]])
    return found


def _answers(wire: Wire, letters: Mapping[int, Tensor], table: Features) -> dict[int, Tensor]:
    """What a silo that keeps a table says of the rows in letters, by their sender; nothing where the table is empty."""
    for sender, each in letters.items():
        _check_form(wire, sender, each, (len(each), table.shape[1]), "generated rows")
    rows = torch.cat(list(letters.values())).to(table.device)
    sizes = [len(each) for each in letters.values()]
    _check_numbers(wire, list(letters), rows.split(sizes), "generated rows")
    if not len(table):
        return {}
    gradients = 2 * differences(rows, table, nearest(rows, table))
    return dict(zip(letters, gradients.split(sizes), strict=True))


def _add(wire: Wire, letters: Mapping[int, Tensor], told: Told) -> None:
    """Add the gradients in letters, by their sender, to what was told before."""
    for sender, each in letters.items():
        _check_form(wire, sender, each, told.gradient.shape, "gradients of generated rows")
    gradients = torch.stack(list(letters.values())).to(told.gradient.device)
    _check_numbers(wire, list(letters), gradients, "gradients of generated rows")
    told.gradient.add_(gradients.sum(0))
    told.away.add_(gradients.square().sum((0, 2)) / 4)  # a gradient is twice the difference
    told.silos.add_(len(letters))


def _rounds(wire: Wire) -> Iterator[list[tuple[int, int]]]:
    """Every pair of different silos that are present, a few receivers of each silo at a time."""
    present = wire.members.present
    for first in range(1, len(present), AT_ONCE):
        further = range(first, min(first + AT_ONCE, len(present)))
        yield [(i, present[(at + more) % len(present)]) for at, i in enumerate(present) for more in further]


def _by_receiver(letters: Mapping[tuple[int, int], Tensor]) -> dict[int, dict[int, Tensor]]:
    """Letters by their receiver, and of each receiver by their sender."""
    found: dict[int, dict[int, Tensor]] = {}
    for (sender, receiver), rows in letters.items():
        found.setdefault(receiver, {})[sender] = rows
    return found


def _check_form(wire: Wire, sender: int, rows: Tensor, shape: Sequence[int], what: str) -> None:
    """Refuse rows of another form than is due, with the name of their sender."""
    if rows.shape != tuple(shape) or not rows.is_floating_point():
        raise PeerError(
            f"{wire.party(sender)} sent {what} of the form {rows.dtype} {list(rows.shape)}, where {list(shape)} "
            "numbers are due."
        )


def _check_numbers(wire: Wire, senders: Sequence[int], parts: Iterable[Tensor], what: str) -> None:
    """Refuse rows that are no finite numbers, with the name of their sender."""
    for sender, rows in zip(senders, parts, strict=True):
        if not math.isfinite(float(rows.sum())):
            raise PeerError(
                f"{wire.party(sender)} sent {what} that are not finite numbers: its training has diverged (a smaller "
                "train.lr may help), or it does not send what it should."
            )
