"""Statistics of a split: sizes of silos, edges kept and cut, and how far each silo's labels are from all labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from isthmus.graph.graph import TRAIN, Graph
from isthmus.graph.partition import check_owner


@dataclass(frozen=True)
class SiloStats:
    """Statistics of one silo. An edge is inner if the silo owns both its ends, cross if it owns one.

    ``inner`` and ``cross`` count directed edges as stored; ``inner_pairs`` and ``cross_pairs`` count
    connected pairs of different nodes, whatever the direction and however many parallel edges, as published
    tables do. ``label_distance`` is the total variation distance between the silo's label distribution and
    the global one (0 equal, 1 disjoint), or with several yes/no tasks the mean difference of their positive
    rates.
    """

    silo: int
    nodes: int
    training: int  # training nodes; training edges that touch the silo where edges carry the labels
    inner: int
    cross: int
    inner_pairs: int
    cross_pairs: int
    label_distance: float


@dataclass(frozen=True)
class SplitStats:
    """Statistics of all silos, and totals, in which a cross edge counts once although it touches two silos."""

    silos: tuple[SiloStats, ...]
    nodes: int
    training: int
    edges: int
    cross: int
    pairs: int
    cross_pairs: int
    label_distance: float  # mean over silos

    @property
    def cut(self) -> float:
        """Share of connected pairs whose nodes belong to two silos (published tables: "missing links" over edges)."""
        return self.cross_pairs / max(self.pairs, 1)


def split_statistics(graph: Graph, owner: Tensor, silos: int) -> SplitStats:
    """Statistics of the split that gives node i to silo ``owner[i]``."""
    check_owner(graph, owner, silos)
    pairs = simple_pairs(graph.edge_index, graph.n)
    inner, cross = _edge_counts(owner, graph.edge_index, silos)
    inner_pairs, cross_pairs = _edge_counts(owner, pairs, silos)
    training, all_training = _training(graph, owner, silos)
    distance = _label_distance(graph, owner, silos)
    counts = (torch.bincount(owner, minlength=silos), training, inner, cross, inner_pairs, cross_pairs)
    rows = zip(*(count.tolist() for count in (*counts, distance)), strict=True)
    return SplitStats(
        silos=tuple(SiloStats(silo, *row) for silo, row in enumerate(rows)),
        nodes=graph.n,
        training=all_training,
        edges=graph.m,
        cross=int(cross.sum()) // 2,
        pairs=int(pairs.shape[1]),
        cross_pairs=int(cross_pairs.sum()) // 2,
        label_distance=float(distance.mean()),
    )


def simple_pairs(edge_index: Tensor, n: int) -> Tensor:
    """The connected pairs of different nodes, each once, the smaller row first: [2, pairs]."""
    low, high = torch.minimum(*edge_index), torch.maximum(*edge_index)
    code = torch.unique((low * n + high)[low != high])
    return torch.stack([code // n, code % n])


def _edge_counts(owner: Tensor, edges: Tensor, silos: int) -> tuple[Tensor, Tensor]:
    """The number of inner edges and of cross edges of each silo: [silos] each."""
    a, b = owner[edges]
    same = a == b
    inner = torch.bincount(a[same], minlength=silos)
    return inner, torch.bincount(torch.cat([a[~same], b[~same]]), minlength=silos)


def _holders(graph: Graph, owner: Tensor) -> tuple[Tensor, ...]:
    """The silos that know each label: the owners of nodes, or of edges' sources and of edges' targets.

    Where both ends of an edge have one owner, the second entry is -1.
    """
    if graph.schema.target == "node":
        return (owner,)
    source, target = owner[graph.edge_index]
    return source, torch.where(source == target, -1, target)


def _training(graph: Graph, owner: Tensor, silos: int) -> tuple[Tensor, int]:
    """The number of training nodes or edges that each silo knows [silos], and of all together."""
    split = graph.split if graph.schema.target == "node" else graph.edge_split
    counts = torch.zeros(silos, dtype=torch.int64)
    if split is None:
        return counts, 0
    for silo in _holders(graph, owner):
        counts += torch.bincount(silo[(split == TRAIN) & (silo >= 0)], minlength=silos)
    return counts, int((split == TRAIN).sum())


def _label_distance(graph: Graph, owner: Tensor, silos: int) -> Tensor:
    """The distance of each silo's label distribution from that of all labels: [silos]; 0 without labels."""
    y = graph.y if graph.schema.target == "node" else graph.edge_y
    if y is None or not len(y):
        return torch.zeros(silos, dtype=torch.float64)
    known, hits = _hits(y, len(graph.schema.labels))
    counts = torch.zeros(silos, hits.shape[1], dtype=torch.float64)
    totals = torch.zeros_like(counts)
    for silo in _holders(graph, owner):
        rows = silo >= 0
        counts.index_add_(0, silo[rows], hits[rows])
        totals.index_add_(0, silo[rows], known[rows])
    gap: Tensor = (counts / totals - hits.sum(0) / known.sum(0)).abs().nan_to_num(0.0)
    return gap.mean(1) if y.dim() == 2 else gap.sum(1) / 2


def _hits(y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Which labels are known, and which of them are positive: both [rows, classes or tasks], as numbers."""
    if y.dim() == 2:
        return (y >= 0).double(), (y == 1).double()
    known = (y >= 0).double()[:, None].expand(-1, classes)
    return known, one_hot(y.long().clamp(min=0), classes).double() * known
