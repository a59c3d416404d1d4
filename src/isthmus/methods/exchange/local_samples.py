"""Sampling for layer-wise exchange with local batches: an owner serves only rows that are in its own sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.graph.stack import Stack
from isthmus.sample.neighbours import Draws, Sample, Sampler
from isthmus.wire.route import Boundary
from isthmus.wire.wire import Wire


class ServedSampler(Sampler):
    """Each silo samples alone; a row crosses at layer l if owner and reader both have it within layers - l hops."""

    def __init__(
        self, stack: Stack, fanout: Sequence[int], draws: Draws, directed: bool, wire: Wire, boundary: Boundary
    ) -> None:
        super().__init__(stack, fanout, draws, directed)
        self.wire, self.boundary = wire, boundary

    def sample(self, roots: Tensor, step: int, purpose: str = "train") -> Sample:
        """The local sample, and for each hop the rows that both sides have from that hop on."""
        sample = super().sample(roots, step, purpose)
        depth = torch.full((self.stack.rows, 1), len(self.fanout) + 1, device=roots.device)
        depth[sample.rows, 0] = sample.depth
        asked = self.wire.ask(self.boundary, sample.rows[~self.stack.owned[sample.rows]])
        served, halo = asked.lots(self.wire.silos)
        here, there = depth[asked.halo], depth[asked.served]
        halo_hop = torch.maximum(here, self.wire.move(Kind.IDS, there, served, halo)).flatten()
        served_hop = torch.maximum(there, self.wire.move(Kind.IDS, here, halo, served)).flatten()
        hops = range(len(self.fanout) + 1)  # a row that one side does not have lies beyond them
        return replace(sample, asks=tuple(asked.marked(halo_hop == hop, served_hop == hop) for hop in hops))
