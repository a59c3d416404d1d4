"""Statistics that a centralised run would know: agreed through the server, or each silo's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from isthmus.errors import IsthmusError, unknown
from isthmus.graph.features import SparseRows
from isthmus.graph.silo import Silo
from isthmus.graph.stack import Stack
from isthmus.wire.base import Wire
from isthmus.wire.ledger import Kind

SCALES = ("none", "zscore")


def summed(wire: Wire, x: Tensor, agreed: bool) -> Tensor:
    """Per-silo sums [mine, ...] replaced by the federation's (the same for all), or left as each silo's own."""
    return wire.total(Kind.STATISTICS, x).expand_as(x) if agreed else x


def scale_features(wire: Wire, silos: Sequence[Silo], how: str, agreed: bool) -> list[Silo]:
    """Bring dense node and edge features to mean 0 and deviation 1, by moments over owned nodes and edges."""
    if how not in SCALES:
        raise unknown("data.scale", how, SCALES)
    if how == "none":
        return list(silos)
    scaled = list(silos)
    if silos[0].schema.features:
        if any(isinstance(silo.x, SparseRows) for silo in silos):
            raise IsthmusError("data.scale=zscore would make sparse features dense; use data.scale=none for them.")
        own = [silo.x for silo in silos if isinstance(silo.x, Tensor)]
        scaled = [replace(s, x=x) for s, x in zip(scaled, _zscore(wire, own, own, agreed), strict=True)]
    if silos[0].schema.edge_features:
        attrs = [silo.edge_attr for silo in silos if silo.edge_attr is not None]
        counted = [a[s.edge_index[1] < s.n] for a, s in zip(attrs, silos, strict=True)]  # each edge once
        scaled = [replace(s, edge_attr=a) for s, a in zip(scaled, _zscore(wire, attrs, counted, agreed), strict=True)]
    return scaled


def _zscore(wire: Wire, rows: list[Tensor], counted: list[Tensor], agreed: bool) -> list[Tensor]:
    """Scale ``rows`` by the moments of ``counted``; the second moment is centred first, against cancellation."""
    counted = [x.double() for x in counted]
    size = summed(wire, torch.tensor([[float(len(x))] for x in counted], dtype=torch.float64), agreed).clamp(min=1)
    mean = summed(wire, torch.stack([x.sum(0) for x in counted]), agreed) / size
    spread = torch.stack([((x - m) ** 2).sum(0) for x, m in zip(counted, mean, strict=True)])
    deviation = (summed(wire, spread, agreed) / size).sqrt()
    deviation = torch.where(deviation > 0, deviation, 1.0)  # a constant column becomes 0, not nan
    return [((x.double() - m) / d).to(x.dtype) for x, m, d in zip(rows, mean, deviation, strict=True)]


def mean_log_degree(wire: Wire, stack: Stack, agreed: bool) -> tuple[Tensor, Tensor]:
    """Mean of log(degree + 1) over owned nodes, incoming and outgoing: [mine] each (PNA's constant)."""
    sums = []
    for degree in (stack.incoming.degree, stack.outgoing.degree):
        log = torch.log(degree.double() + 1) * stack.owned
        sums.append(_by_silo(stack, log))
    counts = _by_silo(stack, stack.owned.double())
    total = summed(wire, torch.stack([*sums, counts], 1), agreed)
    return total[:, 0] / total[:, 2].clamp(min=1), total[:, 1] / total[:, 2].clamp(min=1)


def positive_weights(wire: Wire, counts: Tensor, agreed: bool) -> Tensor:
    """Negatives / positives of each task over training seeds, from [mine, T, 2] counts of no and yes: [mine, T]."""
    total = summed(wire, counts, agreed)
    return torch.where(total[..., 1] > 0, total[..., 0] / total[..., 1].clamp(min=1), 1.0)


def _by_silo(stack: Stack, values: Tensor) -> Tensor:
    return torch.stack([values[a:b].sum() for a, b in zip(stack.ptr, stack.ptr[1:], strict=False)])
