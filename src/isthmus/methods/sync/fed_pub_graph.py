"""FED-PUB's random graph, and outputs of models on it, by which the server measures how alike two models are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from isthmus.core.random import stream
from isthmus.engine.parameter_sets import ParameterSets
from isthmus.engine.site import Site
from isthmus.federation.statistics import mean_log_degree
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph, Schema
from isthmus.graph.stack import build_stack
from isthmus.nn.edges import Edges
from isthmus.nn.model import GNN
from isthmus.nn.norm import Pass
from isthmus.nn.sets import drop_masks
from isthmus.sample.batcher import Batcher
from isthmus.sample.batches import Batch, Seeds

_AT_ONCE = 2**26  # bytes of features of the random graphs that are laid out


def random_graph(schema: Schema, blocks: int, nodes: int, density: float, seed: int) -> Graph:
    """Blocks of nodes of which any two in a block are neighbours with probability ``density``; none in different ones.

    Features of nodes and edges are standard normal. All of it follows from the seed and the sizes alone.
    """
    generator = torch.Generator().manual_seed(stream(seed, "random graph") % 2**63)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    total = blocks * nodes
    low, high = torch.triu_indices(nodes, nodes, offset=1)
    drawn = torch.rand(blocks, len(low), generator=generator, dtype=torch.float64) < density
    block, pair = drawn.nonzero().T
    ends = torch.stack([low[pair], high[pair]]) + block * nodes
    ends = torch.cat([ends, ends.flip(0)], 1)
    count = ends.shape[1]
    nothing = torch.zeros(count, dtype=torch.int64)
    return Graph(
        ids=np.arange(total),
        x=normal(total, schema.features),
        edge_index=ends,
        schema=schema,
        edge_attr=normal(count, schema.edge_features) if schema.edge_features else None,
        edge_time=nothing if schema.timed else None,
        edge_y=nothing,
        edge_split=nothing.to(torch.int8),
    )


class Questions:
    """The random graph, once for each of several models, and copies of the classifier to put their parameters into.

    The copies have no masks; what else a model keeps to itself has starting values. As many of ``models`` are asked at
    once as the features of their graphs fit into 64 MiB.
    """

    def __init__(self, site: Site, graph: Graph, models: int) -> None:
        module, config = site.learner.classifier.make(), site.model
        assert isinstance(module, GNN)
        size = graph.x.shape[0] * graph.x.shape[1] * site.dtype.itemsize
        self._net, self._nodes, self._once = module, graph.n, max(1, min(models, _AT_ONCE // max(size, 1)))
        drop_masks(module)
        module.reset(site.seed)
        module.to(site.device, site.dtype)
        self._sets = ParameterSets(module, self._once, self._once)
        [whole] = split_graph(graph, torch.zeros(graph.n, dtype=torch.int64), 1)
        stack = build_stack([whole] * self._once, "drop", site.dtype, site.schema, site.model.ports > 0).to(site.device)
        module.set_degree(*mean_log_degree(site.wire, stack, agreed=False))
        none = torch.zeros(0, dtype=torch.int64, device=site.device)
        nobody = Seeds(none, none, (0,) * (self._once + 1), 0, torch.zeros(self._once))
        batcher = Batcher(stack, config.layers, config.directed, site.schema.target, config.ego, False, site.degrees)
        self._batch = batcher.whole(nobody, 0)

    def answers(self, names: Sequence[str], models: Tensor) -> Tensor:
        """Outputs of models, given as parameters [n, numbers], on the graph: means of their last rows, [n, width]."""
        return torch.cat([self._answer(names, some) for some in models.split(self._once)])

    @torch.no_grad()
    def _answer(self, names: Sequence[str], models: Tensor) -> Tensor:
        """Outputs of at most as many models as there are copies of the classifier: [n, width]."""
        idle = self._once - len(models)
        self._sets.load(names, torch.cat([models, models[-1:].expand(idle, -1)]) if idle else models)
        rows = _last_rows(self._net, self._batch)
        return rows.reshape(self._once, self._nodes, -1).mean(1)[: len(models)]


def _last_rows(net: GNN, batch: Batch) -> Tensor:
    """The rows that the last layer makes of all nodes, before normalisation and activation: [nodes, width]."""
    h = net.embed(batch.x, batch.x_rows, batch.ego)
    edge: Edges | None = None
    for place, block in enumerate(batch.blocks):
        edge = net.edges(place, h, block, edge)
        rows = net.convolve(place, h, block, edge)
        h = net.finish(place, rows, block.targets, Pass(training=False))
    return rows
