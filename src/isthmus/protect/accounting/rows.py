"""The loss of privacy of what a run has released, counted node by node from the releases themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.protect.accounting.metric_dp import PERCENTILES, epsilon, neighbour_distances, place_of
from isthmus.protect.events import Events, GaussianNoise
from isthmus.protect.releases import COUNTS, PLAIN, Releases

MOST = 10_000  # nodes of a silo whose neighbours are looked for; of more, a sample

NAMES = (
    "nodes",
    "measured",
    "releases",
    *(f"rho {q:g}" for q in PERCENTILES),
    *(f"rho {q:g}, unit norm" for q in PERCENTILES),
    *(f"epsilon {q:g}" for q in PERCENTILES),
    "epsilon of any two rows",
)


@dataclass(frozen=True)
class NodeLosses:
    """One silo's nodes whose rows have left: how many, how often at most, distances and losses by percentile.

    rho is a node's distance to its k-th nearest neighbour among the silo's released rows of the same layer, as clipped
    and before noise; where a node was released at several layers, the largest of its distances is listed. Its epsilon
    composes all of its releases, each with the distance of its layer. ``any_two``: the same without looking at
    neighbours, for any two rows within the clipping norm. Of a node that left only as a part of sums no row is known,
    and any two sums are twice the clipping norm apart at most: that is its rho.
    """

    nodes: int
    measured: int
    releases: int
    rho: Tensor  # [percentiles]
    rho_unit: Tensor  # of rows at unit norm, as the paper measures
    epsilon: Tensor
    any_two: float

    def numbers(self) -> Tensor:
        """All of it as one row, in the order of ``NAMES``."""
        counts = torch.tensor([self.nodes, self.measured, self.releases], dtype=torch.float64)
        last = torch.tensor([self.any_two], dtype=torch.float64)
        return torch.cat([counts, self.rho, self.rho_unit, self.epsilon, last])


def noise_of(events: Sequence[Events]) -> GaussianNoise | None:
    """The weakest noise that any release of a kind had, from what happened to them; None where one had none."""
    noises = [next((e for e in each if isinstance(e, GaussianNoise)), None) for each in events]
    known = [noise for noise in noises if noise is not None]
    if not noises or len(known) < len(noises):
        return None
    return max(known, key=lambda noise: noise.clip / noise.sigma)


def node_losses(releases: Releases, kind: Kind, rows: slice, noise: GaussianNoise) -> NodeLosses:
    """The losses of the nodes of one silo, whose rows in the book are ``rows``, by releases of one kind with noise."""
    counts = torch.stack([releases.get(COUNTS, kind, layer)[rows] for layer in releases.layers(kind)]).cpu()
    total = counts.sum(0)
    chosen = _sample((total > 0).nonzero().flatten())
    if releases.has(PLAIN, kind):
        plain = [releases.get(PLAIN, kind, layer)[rows].cpu()[chosen] for layer in releases.layers(kind)]
        near, unit = (_distances(plain, counts[:, chosen], noise.neighbours, unit) for unit in (False, True))
    else:
        near, unit = (torch.where(counts[:, chosen] > 0, 2.0 * norm, 0.0).double() for norm in (noise.clip, 1.0))
    # Releases compose by adding R rho^2; one release at the root of the sum is the same.
    loss = epsilon(1.0, noise.sigma, (counts[:, chosen] * near.square()).sum(0).sqrt(), noise.delta)
    most = int(total.max()) if len(total) else 0
    any_two = _any_two(most, noise)
    rho, rho_unit, spent = (_percentiles(x) for x in (near.amax(0), unit.amax(0), loss))
    return NodeLosses(int((total > 0).sum()), len(chosen), most, rho, rho_unit, spent, any_two)


def silo_loss(times: int, noise: GaussianNoise | None) -> float:
    """The loss of a silo whose whole payload (weights, gradients) has left so often: any two are 2 clip apart."""
    if not times:
        return 0.0
    return math.inf if noise is None else _any_two(times, noise)


def _any_two(times: int, noise: GaussianNoise) -> float:
    """Epsilon of so many releases of one of any two payloads within the clipping norm."""
    if not times:
        return 0.0
    return float(epsilon(times, noise.sigma, 2 * noise.clip, noise.delta)) if noise.clip < math.inf else math.inf


def _sample(nodes: Tensor) -> Tensor:
    """At most ``MOST`` of the nodes, evenly from all of them."""
    return nodes if len(nodes) <= MOST else nodes[torch.linspace(0, len(nodes) - 1, MOST).long()]


def _distances(plain: list[Tensor], counts: Tensor, k: int, normalise: bool) -> Tensor:
    """Of each layer and node the distance to its k-th neighbour; 0 where it was not released: [layers, nodes].

    A row that is no finite number, as a model that diverged makes them, is like no other: its distance is infinite.
    """
    found = torch.zeros(counts.shape, dtype=torch.float64)
    for layer, rows in enumerate(plain):
        finite = rows.isfinite().all(1)
        here = ((counts[layer] > 0) & finite).nonzero().flatten()
        found[layer, (counts[layer] > 0) & ~finite] = math.inf
        found[layer, here] = neighbour_distances(rows[here], k, normalise)
    return found


def _percentiles(values: Tensor) -> Tensor:
    """By percentile, the smallest value that so many nodes do not exceed; 0 where no node was released."""
    if not len(values):
        return torch.zeros(len(PERCENTILES), dtype=torch.float64)
    ordered = values.sort().values
    return torch.stack([ordered[place_of(q, len(ordered))] for q in PERCENTILES])
