"""Renyi privacy loss of Gaussian noise on a sum over a random sample: how DP-SGD is usually accounted.

A step takes every seed with chance q, independently of the others, adds up their gradients, each of norm C at most, and
adds noise N(0, (sigma C)^2). Whether one seed is there or not is hidden up to a Renyi divergence of order alpha

    log(A) / (alpha - 1),   A = E over z ~ N(0, sigma^2) of f(z)^alpha,   f(z) = 1 - q + q exp((2 z - 1) / (2 sigma^2))

(Mironov, Talwar and Zhang 2019, section 3.3). With q = 1 it is alpha / (2 sigma^2); else the mean is a sum over an even
grid, whose error falls exponentially with the number of points, since f^alpha times the density is smooth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import IsthmusError
from isthmus.protect.accounting.metric_dp import FINE_ORDERS

Numbers = NDArray[np.float64]
SAMPLED_ORDERS = tuple(alpha for alpha in FINE_ORDERS if alpha < 1024)  # a grid grows with the order
_FAR = 40.0  # deviations of noise on both sides of where a mean is taken
_FINE = 5.0  # points on each of the two lengths on which the function changes, sigma and sigma^2


def subsampled_epsilon(
    rate: float, sigma: float, steps: int, delta: float, orders: Sequence[float] = SAMPLED_ORDERS
) -> float:
    """Epsilon at ``delta`` of one seed more or less, after ``steps`` steps that take a seed with chance ``rate``."""
    if not 0 <= rate <= 1:
        raise IsthmusError(f"rate is {rate}; it is the chance that a step takes a seed, and lies in 0..1.")
    if not 0 < delta < 1:
        raise IsthmusError(f"delta is {delta}; it must lie between 0 and 1, both excluded.")
    if not rate or not steps:
        return 0.0
    if not sigma > 0:
        return math.inf
    least = math.inf
    for alpha in sorted(orders):
        lost = steps * divergence(rate, sigma, alpha)
        if lost > least + 1:  # it grows with the order, and what the conversion takes off it is less than 1
            break
        least = min(least, lost + math.log1p(-1 / alpha) - math.log(delta * alpha) / (alpha - 1))
    return max(0.0, least)


def divergence(rate: float, sigma: float, alpha: float) -> float:
    """The Renyi divergence of order ``alpha`` of one step: log(A) / (alpha - 1), with A as at the top of this file."""
    if rate == 1:
        return alpha / (2 * sigma**2)
    step = min(sigma, sigma**2) / _FINE
    z = np.arange(-_FAR * sigma, alpha + _FAR * sigma, step)  # f^alpha times the density lies around 0 to alpha
    log_f = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * z - 1) / (2 * sigma**2))
    log_weight = -(z**2) / (2 * sigma**2) + math.log(step / (sigma * math.sqrt(2 * math.pi)))
    return _log_mean(log_f, log_weight, alpha) / (alpha - 1)


def _log_mean(log_f: Numbers, log_weight: Numbers, alpha: float) -> float:
    """Log A for A = E[f^alpha]. Near 1, A - 1 is E[f^alpha - 1 - alpha (f - 1)], as E[f] = 1; no digits are lost."""
    log_terms = alpha * log_f + log_weight
    most = float(log_terms.max())
    found = most + math.log(float(np.exp(log_terms - most).sum()))
    if found > 0.1:
        return found
    small = np.minimum(log_f, 1.0)  # where f is larger, nothing cancels
    near = np.exp(log_weight) * (np.expm1(alpha * small) - alpha * np.expm1(small))
    far = np.exp(log_terms) - alpha * np.exp(log_f + log_weight) + (alpha - 1) * np.exp(log_weight)
    return math.log1p(float(np.where(log_f < 1, near, far).sum()))
