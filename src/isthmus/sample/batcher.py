"""From seeds to batches: the rows and edges that each layer computes on, of the whole graph or of a sample of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.graph.features import Features, take
from isthmus.graph.stack import Stack
from isthmus.nn.block import Block, Rows, side_by_side
from isthmus.sample.batches import Batch, LayerRows, Seeds
from isthmus.sample.neighbours import NO_SEED, Sample, Sampler
from isthmus.wire.route import Asked


@dataclass(frozen=True)
class _Side:
    """Edges of one direction, grouped by the row that they go towards."""

    forward: bool
    edge: Tensor  # [E] edge numbers
    near: Tensor  # [E] stack rows that they come from
    towards: Tensor  # [E] stack rows that they go to
    kept: Tensor | None = None  # [edges it was chosen from] bool

    def within(self, hops: int, depth: Tensor) -> _Side:
        """The edges towards rows at most ``hops`` hops from a seed."""
        kept = depth[self.towards] <= hops
        at = kept.nonzero().flatten()
        return _Side(self.forward, self.edge[at], self.near[at], self.towards[at], kept)


def _ego(slots: Tensor) -> Tensor:
    return torch.where(slots == NO_SEED, -1, slots)


class Batcher:
    """Makes batches out of seeds, on the whole stack or on samples of it."""

    def __init__(
        self,
        stack: Stack,
        layers: int,
        directed: bool,
        target: str,
        ego: bool,
        reads_halo: bool,
        degrees: bool,
        trim: bool = True,
    ) -> None:
        self.stack, self.layers, self.directed, self.target, self.ego = stack, layers, directed, target, ego
        self.reads_halo = reads_halo  # layers read rows of far ends
        self.halo = stack.halo  # halo rows come from their owners, if at all
        self.degrees = degrees  # the model reads degrees
        self.trim = trim
        self._whole: tuple[LayerRows, Block] | None = None

    def roots(self, seeds: Seeds) -> Tensor:
        """The rows that must be computed to score the seeds."""
        return seeds.index if self.target == "node" else self.stack.ends[:, seeds.index].flatten()

    def whole(self, seeds: Seeds, step: int) -> Batch:
        """All rows and all edges in every layer (full-batch training and evaluation)."""
        if self._whole is None:
            rows = torch.arange(self.stack.rows, device=self.stack.keys.device)
            rows = rows if self.reads_halo else rows[self.stack.owned]
            layout = self._layout([rows] * (self.layers + 1), ())
            self._whole = layout, self._block(layout, 0, self._sides(None))
        layout, block = self._whole
        x_rows = block.targets if self.stack.feature_row is None else Rows(self.stack.x_ptr, self.stack.keys[:0])
        inputs = self.stack.x, x_rows, self.stack.feature_row
        return self._batch(step, inputs, [block] * self.layers, layout, seeds, self.slots(seeds))

    def sampled(self, seeds: Seeds, sample: Sample, step: int, slots: Tensor | None = None) -> Batch:
        """Only the sampled graph; trimmed, layer l computes the rows at most layers - 1 - l hops from a seed."""
        if self.trim:
            alive = [sample.rows[sample.depth <= self.layers - layer] for layer in range(self.layers + 1)]
            layout = self._layout(alive, sample.asks)
            blocks = self._trimmed(layout, sample)
        else:
            layout = self._layout([sample.rows] * (self.layers + 1), sample.asks)
            blocks = [self._block(layout, 0, self._sides(sample))] * self.layers
        first = layout.held[0]
        inputs = take(self.stack.x, self._feature_rows(first)), self._rows(first), None
        return self._batch(step, inputs, blocks, layout, seeds, slots)

    def _layout(self, alive: list[Tensor], asks: tuple[Asked, ...]) -> LayerRows:
        held: list[Tensor] = []
        for layer, rows in enumerate(alive):
            same = layer > 0 and rows is alive[layer - 1]
            held.append(held[-1] if same else rows[self.stack.owned[rows]] if self.halo else rows)
        return LayerRows(alive, held, asks, self.trim)

    def _trimmed(self, layout: LayerRows, sample: Sample) -> list[Block]:
        """The block of each layer: the last layers have fewer edges, towards rows closer to the seeds."""
        depth = torch.full((self.stack.rows,), self.layers + 1, device=sample.rows.device)
        depth[sample.rows] = sample.depth
        sides, blocks = self._sides(sample), []
        for layer in range(self.layers):
            sides = [side.within(self.layers - 1 - layer, depth) for side in sides]
            blocks.append(self._block(layout, layer, sides))
        return blocks

    def _feature_rows(self, at: Tensor) -> Tensor:
        """The rows of x that stack rows use; where halo rows come from their owners, x holds owned rows only."""
        if self.halo:
            return self.stack.own_line[at]
        return at if self.stack.feature_row is None else self.stack.feature_row[at]

    def _sides(self, sample: Sample | None) -> list[_Side]:
        """The edges of a sample (None: all), incoming and for directed models outgoing ones too."""
        made = []
        for forward in (True, False)[: 1 + self.directed]:
            adjacency = self.stack.incoming if forward else self.stack.outgoing
            edge, near = adjacency.edge, adjacency.near
            at = None if sample is None else sample.incoming if forward else sample.outgoing
            if at is None and not self.reads_halo:
                at = self.stack.owned[near].nonzero().flatten()
            if at is not None:
                edge, near = edge[at], near[at]
            made.append(_Side(forward, edge, near, self.stack.ends[1 if forward else 0][edge]))
        return made

    def _block(self, layout: LayerRows, layer: int, sides: list[_Side]) -> Block:
        """The edges of one layer, between the ascending stack rows that it reads and computes."""
        s, t = layout.read[layer], layout.held[layer + 1]
        sources = self._rows(s)
        targets = sources if s is t else self._rows(t)
        own = None if s is t else torch.searchsorted(s, t)
        made = [self._edges(side, s, t, sources, targets, own) for side in sides]
        made[0].reverse = made[1] if self.directed else None
        return made[0]

    def _edges(self, side: _Side, s: Tensor, t: Tensor, sources: Rows, targets: Rows, own: Tensor | None) -> Block:
        ports = None if self.stack.ports is None else self.stack.ports.index_select(0, side.edge)
        degree = self.stack.in_degree if side.forward else self.stack.out_degree
        return Block(
            src=torch.searchsorted(s, side.near),
            dst=torch.searchsorted(t, side.towards),
            sources=sources,
            targets=targets,
            own=own,
            attr=None if self.stack.edge_attr is None else self.stack.edge_attr.index_select(0, side.edge),
            ports=ports if ports is None or side.forward else ports.flip(1),
            src_degree=degree[s] if self.degrees else None,
            dst_degree=degree[t] if self.degrees else None,
            kept=side.kept,
        )

    def _rows(self, at: Tensor) -> Rows:
        return Rows(self.stack.segments(at), self.stack.keys[at], self.stack.owned[at])

    def _batch(
        self,
        step: int,
        inputs: tuple[Features, Rows, Tensor | None],
        blocks: list[Block],
        layout: LayerRows,
        seeds: Seeds,
        slots: Tensor | None,
    ) -> Batch:
        node = self.target == "node"
        labels = self.stack.y if node else self.stack.edge_y
        assert labels is not None
        last = layout.held[-1] if node else layout.read[-1]
        roots = (seeds.index,) if node else tuple(self.stack.ends[:, seeds.index])
        keys = self.stack.keys if node else self.stack.edge_keys
        seed_rows = Rows(seeds.ptr, keys[seeds.index])
        return Batch(
            step=step,
            x=inputs[0],
            x_rows=inputs[1],
            feature_row=inputs[2],
            blocks=blocks,
            layout=layout,
            ends=tuple(torch.searchsorted(last, at) for at in roots),
            seed_edges=None if node else self._seed_edges(seeds, seed_rows),
            seed_rows=seed_rows,
            y=labels[seeds.index],
            ego=None if slots is None else _ego(slots[layout.held[0]]),
            seeds=seeds,
        )

    def _seed_edges(self, seeds: Seeds, rows: Rows) -> Block:
        attr, ports = (None if of is None else of[seeds.index] for of in (self.stack.edge_attr, self.stack.ports))
        return side_by_side(rows, attr, ports)

    def slots(self, seeds: Seeds) -> Tensor | None:
        """The smallest batch slot of each stack row (NO_SEED: none); None where the model has no ego ids."""
        if not self.ego:
            return None
        slot = torch.full((self.stack.rows,), NO_SEED, device=seeds.index.device)
        slots = seeds.slot if self.target == "node" else seeds.slot.repeat(2)
        return slot.scatter_reduce_(0, self.roots(seeds), slots.to(slot), "amin")


@dataclass(frozen=True)
class Ground:
    """What a pass runs on: what makes batches of a graph, and what samples it.

    ``place`` says where the rows of the layout, by which seeds are known, lie in that graph (None: where they are).
    """

    batcher: Batcher
    sampler: Sampler
    place: Tensor | None = None

    def batch(self, seeds: Seeds, step: int, purpose: str, whole: bool) -> Batch:
        """A batch of the seeds: the whole graph, or a sample around them."""
        at = seeds if self.place is None else replace(seeds, index=self.place[seeds.index])
        if whole:
            self.sampler.draws.read_whole()
            batch = self.batcher.whole(at, step)
        else:
            sample = self.sampler.sample(self.batcher.roots(at), step, purpose)
            slots = self.batcher.slots(at)
            if slots is not None and self.batcher.target == "edge":  # the ends of a seed may lie in two silos
                slots = self.sampler.slots(slots, sample)
            batch = self.batcher.sampled(at, sample, step, slots)
        return batch if at is seeds else replace(batch, seeds=seeds)
