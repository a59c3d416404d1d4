"""Neighbour sampling that gives the same sample wherever a node lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.random import draw, stream
from isthmus.graph.stack import Adjacency, Stack
from isthmus.wire.route import Asked

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
    """What the choice of a node's neighbours follows from: the seed, and where it is made ``anew`` the step and hop.

    Otherwise it stays as it is throughout a run, whatever the purpose, and a smaller fanout chooses some of those that
    a larger one does.
    """

    seed: int
    anew: bool = True

    def key(self, purpose: str, step: int, hop: int, side: int) -> int:
        """The stream that edges of one direction are drawn from."""
        if not self.anew:
            return stream(self.seed, "neighbours", side)
        return stream(self.seed, f"neighbours/{purpose}", step, hop, side)


class Sampler:
    """Expands seeds hop by hop: of a node's edges the ``fanout`` with the smallest hash of (seed, step, hop, edge)."""

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
        for hop, fanout in enumerate(self.fanout):
            near = []
            for side, adjacency in enumerate(sides):
                key = self.draws.key(purpose, step, hop, side)
                at = pick(adjacency, frontier, fanout, key, self.stack.edge_keys)
                picked[side].append(at)
                near.append(adjacency.near[at])
            frontier = self._reach(torch.cat(near), hop + 1, depth, reached, asks)
        rows = torch.cat(reached).sort().values
        empty = roots[:0]
        incoming = torch.cat(picked[0]).sort().values if picked[0] else empty
        outgoing = torch.cat(picked[1]).sort().values if picked[1] else empty
        return Sample(rows, depth[rows].long(), incoming, outgoing, tuple(asks))

    def slots(self, slot: Tensor, sample: Sample) -> Tensor:
        """The ego slots of all rows (NO_SEED: none), with those that other silos tell; here none do."""
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
        return spread(start, degree)
    few = (degree <= fanout).nonzero().flatten()
    whole, many, size = spread(start[few], degree[few]), rows[many], degree[many]
    at = spread(adjacency.ptr[many], size)
    by_hash = torch.argsort(draw(key, edge_keys[adjacency.edge[at]]))
    row = torch.repeat_interleave(torch.arange(len(many), device=rows.device), size, output_size=len(at))
    order = by_hash[torch.argsort(row[by_hash], stable=True)]
    rank = torch.arange(len(at), device=rows.device) - (size.cumsum(0) - size)[row]
    return torch.cat([whole, at[order[rank < fanout]]])


def spread(start: Tensor, length: Tensor) -> Tensor:
    """The integers start[i] .. start[i] + length[i] - 1 for every i, one after the other."""
    first = length.cumsum(0) - length
    total = int(length.sum())
    return torch.arange(total, device=start.device) + torch.repeat_interleave(start - first, length, output_size=total)
