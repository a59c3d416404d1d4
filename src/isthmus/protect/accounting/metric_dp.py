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
from isthmus.protect.accounting.neighbours import nearest

# The orders of Opacus, with which published tables were computed.
ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *map(float, range(12, 64)))
# Also alpha - 1 in even ratios, 50 a decade: the best order is near 1 where much is lost, large where little is lost.
FINE_ORDERS = tuple(sorted({*ORDERS, *(1 + 10 ** (step / 50) for step in range(-200, 251))}))

_AT_ONCE = 8192  # losses whose bounds by all orders are held at a time
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 100.0)


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
    # With nothing to tell apart the loss is 0, also if there is no noise either, where the formula has 0 / 0.
    loss = torch.where((times > 0) & (distance > 0), times * (distance / sigma).square() / 2, 0.0)
    return composed_epsilon(loss, delta, orders)


def composed_epsilon(loss: float | Tensor, delta: float, orders: Sequence[float] = FINE_ORDERS) -> Tensor:
    """Epsilon of releases whose R rho^2 / (2 sigma^2) add up to ``loss``, the Renyi divergence divided by its order.

    Losses of releases of one unit add up, whatever their kinds, noise and distances: that is composition.
    """
    _check(0.0, delta, orders)
    # Thousands of nodes share few different losses.
    distinct, place = _at_least_zero("loss", loss).unique(return_inverse=True)
    alpha = torch.tensor(orders, dtype=torch.float64)[:, None]
    conversion = torch.log1p(-1 / alpha) - torch.log(delta * alpha) / (alpha - 1)
    least = torch.cat([(alpha * each + conversion).amin(0) for each in distinct.split(_AT_ONCE)])
    # Where nothing was lost the formula leaves more than 0.
    return torch.where(distinct > 0, least.clamp(min=0), 0.0)[place]


def neighbour_distances(rows: Tensor, k: int, normalise: bool = True) -> Tensor:
    """Each node's distance to its k-th nearest neighbour among ``rows`` [n, width]: float64, [n].

    With fewer than k + 1 nodes, k becomes n - 1: the farthest of the others. A node that is alone has nobody to be
    mistaken for, and its distance is infinite. Rows are brought to unit L2 norm first (a row of zeros stays); with
    ``normalise=False`` they are measured as they are, which is right where they leave at another norm.
    Computed in float64, as close neighbours are what counts.
    """
    if rows.dim() != 2 or not rows.isfinite().all():
        raise IsthmusError(f"rows of shape {list(rows.shape)} must be [nodes, width], and every value finite.")
    if k < 1:
        raise IsthmusError(f"k is {k}; it must be 1 or more: the k-th nearest neighbour is measured.")
    points = functional.normalize(rows.detach().double()) if normalise else rows.detach().double()
    once = torch.ones(1, len(points), dtype=torch.int64)
    return nearest([points], once, k, torch.arange(len(points))).squared.sqrt()


def rho_percentiles(
    rows: Tensor, k: int = 50, percentiles: Iterable[float] = PERCENTILES, normalise: bool = True
) -> dict[float, float]:
    """By percentile, the smallest measured distance rho within which that percentage of nodes has k neighbours."""
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
    """A line for each percentile of ``rhos`` ({percentile: rho}), with the epsilon of each noise sigma."""
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


def place_of(percentile: float, count: int) -> int:
    """The first place in ``count`` sorted values at or before which at least ``percentile`` percent of them lie."""
    if not 0 < percentile <= 100:
        raise IsthmusError(f"percentile is {percentile}; it must be above 0 and at most 100.")
    return math.ceil(percentile * count / 100) - 1
