"""Neighbour sampling by hashes of public keys, so that a node's sample does not depend on the silo or host it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.random import combine, draw, stream
from isthmus.graph.stack import Adjacency, Stack
from isthmus.protect.drawn_lists import DrawnLists
from isthmus.wire.route import Asked

_POSITIVE = (1 << 63) - 1  # the bits of a hash without its sign
NO_SEED = torch.iinfo(torch.int64).max  # the slot of a row that is no seed: above all others


@dataclass(frozen=True)
class Sample:
    """A sampled graph: rows in ascending order, how many hops each lies from a seed, and the edges by direction."""

    rows: Tensor  # [r] stack rows
    depth: Tensor  # [r]
    incoming: Tensor  # positions in stack.incoming, ascending (so by target)
    outgoing: Tensor  # positions in stack.outgoing, ascending
    asks: tuple[Asked, ...] = ()  # rows asked of other silos at each hop, where sampling crosses the boundary


@dataclass(frozen=True)
class Draws:
    """What neighbours are drawn by: the seed, and if they are drawn ``anew`` at every step also step and hop.

    Otherwise a node's neighbours are fixed for the whole run, whatever the purpose, and a smaller fanout chooses a
    subset of those that a larger one does.

    Where draws are ``counted``, lists no longer than the fanout are not read as a whole but refilled: ``fanout`` draws
    with replacement. Lists below the book's floor are passed over.
    """

    seed: int
    anew: bool = True
    counted: DrawnLists | None = None

    def key(self, purpose: str, step: int, hop: int, side: int) -> int:
        """The random stream for edges of one direction (``side`` 0: incoming, 1: outgoing) at a step and hop."""
        if not self.anew:
            return stream(self.seed, "neighbours", side)
        return stream(self.seed, f"neighbours/{purpose}", step, hop, side)

    def read_whole(self) -> None:
        """Record, where draws are counted, that neighbour lists were read as a whole and not drawn from."""
        if self.counted is not None:
            self.counted.read_whole()


class Sampler:
    """Expands seeds hop by hop: of a node's edges the ``fanout`` with the smallest hash of (seed, step, hop, edge).

    Where draws are counted, a node with fewer edges gets ``fanout`` of them too: some are listed several times, and
    weigh so often in a mean.
    """

    def __init__(self, stack: Stack, fanout: Sequence[int], draws: Draws, directed: bool) -> None:
        self.stack, self.fanout, self.draws, self.directed = stack, tuple(fanout), draws, directed

    def sample(self, roots: Tensor, step: int, purpose: str = "train") -> Sample:
        """The sampled neighbourhood of ``roots``; every row is expanded once, at its smallest depth."""
        depth = torch.full((self.stack.rows,), len(self.fanout) + 1, dtype=torch.int8, device=roots.device)
        reached: list[Tensor] = []
        asks: list[Asked] = []
        picked: tuple[list[Tensor], list[Tensor]] = ([], [])
        frontier = self._reach(roots, 0, depth, reached, asks)
        sides = (self.stack.incoming, self.stack.outgoing)[: 1 + self.directed]
        for hop in range(len(self.fanout)):
            near = []
            for side, adjacency in enumerate(sides):
                at = self._pick(frontier, purpose, step, hop, side)
                picked[side].append(at)
                near.append(adjacency.near[at])
            frontier = self._reach(torch.cat(near), hop + 1, depth, reached, asks)
        rows = torch.cat(reached).sort().values
        empty = roots[:0]
        incoming = torch.cat(picked[0]).sort().values if picked[0] else empty
        outgoing = torch.cat(picked[1]).sort().values if picked[1] else empty
        return Sample(rows, depth[rows].long(), incoming, outgoing, tuple(asks))

    def _pick(self, rows: Tensor, purpose: str, step: int, hop: int, side: int = 0) -> Tensor:
        """Positions in one side's adjacency of the edges drawn for each of ``rows`` at a hop."""
        stack, fanout, book = self.stack, self.fanout[hop], self.draws.counted
        adjacency = stack.outgoing if side else stack.incoming
        key = self.draws.key(purpose, step, hop, side)
        if book is None or fanout < 0:
            self.draws.read_whole()
            return pick(adjacency, rows, fanout, key, stack.edge_keys)
        degree = adjacency.degree[rows]
        drawn = degree >= max(book.floor, 1)
        few, many = rows[drawn & (degree <= fanout)], rows[drawn & (degree > fanout)]
        if purpose == "train" or not book.again(key, stack.keys[rows], degree):
            book.skip(stack.ptr, rows[~drawn & (degree > 0)], side)
            for each, refilled in ((few, True), (many, False)):
                book.record(stack.ptr, each, adjacency.degree[each], fanout, side, refilled, self.draws.anew)
        again = refill(adjacency, few, fanout, key, stack.edge_keys, stack.keys)
        return torch.cat([again, pick(adjacency, many, fanout, key, stack.edge_keys)])

    def slots(self, slot: Tensor, sample: Sample) -> Tensor:
        """The ego slots of all rows (NO_SEED: none); a subclass adds those that other silos tell."""
        return slot

    def _reach(self, found: Tensor, hop: int, depth: Tensor, reached: list[Tensor], asks: list[Asked]) -> Tensor:
        """Mark rows that are new at this hop, and return those that this host expands next."""
        found = torch.unique(found)
        new = found[depth[found] > len(self.fanout)]
        depth[new] = hop
        reached.append(new)
        return new


def pick(adjacency: Adjacency, rows: Tensor, fanout: int, key: int, edge_keys: Tensor) -> Tensor:
    """Positions in the adjacency of at most ``fanout`` edges of each row (-1: all), without replacement."""
    degree = adjacency.degree[rows]
    start = adjacency.ptr[rows]
    many = (degree > fanout).nonzero().flatten() if fanout >= 0 else rows[:0]
    if not len(many):
        return integer_runs(start, degree)
    few = (degree <= fanout).nonzero().flatten()
    whole, many, size = integer_runs(start[few], degree[few]), rows[many], degree[many]
    at, row = shuffled(adjacency, many, key, edge_keys)
    rank = torch.arange(len(at), device=rows.device) - (size.cumsum(0) - size)[row]
    return torch.cat([whole, at[rank < fanout]])


def refill(adjacency: Adjacency, rows: Tensor, fanout: int, key: int, edge_keys: Tensor, keys: Tensor) -> Tensor:
    """Positions in the adjacency of ``fanout`` edges of each row, drawn with replacement; no row may be without any.

    The j-th draw of a row is a hash of (key, public key of the row, j), as a place among its edges in hashed order.
    """
    at, _ = shuffled(adjacency, rows, key, edge_keys)
    size = adjacency.degree[rows]
    numbers = torch.arange(fanout, device=rows.device).repeat(len(rows))
    hashes = draw(key, combine(keys[rows].repeat_interleave(fanout), numbers))
    first = size.cumsum(0) - size
    return at[first.repeat_interleave(fanout) + (hashes & _POSITIVE) % size.repeat_interleave(fanout)]


def shuffled(adjacency: Adjacency, rows: Tensor, key: int, edge_keys: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of all edges of ``rows``, row after row and hashed within a row; and the place in ``rows`` of each."""
    size = adjacency.degree[rows]
    at = integer_runs(adjacency.ptr[rows], size)
    by_hash = torch.argsort(draw(key, edge_keys[adjacency.edge[at]]))
    row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), size, output_size=len(at))
    return at[by_hash[torch.argsort(row[by_hash], stable=True)]], row


def integer_runs(start: Tensor, length: Tensor) -> Tensor:
    """The integers start[i] .. start[i] + length[i] - 1 for every i, one after the other."""
    first = length.cumsum(0) - length
    total = int(length.sum())
    return torch.arange(total, device=start.device) + torch.repeat_interleave(start - first, length, output_size=total)
