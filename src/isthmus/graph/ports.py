"""Port numbers of edges, by which a node tells its neighbours apart.

A node numbers its distinct in-neighbours from 0 in the order of their first edge, and separately its out-neighbours;
parallel edges share a port (Egressy et al., "Provably Powerful Graph Neural Networks for Directed Multigraphs", AAAI
2024).
"""

from __future__ import annotations

import torch
from torch import Tensor


def ports(src_key: Tensor, dst_key: Tensor, time: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The in-port and the out-port of each edge: two tensors [m] int64.

    The in-port is the number of the edge's source among the in-neighbours of its target, the out-port the number of its
    target among the out-neighbours of its source. Nodes are given by their public keys, which also break ties of time,
    so that ports depend neither on the order of rows nor on which silo computes them. Without times all edges are
    simultaneous.
    """
    when = torch.zeros_like(src_key) if time is None else time
    return _number(dst_key, src_key, when), _number(src_key, dst_key, when)


def _number(at: Tensor, other: Tensor, time: Tensor) -> Tensor:
    """The number of each edge's ``other`` end among the distinct neighbours of its ``at`` end: [m]."""
    by_pair = _order(at, other, time)  # the first edge of each pair is its earliest
    first = _starts(at[by_pair]) | _starts(other[by_pair])
    head = by_pair[first]
    by_time = _order(at[head], time[head], other[head])
    place = torch.arange(len(head), device=at.device)
    start = _starts(at[head][by_time])
    port = torch.empty_like(place)
    port[by_time] = place - torch.where(start, place, 0).cummax(0).values if len(head) else place
    out = torch.empty_like(at)
    out[by_pair] = port[first.cumsum(0) - 1]
    return out


def _order(*keys: Tensor) -> Tensor:
    """Positions sorted by the first key, ties by the second, and so on."""
    at = torch.argsort(keys[-1], stable=True)
    for key in reversed(keys[:-1]):
        at = at[torch.argsort(key[at], stable=True)]
    return at


def _starts(x: Tensor) -> Tensor:
    """Where a run of equal values begins."""
    start = torch.ones_like(x, dtype=torch.bool)
    start[1:] = x[1:] != x[:-1]
    return start
