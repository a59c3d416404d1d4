"""Port numbers of edges, by which a node tells its neighbours apart.

A node numbers its distinct in-neighbours from 0 in the order of their first edge, and separately its out-neighbours;
parallel edges share a port (Egressy et al., "Provably Powerful Graph Neural Networks for Directed Multigraphs", AAAI
2024).
"""

from __future__ import annotations

import torch
from torch import Tensor


def ports(keys: Tensor, source: Tensor, target: Tensor, time: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The in-port and the out-port of each edge: two tensors [m] int64.

    The in-port is the number of the edge's source among the in-neighbours of its target, the out-port the number of its
    target among the out-neighbours of its source. Ends are rows, whose public ``keys`` [rows] break ties of time, so
    that ports depend neither on the order of rows nor on which silo computes them. Without times all edges are
    simultaneous.
    """
    rank = torch.empty_like(keys)
    rank[torch.argsort(keys)] = torch.arange(len(keys), device=keys.device)
    src, dst = rank.index_select(0, source), rank.index_select(0, target)
    return _number(dst, src, len(keys), time), _number(src, dst, len(keys), time)


def _number(at: Tensor, other: Tensor, nodes: int, time: Tensor | None) -> Tensor:
    """The number of each edge's ``other`` end among the distinct neighbours of its ``at`` end: [m].

    Both ends are given by the rank of their keys among all ``nodes``.
    """
    pairs, place = (at * nodes + other).unique(return_inverse=True)  # in the order of (at, other)
    near = pairs // max(nodes, 1)
    order = torch.arange(len(pairs), device=at.device)
    if time is not None:
        latest = torch.full_like(pairs, torch.iinfo(torch.int64).max)
        first = latest.scatter_reduce(0, place, time.to(torch.int64), "amin")  # of parallel edges the earliest counts
        by_time = torch.argsort(first, stable=True)
        order = by_time[torch.argsort(near[by_time], stable=True)]
    port = torch.empty_like(pairs)
    counts = near.unique_consecutive(return_counts=True)[1]
    start = (counts.cumsum(0) - counts).repeat_interleave(counts)  # where the neighbours of each node begin
    port[order] = torch.arange(len(pairs), device=at.device) - start
    return port[place]
