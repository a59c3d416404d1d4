"""Metric differential privacy of the embeddings that a silo released, and whether nearest neighbours differ at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.guarantee import AS_LEFT_LAST, ASSUMED, METRIC, OF_A_SAMPLE, ROW, ROWS_ALONE, Guarantee
from isthmus.protect.accounting.metric_dp import PERCENTILES, epsilon, place_of
from isthmus.protect.accounting.neighbours import nearest
from isthmus.protect.events import GaussianNoise
from isthmus.protect.releases import COUNTS, PLAIN, Releases

MOST = 2**27  # pairs of nodes that are compared: of a silo that released more than 11,585 nodes a sample is measured


@dataclass(frozen=True)
class MetricFigures:
    """One silo's nodes whose embeddings left, against their k-th nearest neighbours among the silo's released rows.

    rho of a node is the distance to that neighbour, as a root mean square over the node's releases; ``rho_unit`` is
    rho of rows brought to unit norm, as CE-FedGNN's paper measures it. ``spread`` is the root mean square distance of
    two nodes taken at random. ``distinct``: how many different rows a node and its k nearest have. For ``homogeneous``
    nodes it is 1: whoever knows that a node is among these neighbours knows its row, whatever epsilon is.
    """

    nodes: int
    measured: int
    k: int
    others: int  # nodes that the node with fewest of them was compared with
    rho: Tensor  # [percentiles]
    rho_unit: Tensor
    epsilon: Tensor
    distinct: tuple[int, int]  # of the node with fewest, and the median
    homogeneous: int
    spread: float

    def as_dict(self) -> dict[str, Any]:
        """The figures by name; where a sample was measured, the names of percentiles say so."""
        of = " of a sample" if self.measured < self.nodes else ""
        tables = {"rho": self.rho, "rho at unit norm": self.rho_unit, "epsilon": self.epsilon}
        return {
            "nodes": self.nodes,
            "measured": self.measured,
            "k": self.k,
            "others": self.others,
            **{f"{name}{of}": dict(zip(map(_name, PERCENTILES), table.tolist(), strict=True))
               for name, table in tables.items()},
            "distinct rows": {"fewest": self.distinct[0], "median": self.distinct[1]},
            "homogeneous": self.homogeneous,
            "spread": self.spread,
        }  # fmt: skip


def _name(percentile: float) -> str:
    return f"{percentile:g}"


def metric_figures(releases: Releases, rows: slice, noise: GaussianNoise) -> MetricFigures | None:
    """The figures of the silo whose rows in ``releases`` are ``rows``; None where none of them left with noise."""
    if not releases.has(PLAIN, Kind.EMBEDDINGS):
        return None
    layers = releases.layers(Kind.EMBEDDINGS)
    counts = torch.stack([releases.get(COUNTS, Kind.EMBEDDINGS, layer)[rows].cpu() for layer in layers])
    left = (counts.sum(0) > 0).nonzero().flatten()
    if not len(left):
        return None
    counts = counts[:, left]
    plain = [releases.get(PLAIN, Kind.EMBEDDINGS, layer)[rows].cpu()[left].double() for layer in layers]
    asked = _nodes_to_measure(len(left))
    found, unit = (nearest(each, counts, noise.neighbours, asked) for each in (plain, _normalised(plain)))
    times = counts.sum(0)[asked].double()
    rho, rho_unit = ((each.squared / times).sqrt() for each in (found, unit))
    distinct, alike = found.distinct.sort().values, (found.distinct == 1) & (found.others > 0)
    return MetricFigures(
        nodes=len(left),
        measured=len(asked),
        k=noise.neighbours,
        others=int(found.others.min()),
        rho=_percentiles(rho),
        rho_unit=_percentiles(rho_unit),
        epsilon=_percentiles(epsilon(times, noise.sigma, rho, noise.delta)),
        distinct=(int(distinct[0]), int(distinct[place_of(50, len(distinct))])),
        homogeneous=int(alike.sum()),
        spread=_mean_distance(plain, counts),
    )


def metric_guarantee(figures: Mapping[str, MetricFigures], noise: GaussianNoise) -> Guarantee:
    """The guarantee of embeddings at each node's rho, as strong as for the worst node; never a run's headline."""
    sampled = any(each.measured < each.nodes for each in figures.values())
    worst = max(float(each.epsilon[-1]) for each in figures.values())
    told = {silo: each.as_dict() for silo, each in figures.items()}
    assumed = (*ASSUMED, ROWS_ALONE, AS_LEFT_LAST)
    notion = OF_A_SAMPLE if sampled else METRIC
    return Guarantee(Kind.EMBEDDINGS.value, ROW, notion, worst, noise.delta, assumptions=assumed, silos=told)


def homogeneity_note(figures: Mapping[str, MetricFigures]) -> str:
    """A sentence on nodes whose nearest neighbours all have the node's own row; empty where there are none."""
    alike, nodes = (sum(getattr(each, name) for each in figures.values()) for name in ("homogeneous", "measured"))
    if not alike:
        return ""
    k = next(iter(figures.values())).k
    return (
        f"Metric privacy says nothing of {alike:,} of {nodes:,} nodes: their {k} nearest neighbours all have the same "
        "row as they. Its epsilon is small there because nothing near is different, not because anything is hidden."
    )


def _nodes_to_measure(nodes: int) -> Tensor:
    """The nodes to measure: all, or where that takes more than ``MOST`` pairs an evenly spread sample: [measured]."""
    size = max(1, MOST // nodes)
    return torch.arange(nodes) if size >= nodes else torch.linspace(0, nodes - 1, size, dtype=torch.float64).long()


def _normalised(plain: list[Tensor]) -> list[Tensor]:
    """Rows at unit norm; a row of zeros stays."""
    return [functional.normalize(rows) for rows in plain]


def _mean_distance(plain: list[Tensor], counts: Tensor) -> float:
    """The root mean square distance of two released rows taken at random, layers weighed by their releases."""
    total = 0.0
    for rows, here in zip(plain, counts, strict=True):
        those = rows[here > 0]
        total += float(here.sum()) * 2 * float((those - those.mean(0)).square().sum(1).mean()) if len(those) else 0.0
    return float((total / max(int(counts.sum()), 1)) ** 0.5)


def _percentiles(values: Tensor) -> Tensor:
    """By percentile, the smallest value that this percentage of nodes does not exceed."""
    ordered = values.sort().values
    return torch.stack([ordered[place_of(q, len(ordered))] for q in PERCENTILES])
