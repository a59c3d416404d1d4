"""Sampling for partial aggregates: a silo that draws a cross edge asks the owner of its source to add it to a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.graph.stack import Stack
from isthmus.sample.neighbours import Draws, Sample, Sampler
from isthmus.wire.route import Asked, Boundary
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class AskedEdges(Asked):
    """Cross edges into my silos' targets, and those that others asked of my silos; ``halo``, ``served`` are edges.

    A target that has cross edges has a slot, numbered within its silo. Owners of its neighbours see the slot instead of
    the target, of which they learn no more than the edges that they share with it.
    """

    target: Tensor  # [t] stack rows of my silos' targets, ascending
    slot: Tensor  # [t]
    held: Tensor  # [t] how many cross edges were asked for
    near: Tensor  # [t] how many neighbours these edges lead to: edges may be parallel
    served_slot: Tensor  # [b] the slot of each edge that was asked of my silos


class PartialSampler(Sampler):
    """Draws the sample of the whole graph, each node's neighbours by its owner; the fanout counts all neighbours.

    Only owned rows are reached: rows of other silos are computed and added up by their owners. ``boundary`` lists cross
    edges, not rows.
    """

    def __init__(self, stack: Stack, fanout: Sequence[int], draws: Draws, wire: Wire, boundary: Boundary) -> None:
        super().__init__(stack, fanout, draws, directed=False)
        if draws.counted is not None:
            raise IsthmusError(
                "train.draws=refill repeats edges, but owners of neighbours elsewhere add up each edge once; use "
                "train.draws=distinct, or exchange rows, as sync-sgd+fwd-bwd-le does."
            )
        self.wire, self.boundary = wire, boundary

    def sample(self, roots: Tensor, step: int, purpose: str = "train") -> Sample:
        """The rows that my silos compute, their inner edges, and at each hop the cross edges that were asked for."""
        depth = torch.full((self.stack.rows,), len(self.fanout) + 1, dtype=torch.int8, device=roots.device)
        reached: list[Tensor] = []
        picked, asks = [roots[:0]], list[Asked]()
        used = torch.zeros(len(self.wire.mine), dtype=torch.int64, device=roots.device)
        frontier = self._reach(roots, 0, depth, reached, asks)
        for hop in range(len(self.fanout)):
            at = self._pick(frontier, purpose, step, hop)
            near = self.stack.incoming.near[at]
            inner = self.stack.owned[near]
            picked.append(at[inner])
            cross = self.stack.incoming.edge[at[~inner]]
            asked = self.ask(cross[self.boundary.place[cross] >= 0], used)  # without those that the owner does not list
            asks.append(asked)
            found = torch.cat([near[inner], self.stack.ends[0][asked.served]])
            frontier = self._reach(found, hop + 1, depth, reached, asks)
        rows = torch.cat(reached).sort().values
        incoming = torch.cat(picked).sort().values
        return Sample(rows, depth[rows].long(), incoming, incoming[:0], tuple(asks))

    def ask(self, edges: Tensor, used: Tensor) -> AskedEdges:
        """Ask owners of their sources for cross edges; targets get the slots after those ``used`` [my silos] so far."""
        asked = self.wire.ask(self.boundary, edges)
        target, at, held = self.stack.ends[1][asked.halo].unique(return_inverse=True, return_counts=True)
        near = neighbours(at, self.stack.ends[0][asked.halo], len(target), self.stack.rows)
        silo = self.stack.silo_of(target)
        count = torch.bincount(silo, minlength=len(used))
        slot = torch.arange(len(target), device=target.device) + (used - count.cumsum(0) + count)[silo]
        used += count
        served, halo = asked.lots(self.wire.silos)
        told = self.wire.move(Kind.IDS, slot[at], halo, served)
        return AskedEdges(*asked.fields(), target, slot, held, near, told)

    def everything(self) -> AskedEdges:
        """All cross edges, for passes over the whole graph."""
        return self.ask(self.boundary.halo, self.boundary.halo.new_zeros(len(self.wire.mine)))


def neighbours(target: Tensor, source: Tensor, targets: int, rows: int) -> Tensor:
    """How many different sources each target has, parallel edges counted once: [targets]."""
    pairs = (target * rows + source).unique()  # as single numbers: many times faster than as columns
    return torch.bincount(pairs // rows, minlength=targets)
