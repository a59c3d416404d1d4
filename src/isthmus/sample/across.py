"""Sampling across the boundary: a silo that reaches a halo row asks the owner, which draws that node's neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.graph.stack import Stack
from isthmus.sample.neighbours import Draws, Sample, Sampler
from isthmus.wire.route import Asked, Boundary
from isthmus.wire.wire import Wire


class JointSampler(Sampler):
    """Silos together draw the sample that one would draw on the whole graph; ids of asked nodes travel, not features.

    The owner expands a node once a step, and the silo that asked never receives that node's neighbours. Since every
    hop is taken by all silos together, a node's depth is its depth in the whole sampled graph.
    """

    def __init__(
        self, stack: Stack, fanout: Sequence[int], draws: Draws, directed: bool, wire: Wire, boundary: Boundary
    ) -> None:
        super().__init__(stack, fanout, draws, directed)
        self.wire, self.boundary = wire, boundary

    def _reach(self, found: Tensor, hop: int, depth: Tensor, reached: list[Tensor], asks: list[Asked]) -> Tensor:
        new = super()._reach(found, hop, depth, reached, asks)
        mine = self.stack.owned[new]
        asked = self.wire.ask(self.boundary, new[~mine])
        asks.append(asked)
        served = super()._reach(asked.served, hop, depth, reached, asks)
        return torch.cat([new[mine], served])

    def slots(self, slot: Tensor, sample: Sample) -> Tensor:
        """The ego slot of each row, after owners were told those of far ends of seed edges; the smallest counts."""
        asked = sample.asks[0]  # the ends of seed edges are asked for before the first hop
        served, halo = asked.lots(self.wire.silos)
        told = self.wire.move(Kind.IDS, slot[asked.halo], halo, served)
        return slot.scatter_reduce(0, asked.served, told, "amin")
