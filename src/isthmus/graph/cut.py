"""A whole graph cut into its silos: each gets the nodes that it owns and every edge that touches them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.random import keys_of
from isthmus.core.tensors import by_value
from isthmus.graph.features import take
from isthmus.graph.graph import UNUSED, Graph
from isthmus.graph.silo import Silo, taken


def split_graph(graph: Graph, owner: Tensor, silos: int, names: Sequence[str] | None = None) -> list[Silo]:
    """The silos of a whole graph whose node i belongs to silo ``owner[i]``; a cross edge goes to both its silos."""
    if len(owner) != graph.n:
        raise IsthmusError(f"The owner vector has {len(owner)} entries for {graph.n} nodes; give one for each node.")
    if graph.n and (int(owner.min()) < 0 or int(owner.max()) >= silos):
        raise IsthmusError(f"Owners lie in {int(owner.min())}..{int(owner.max())}; allowed are 0..{silos - 1}.")
    names = names or [f"silo-{i}" for i in range(silos)]
    order, sizes = by_value(owner, silos)
    nodes = order.split(sizes)
    touching, narrow = _touching(graph.edge_index, owner, silos), owner.to(torch.int32)
    seen = torch.empty(graph.n, dtype=torch.int64)
    return [_cut(graph, narrow, i, names[i], nodes[i], touching[i], seen) for i in range(silos)]


def _touching(edge_index: Tensor, owner: Tensor, silos: int) -> list[Tensor]:
    """For each silo the edges that touch its nodes, ascending."""
    narrow = owner.to(torch.int32)
    source, target = (narrow.index_select(0, end) for end in edge_index)
    both = torch.stack([target, torch.where(source == target, silos, source)], 1)  # an edge's owners, side by side
    order, counts = by_value(both.flatten(), silos + 1)
    return list((order >> 1).split(counts))[:silos]


def _cut(graph: Graph, owner: Tensor, number: int, name: str, nodes: Tensor, edges: Tensor, seen: Tensor) -> Silo:
    """One silo of a graph: its ``nodes`` and the ``edges`` that touch them.

    ``seen`` [n] holds any values, and is written to: afterwards the row of each node that the silo knows.
    """
    ends = torch.cat([end.index_select(0, edges) for end in graph.edge_index])
    halo = _distinct(ends.masked_select(owner.index_select(0, ends) != number), seen)
    halo = halo[torch.argsort(keys_of(graph.ids[halo.numpy()]), stable=True)]
    known = torch.cat([nodes, halo])
    seen.scatter_(0, known, torch.arange(len(known)))
    y = torch.full((len(nodes),), -1) if graph.y is None else graph.y[nodes]
    split = torch.full((len(nodes),), UNUSED, dtype=torch.int8) if graph.split is None else graph.split[nodes]
    return Silo(
        number=number,
        name=name,
        schema=graph.schema,
        ids=graph.ids[nodes.numpy()],
        x=take(graph.x, nodes),
        y=y,
        split=split,
        halo_ids=graph.ids[halo.numpy()],
        halo_owner=owner[halo].long(),
        edge_index=seen.index_select(0, ends).reshape(2, -1),
        edge_attr=taken(graph.edge_attr, edges),
        edge_time=taken(graph.edge_time, edges),
        edge_y=taken(graph.edge_y, edges),
        edge_split=taken(graph.edge_split, edges),
        notes=graph.notes,
        edge_ids=None if graph.edge_ids is None else graph.edge_ids[edges.numpy()],
        node_encoding=graph.node_encoding,
        edge_encoding=graph.edge_encoding,
    )


def _distinct(nodes: Tensor, seen: Tensor) -> Tensor:
    """Each of ``nodes`` once: everybody writes its place into ``seen``, and those whose place stands there stay."""
    place = torch.arange(len(nodes))
    seen.scatter_(0, nodes, place)
    return nodes[seen.index_select(0, nodes) == place]
