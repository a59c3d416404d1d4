"""From seeds to what a model computes on: ranks, batches and blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.graph.features import Features, take
from isthmus.graph.stack import Adjacency, Stack
from isthmus.nn.block import Block, Rows
from isthmus.sample.neighbours import Sample


@dataclass(frozen=True)
class Seeds:
    """What a step learns from: stack rows (or edges) in ascending order, each with its slot in the batch.

    ``count`` is the number of seeds of the whole federation in this step.
    """

    index: Tensor  # [s] stack rows, or edge numbers ordered by the silo that scores them
    slot: Tensor  # [s] place in the batch, for ego ids
    ptr: tuple[int, ...]  # by silo
    count: int

    def counts(self) -> Tensor:
        """Seeds of each of my silos."""
        return torch.tensor(self.ptr).diff()


@dataclass(frozen=True)
class Batch:
    """Everything a forward pass needs. Blocks go from the widest (first layer) to the seeds' own rows (last)."""

    step: int
    x: Features
    x_rows: Rows
    feature_row: Tensor | None  # the row of x that each row of layer 0 uses (None: its own)
    rows: Rows  # of layer 0
    blocks: list[Block]
    ends: tuple[Tensor, ...]  # where the seeds (one tensor), or both ends of seed edges, stand in the last rows
    seed_attr: Tensor | None  # edge features of seed edges
    seed_rows: Rows
    y: Tensor
    ego: Tensor | None
    seeds: Seeds


class Batcher:
    """Makes batches out of seeds, on the whole stack or on samples of it."""

    def __init__(self, stack: Stack, layers: int, directed: bool, target: str, ego: bool) -> None:
        self.stack, self.layers, self.directed, self.target, self.ego = stack, layers, directed, target, ego
        self._whole: tuple[Rows, Block] | None = None

    def roots(self, seeds: Seeds) -> Tensor:
        """The rows that must be computed to score the seeds."""
        return seeds.index if self.target == "node" else self.stack.ends[:, seeds.index].flatten()

    def whole(self, seeds: Seeds, step: int) -> Batch:
        """All rows and all edges in every layer (full-batch training and evaluation)."""
        if self._whole is None:
            everything = torch.arange(self.stack.rows, device=self.stack.keys.device)
            rows = Rows(self.stack.ptr, self.stack.keys, self.stack.owned)
            block = self._block(self.stack.incoming, None, everything, everything, rows, rows, None)
            if self.directed:
                block.reverse = self._block(self.stack.outgoing, None, everything, everything, rows, rows, None)
            self._whole = rows, block
        rows, block = self._whole
        position = torch.arange(self.stack.rows, device=self.stack.keys.device)
        x_rows = rows if self.stack.feature_row is None else Rows(self.stack.x_ptr, self.stack.keys[:0])
        inputs = self.stack.x, x_rows, self.stack.feature_row
        return self._batch(step, inputs, rows, [block] * self.layers, position, seeds)

    def sampled(self, seeds: Seeds, sample: Sample, step: int) -> Batch:
        """Only the sampled graph; layer l computes the rows that lie at most layers - 1 - l hops from a seed."""
        alive = [sample.rows[sample.depth <= self.layers - layer] for layer in range(self.layers + 1)]
        rows = [self._rows(at) for at in alive]
        blocks = [
            self._sampled_block(sample, layer, alive[layer], alive[layer + 1], rows[layer], rows[layer + 1])
            for layer in range(self.layers)
        ]
        position = torch.full((self.stack.rows,), -1, device=sample.rows.device)
        position[alive[-1]] = torch.arange(len(alive[-1]), device=sample.rows.device)
        used = alive[0] if self.stack.feature_row is None else self.stack.feature_row[alive[0]]
        inputs = take(self.stack.x, used), rows[0], None
        return self._batch(step, inputs, rows[0], blocks, position, seeds, alive[0])

    def _sampled_block(self, sample: Sample, layer: int, s: Tensor, t: Tensor, sources: Rows, targets: Rows) -> Block:
        depth = torch.full((self.stack.rows,), self.layers + 1, device=s.device)
        depth[sample.rows] = sample.depth
        made = []
        for adjacency, at in ((self.stack.incoming, sample.incoming), (self.stack.outgoing, sample.outgoing)):
            towards = self.stack.ends[1 if adjacency is self.stack.incoming else 0][adjacency.edge[at]]
            near = at[depth[towards] <= self.layers - 1 - layer]
            made.append(self._block(adjacency, near, s, t, sources, targets, torch.searchsorted(s, t)))
            if not self.directed:
                return made[0]
        made[0].reverse = made[1]
        return made[0]

    def _block(
        self,
        adjacency: Adjacency,
        at: Tensor | None,
        s: Tensor,
        t: Tensor,
        sources: Rows,
        targets: Rows,
        own: Tensor | None,
    ) -> Block:
        """The edges ``at`` of an adjacency (None: all) between the ascending stack rows ``s`` and ``t``."""
        forward = adjacency is self.stack.incoming
        edge, near = (adjacency.edge, adjacency.near) if at is None else (adjacency.edge[at], adjacency.near[at])
        towards = self.stack.ends[1 if forward else 0][edge]
        whole = own is None
        attr = self.stack.edge_attr
        ports = self.stack.ports[edge]
        degree = adjacency.degree
        return Block(
            src=near if whole else torch.searchsorted(s, near),
            dst=towards if whole else torch.searchsorted(t, towards),
            sources=sources,
            targets=targets,
            own=own,
            attr=None if attr is None else attr[edge],
            ports=ports if forward else ports.flip(1),
            src_degree=degree if whole else degree[s],
            dst_degree=degree if whole else degree[t],
        )

    def _rows(self, at: Tensor) -> Rows:
        return Rows(self.stack.segments(at), self.stack.keys[at], self.stack.owned[at])

    def _batch(
        self,
        step: int,
        inputs: tuple[Features, Rows, Tensor | None],
        rows: Rows,
        blocks: list[Block],
        position: Tensor,
        seeds: Seeds,
        at: Tensor | None = None,
    ) -> Batch:
        node = self.target == "node"
        ends = (position[seeds.index],) if node else tuple(position[self.stack.ends[:, seeds.index]])
        labels = self.stack.y if node else self.stack.edge_y
        assert labels is not None
        attr = None if node or self.stack.edge_attr is None else self.stack.edge_attr[seeds.index]
        keys = self.stack.keys if node else self.stack.edge_keys
        return Batch(
            step=step,
            x=inputs[0],
            x_rows=inputs[1],
            feature_row=inputs[2],
            rows=rows,
            blocks=blocks,
            ends=ends,
            seed_attr=attr,
            seed_rows=Rows(seeds.ptr, keys[seeds.index]),
            y=labels[seeds.index],
            ego=self._ego(seeds, at) if self.ego else None,
            seeds=seeds,
        )

    def _ego(self, seeds: Seeds, at: Tensor | None) -> Tensor:
        """Which slot each layer-0 row has in the batch, -1 for rows that are no seed (or no end of one)."""
        slot = torch.full((self.stack.rows,), -1, device=seeds.index.device)
        slots = seeds.slot if self.target == "node" else seeds.slot.repeat(2)
        slot[self.roots(seeds)] = slots
        return slot if at is None else slot[at]
