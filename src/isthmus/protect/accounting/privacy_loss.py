"""The privacy loss of noisy releases: two bounds that add up over releases, and the epsilon that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from isthmus.protect.accounting.metric_dp import composed_epsilon
from isthmus.protect.events import GaussianNoise, LaplaceNoise

Noised = GaussianNoise | LaplaceNoise


@dataclass(frozen=True)
class Loss:
    """How well releases tell any two values of a unit apart, in two bounds that each add up over releases.

    ``renyi``: a bound on the Renyi divergence of every order, divided by the order. ``pure``: a bound on epsilon at
    delta = 0; infinite for Gaussian noise, which has none.
    """

    renyi: float = 0.0
    pure: float = 0.0

    @staticmethod
    def total(losses: Iterable[Loss]) -> Loss:
        """The sum of losses: that of all their releases together."""
        each = list(losses)
        return Loss(sum(one.renyi for one in each), sum(one.pure for one in each))


def loss_of(releases: int, width: int, noise: Noised | None) -> Loss:
    """The loss of R ``releases`` of ``width`` numbers each; infinite without noise.

    Gaussian noise on rows of norm at most clip: renyi = R (2 clip)^2 / (2 sigma^2). Laplace noise on numbers of at most
    bound: each has pure epsilon e = 2 bound / scale, so that renyi = R width e^2 / 2 (Bun and Steinke 2016, proposition
    3.3) and pure = R width e.
    """
    if noise is None:
        return Loss(math.inf, math.inf)
    if not releases:
        return Loss()
    if isinstance(noise, GaussianNoise):
        return Loss(releases * (2 * noise.clip / noise.sigma) ** 2 / 2, math.inf)
    each, numbers = 2 * noise.bound / noise.scale, releases * width
    return Loss(numbers * each**2 / 2, numbers * each)


def epsilons(losses: Sequence[Loss], delta: float) -> list[float]:
    """Epsilon of each loss at ``delta``: the smaller of its two bounds; at delta = 0 the pure one."""
    pure = [each.pure for each in losses]
    if not delta:
        return pure
    found = composed_epsilon(torch.tensor([each.renyi for each in losses], dtype=torch.float64), delta).tolist()
    return [min(both) for both in zip(found, pure, strict=True)]
