"""Rows as an adversary computes them: by the run's model on the merged graph, without sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from isthmus.engine.forward import layers
from isthmus.engine.site import Site
from isthmus.graph.features import Features, SparseRows, take
from isthmus.graph.merged import merge
from isthmus.graph.stack import Adjacency, Stack, build_stack
from isthmus.methods.exchange.base import Exchange, LiveExchange
from isthmus.nn.norm import Pass
from isthmus.sample.batcher import Batcher
from isthmus.sample.batches import Batch, Seeds
from isthmus.train.training import Training

_COPIES = 200_000  # rows that are computed at once


class Context:
    """The merged graph of all silos, whose rows are computed with the current parameters of a training.

    The rows of a silo lie together, so that each is computed with its owner's parameters where silos have their own.
    """

    def __init__(self, training: Training) -> None:
        silos, schema = training.federation.silos, training.federation.schema
        whole = build_stack([merge(silos)], "drop", training.dtype, schema, training.ports)
        ptr = tuple(torch.tensor([0, *(silo.n for silo in silos)]).cumsum(0).tolist())
        self.stack = replace(whole, silos=tuple(silo.number for silo in silos), ptr=ptr)
        self.training = training
        self.site = training.stage.site
        self.owner = torch.repeat_interleave(torch.tensor(ptr).diff())

    def load(self, parameters: Mapping[str, Tensor]) -> None:
        """Compute rows with these parameters [sets, ...] from now on; those that are not named stay."""
        live = self.training.learner.classifier.sets.everything()
        for name, values in parameters.items():
            live[name].copy_(values)

    def features(self, rows: Tensor) -> Tensor:
        """The true features of some nodes: [t, f]."""
        return _dense(take(self.stack.x, rows))

    @torch.no_grad()
    def rows(self, layer: int) -> Tensor:
        """The rows of all nodes that enter layer ``layer``, or after the last layer leave it: [n, w]."""
        batch = self.batch(self.stack)
        return self.compute(batch, self.embedded(batch), layer)

    def around(self, targets: Tensor, layer: int) -> Around:
        """Targets in copies of their neighbourhoods, to compute their rows before a layer from their embeddings."""
        return Around(self, targets, layer)

    def together(self, targets: Tensor, layer: int) -> Iterator[Tensor]:
        """Yield places of targets in groups, as many at a time as memory holds copies of neighbourhoods for."""
        begin, size = 0, 0
        for number, target in enumerate(targets):
            rows = neighbourhoods(self.stack, target[None], layer, self.site.model.directed)[0].rows
            if size and size + rows > _COPIES:
                yield torch.arange(begin, number)
                begin, size = number, 0
            size += rows
        yield torch.arange(begin, len(targets))

    def batch(self, stack: Stack) -> Batch:
        """One batch of all rows of a stack, without seeds."""
        none, silos, model = torch.zeros(0, dtype=torch.int64), len(stack.ptr) - 1, self.site.model
        target = self.site.schema.target
        batcher = Batcher(stack, model.layers, model.directed, target, model.ego, False, self.site.degrees)
        return batcher.whole(Seeds(none, none, (0,) * (silos + 1), 0, torch.zeros(silos)), 0)

    def embedded(self, batch: Batch) -> Tensor:
        """The rows of a batch before the first layer."""
        first = self.site.net.embed(batch.x, batch.x_rows, batch.ego)
        assert isinstance(first, Tensor)
        return first

    def compute(self, batch: Batch, embedded: Tensor, layer: int) -> Tensor:
        """The rows of a batch that enter a layer, or after the last layer leave it, from those before the first."""
        if not layer:
            return embedded
        made = layers(self.site.net, _Begun(self.site, embedded), batch, Pass(False, self.site.seed))
        return next(islice(made, layer - 1, None))


class _Begun(LiveExchange):
    """An exchange by which nothing crosses, and whose passes begin with given embeddings."""

    def __init__(self, site: Site, embedded: Tensor) -> None:
        super().__init__(Exchange(), site)
        self._embedded = embedded

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """No layer is ready, and the first reads the given rows."""
        return 0, self._embedded


class Around:
    """Targets, each in its own copy of its neighbourhood, so that a change of one does not reach another.

    All other features are the true ones.
    """

    def __init__(self, context: Context, targets: Tensor, layer: int) -> None:
        stack, self._place = neighbourhoods(context.stack, targets, layer, context.site.model.directed)
        self._context, self._layer, self._batch = context, layer, context.batch(stack)

    def rows(self, parameters: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """A function from the targets' embeddings [t, w] to their rows before the layer, with given parameters."""
        context, batch, place = self._context, self._batch, self._place
        context.load(parameters)
        with torch.no_grad():
            others = context.embedded(batch)

        def compute(embedded: Tensor) -> Tensor:
            context.load(parameters)
            return context.compute(batch, others.index_copy(0, place, embedded), self._layer)[place]

        return compute


def neighbourhoods(stack: Stack, targets: Tensor, hops: int, directed: bool) -> tuple[Stack, Tensor]:
    """A stack with a copy of each target's neighbourhood of ``hops`` hops, and the targets' rows in it.

    Degrees, ports and owners are those of the whole graph.
    """
    copies = len(targets)
    known = frontier = targets * copies + torch.arange(copies)  # row v in copy i is v * copies + i
    edges = known[:0]
    for _ in range(hops):
        found = [_expand(side, frontier, copies) for side in (stack.incoming, stack.outgoing)[: 1 + directed]]
        edges = torch.cat([edges, *(edge for edge, _ in found)]).unique()
        reached = torch.cat([near for _, near in found]).unique()
        frontier = reached[~torch.isin(reached, known)]
        known = torch.cat([known, frontier])
    known = known.sort().values
    row, edge = known // copies, edges // copies
    ends = torch.searchsorted(known, stack.ends[:, edge] * copies + edges % copies)
    sides = [Adjacency.build(ends[to], ends[1 - to], None, len(row)) for to in (1, 0)]
    laid: dict[str, Any] = {"ends": ends, "incoming": sides[0], "outgoing": sides[1], "x": take(stack.x, row)}
    laid |= {name: getattr(stack, name)[row] for name in ("keys", "owned", "y", "split", "in_degree", "out_degree")}
    names = ("edge_keys", "edge_attr", "edge_y", "edge_split", "ports")
    laid |= {name: None if getattr(stack, name) is None else getattr(stack, name)[edge] for name in names}
    cut = replace(stack, ptr=stack.segments(row), feature_row=None, **laid)
    return cut, torch.searchsorted(known, targets * copies + torch.arange(copies))


def _expand(side: Adjacency, rows: Tensor, copies: int) -> tuple[Tensor, Tensor]:
    """The edges of rows and the rows at their other ends, each numbered within its copy."""
    row, number = rows // copies, rows % copies
    count = side.degree[row]
    number = number.repeat_interleave(count)
    begin = (side.ptr[row] - (count.cumsum(0) - count)).repeat_interleave(count)
    at = begin + torch.arange(len(begin))
    return side.edge[at] * copies + number, side.near[at] * copies + number


def _dense(x: Features) -> Tensor:
    return x.dense() if isinstance(x, SparseRows) else x
