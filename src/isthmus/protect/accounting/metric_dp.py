"""Metric differential privacy of rows released with Gaussian noise: the mathematics, apart from any bookkeeping.

Whether one row or another at distance rho or less was released R times, each time with fresh noise N(0, sigma^2), is
hidden up to (epsilon, delta):

    epsilon = min over alpha > 1 of
              R alpha rho^2 / (2 sigma^2) + log((alpha - 1) / alpha) - log(delta alpha) / (alpha - 1)

The first term is the Renyi divergence of order alpha between the two sequences of releases, the other two convert it
(Canonne, Kamath and Steinke 2020, proposition 12). Nothing is gained from sampling: who is released is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.core.errors import IsthmusError

# Those of Opacus, by which published tables were computed.
ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *map(float, range(12, 64)))
# And alpha - 1 in even ratios, 50 a decade: the best order is near 1 where much is lost, large where little is lost.
FINE_ORDERS = tuple(sorted({*ORDERS, *(1 + 10 ** (step / 50) for step in range(-200, 251))}))

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 100.0)
_PAIRS = 2**24  # distances held at a time: 128 MiB


def epsilon(
    releases: float | Tensor, sigma: float, rho: float | Tensor, delta: float, orders: Sequence[float] = FINE_ORDERS
) -> Tensor:
    """The privacy loss of ``releases`` noisy releases at distance ``rho``; float64, of the shape the two broadcast to.

    It is 0 where nothing was released or rho is 0, and infinite where rows left without noise. Any set of orders gives
    a valid bound; more orders give a lower one.
    """
    _check(sigma, delta, orders)
    times, distance = _at_least_zero("releases", releases), _at_least_zero("rho", rho)
    if times.isinf().any():
        raise IsthmusError("releases is infinite; give how often the row was released, a finite number.")
    times, distance = torch.broadcast_tensors(times, distance)
    # The bound depends on this one number (divergence / alpha), of which thousands of nodes share few.
    distinct, place = (times * (distance / sigma).square() / 2).unique(return_inverse=True)
    least = torch.full_like(distinct, math.inf)
    for alpha in orders:
        conversion = math.log1p(-1 / alpha) - math.log(delta * alpha) / (alpha - 1)
        least = torch.minimum(least, alpha * distinct + conversion)
    # With nothing to tell apart the loss is 0, where the formula leaves more, or 0 / 0 if there is no noise either.
    return torch.where((times > 0) & (distance > 0), least.clamp(min=0)[place], 0.0)


def node_epsilons(
    counts: Tensor, sigma: float, rho: float | Tensor, delta: float, orders: Sequence[float] = FINE_ORDERS
) -> Tensor:
    """The privacy loss of each node from how often it was released, ``counts`` [n]; ``rho`` is one for all, or [n]."""
    if counts.dim() != 1:
        raise IsthmusError(f"counts has the shape {list(counts.shape)}; it must be [nodes], a number for each node.")
    if isinstance(rho, Tensor) and rho.dim() and rho.shape != counts.shape:
        raise IsthmusError(
            f"rho has the shape {list(rho.shape)}; it must be one number, or {list(counts.shape)} like counts."
        )
    return epsilon(counts, sigma, rho, delta, orders)


def neighbour_distances(rows: Tensor, k: int, normalise: bool = True) -> Tensor:
    """Each node's distance to its k-th nearest neighbour among ``rows`` [n, width]: float64, [n].

    Of fewer than k + 1 nodes, k is clipped to n - 1: the farthest of the others. A node that is alone has nobody to be
    mistaken for, and its distance is infinite. Rows are brought to unit L2 norm first (a row of zeros stays); with
    ``normalise=False`` they are measured as they are, which is right where they leave at another norm.
    Computed in float64, as close neighbours are what counts, and by blocks, as all pairs of 100,000 rows would not fit.
    """
    if rows.dim() != 2 or not rows.isfinite().all():
        raise IsthmusError(f"rows of shape {list(rows.shape)} must be [nodes, width], and every value finite.")
    if k < 1:
        raise IsthmusError(f"k is {k}; it must be 1 or more: the k-th nearest neighbour is measured.")
    points = rows.detach().double()
    if len(points) < 2:
        return points.new_full((len(points),), math.inf)
    points = functional.normalize(points) if normalise else points
    squares, rank = points.square().sum(1), min(k, len(points) - 1)
    found = [_kth_nearest(points, squares, chunk, rank) for chunk in _blocks(points)]
    # Products choose the neighbour, a difference measures it: exactly 0 for equal rows, where products leave rounding.
    return (points - points[torch.cat(found)]).square().sum(1).sqrt()


def rho_percentiles(
    rows: Tensor, k: int = 50, percentiles: Iterable[float] = PERCENTILES, normalise: bool = True
) -> dict[float, float]:
    """By percentile, the smallest measured distance rho within which at least so many nodes have k neighbours."""
    distances = neighbour_distances(rows, k, normalise).sort().values
    if not len(distances):
        raise IsthmusError("There are no rows; percentiles need one or more.")
    return {q: float(distances[place_of(q, len(distances))]) for q in percentiles}


@dataclass(frozen=True)
class EpsilonLine:
    """A line of a table: for ``percentile`` percent of nodes, at distance ``rho``, the epsilon of each sigma."""

    percentile: float
    rho: float
    epsilons: dict[float, float]


def epsilon_table(
    rhos: Mapping[float, float],
    sigmas: Sequence[float],
    releases: float,
    delta: float,
    orders: Sequence[float] = FINE_ORDERS,
) -> list[EpsilonLine]:
    """Epsilon for each percentile of rho (as :func:`rho_percentiles` gives them) and each noise sigma."""
    distances = torch.tensor(list(rhos.values()), dtype=torch.float64)
    columns = {sigma: epsilon(releases, sigma, distances, delta, orders).tolist() for sigma in sigmas}
    return [
        EpsilonLine(percentile, rho, {sigma: column[i] for sigma, column in columns.items()})
        for i, (percentile, rho) in enumerate(rhos.items())
    ]


def _check(sigma: float, delta: float, orders: Sequence[float]) -> None:
    if not 0 <= sigma < math.inf:
        raise IsthmusError(f"sigma is {sigma}; it must be a finite number, 0 (no noise) or more.")
    if not 0 < delta < 1:
        raise IsthmusError(f"delta is {delta}; it must lie between 0 and 1, both excluded.")
    if not orders or not all(1 < alpha < math.inf for alpha in orders):
        raise IsthmusError(f"orders are {list(orders)}; give one or more finite numbers, each above 1.")


def _at_least_zero(name: str, value: float | Tensor) -> Tensor:
    numbers = torch.as_tensor(value, dtype=torch.float64)
    wrong = numbers[~(numbers >= 0)]  # also true of what is not a number
    if len(wrong):
        raise IsthmusError(f"{name} is {float(wrong[0])}; it must be 0 or more.")
    return numbers


def _blocks(points: Tensor) -> Iterable[Tensor]:
    """Row numbers, as many at a time as their distances to all rows may be held."""
    numbers, size = torch.arange(len(points), device=points.device), max(1, _PAIRS // len(points))
    return (numbers[start : start + size] for start in range(0, len(points), size))


def _kth_nearest(points: Tensor, squares: Tensor, chunk: Tensor, rank: int) -> Tensor:
    """The row number of the neighbour of that rank of each row of a chunk; a row is not its own neighbour."""
    # The squared distance less the row's own square, which does not change the order.
    distances = torch.addmm(squares, points[chunk], points.T, alpha=-2)
    distances[torch.arange(len(chunk), device=chunk.device), chunk] = math.inf
    return distances.topk(rank, largest=False).indices[:, -1]


def place_of(percentile: float, count: int) -> int:
    """Where in sorted values at least that many percent lie at or before."""
    if not 0 < percentile <= 100:
        raise IsthmusError(f"percentile is {percentile}; it must be above 0 and at most 100.")
    return math.ceil(percentile * count / 100) - 1
