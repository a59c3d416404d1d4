"""A random graph of nobody's, and what a model says of it: by this FED-PUB's server tells how like two models are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from isthmus.core.random import stream
from isthmus.engine.parameter_sets import ParameterSets
from isthmus.engine.site import Site
from isthmus.federation.statistics import mean_log_degree
from isthmus.graph.graph import Graph, Schema
from isthmus.graph.silo import split_graph
from isthmus.graph.stack import build_stack
from isthmus.nn.edges import Edges
from isthmus.nn.model import GNN
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch, Batcher, Seeds


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
    """The random graph, laid out for one model at a time, and a copy of the classifier to put parameters into.

    What a model keeps to itself, such as masks, has starting values in the copy.
    """

    def __init__(self, site: Site, graph: Graph) -> None:
        module = site.learner.classifier.make()
        assert isinstance(module, GNN)
        module.reset(site.seed)
        self._net = module.to(site.device, site.dtype)
        self._sets = ParameterSets(module, 1, 1)
        [whole] = split_graph(graph, torch.zeros(graph.n, dtype=torch.int64), 1)
        stack = build_stack([whole], "drop", site.dtype, site.schema).to(site.device)
        module.set_degree(*mean_log_degree(site.wire, stack, agreed=False))
        none = torch.zeros(0, dtype=torch.int64, device=site.device)
        nobody = Seeds(none, none, (0, 0), 0, torch.zeros(1))
        config = site.model
        batcher = Batcher(stack, config.layers, config.directed, site.schema.target, config.ego, False, site.degrees)
        self._batch = batcher.whole(nobody, 0)

    @torch.no_grad()
    def answer(self, names: Sequence[str], values: Tensor) -> Tensor:
        """What the model with these parameters (one row of numbers) says of the graph: the mean row it ends with."""
        self._sets.load(names, values)
        return _last_rows(self._net, self._batch).mean(0)


def _last_rows(net: GNN, batch: Batch) -> Tensor:
    """The rows that the last layer makes of all nodes, before normalisation and activation: [nodes, width]."""
    h = net.embed(batch.x, batch.x_rows, batch.ego)
    edge: Edges | None = None
    for place, block in enumerate(batch.blocks):
        edge = net.edges(place, h, block, edge)
        rows = net.convolve(place, h, block, edge)
        h = net.finish(place, rows, block.targets, Pass(training=False))
    return rows
