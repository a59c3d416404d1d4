"""Attribute inference from many releases of rows that are linear in the features: stacked, weighted least squares.

A node's row left V times (or as the means of V blocks of releases), each time made by other parameters:
``r_v = E_v x + c_v + noise_v``. Stacked under each other, and each divided by its noise, these are more equations for
the same features: noise is averaged away, and where rows are narrower than features, parameters that have moved
between releases show other directions of them. With the prior N(mu, S) the estimate is the posterior mean,

    x' = mu + S E^T (E S E^T + N)^-1 (r - c - E mu),      E, r, c stacked, N the diagonal matrix of noise^2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.audit.attributes import Prior

PATTERNS = 8  # ways of weighing views that are solved one by one; who has more should join views first
_ROUNDS = 5  # of giving clipped rows back their length
_TINY = torch.finfo(torch.float64).tiny ** 0.5
_AT_CLIP = 0.99  # of the clipping norm: rows that are this long count as clipped


@dataclass(frozen=True)
class LinearViews:
    """Released rows of some targets, view by view, and the linear maps from features to rows: E_v x + c_v.

    ``noise``: the deviation of each entry of a target's row in a view; infinite where the target has none there.
    """

    slope: Tensor  # [v, w, f]
    offset: Tensor  # [v, w]
    rows: Tensor  # [t, v, w]
    noise: Tensor  # [t, v]
    clip: float = torch.inf

    def weights(self) -> tuple[Tensor, Tensor]:
        """How much each view counts beside the target's best one [t, v], and the noise of that one [t]."""
        least = self.noise.amin(1)
        weight = torch.where(self.noise <= least[:, None], 1.0, least[:, None] / self.noise)
        return weight.masked_fill(self.noise.isinf(), 0.0), least

    def patterns(self) -> int:
        """In how many different ways targets weigh their views."""
        return len(_rounded(self.weights()[0]).unique(dim=0))


def estimate(prior: Prior, views: LinearViews) -> Tensor:
    """The posterior mean of the targets' features: [t, f]; without noise the limit of it for noise -> 0."""
    weight, least = views.weights()
    white = (views.slope @ prior.root).flatten(0, 1)  # [v w, f]
    kinds, which = _rounded(weight).unique(dim=0, return_inverse=True)
    found = torch.empty(len(weight), len(prior.mean), dtype=prior.mean.dtype)
    for kind, weights in enumerate(kinds):
        mine = (which == kind).nonzero().flatten()
        solver = _Solver(white, weights.repeat_interleave(views.slope.shape[1]))
        some = replace(views, rows=views.rows[mine], noise=views.noise[mine])
        found[mine] = _solved(prior, some, solver, least[mine])
    return found


class _Solver:
    """Maps gaps between released rows and those of the prior mean to whitened features, for one way of weighing.

    With J the weighed map from whitened features to rows, and N = noise^2: d = J^T (J J^T + N)^-1 gap. Of J J^T and
    J^T J the smaller one is decomposed.
    """

    def __init__(self, white: Tensor, weight: Tensor) -> None:
        self.weight, weighed = weight, weight[:, None] * white
        self.wide = len(white) <= white.shape[1]  # no more equations than features
        self.size, axes = torch.linalg.eigh(weighed @ weighed.T if self.wide else weighed.T @ weighed)
        self.forth = axes if self.wide else weighed @ axes
        self.back = axes.T @ weighed if self.wide else axes.T

    def __call__(self, gap: Tensor, noise: Tensor) -> Tensor:
        """Whitened features [t, f] from gaps [t, v w] with noise [t]."""
        found: Tensor = (self._along(gap) * self._gain(noise)) @ self.back
        return found

    def _along(self, gap: Tensor) -> Tensor:
        along: Tensor = (gap * self.weight) @ self.forth
        return along

    def _gain(self, noise: Tensor) -> Tensor:
        """One over size plus noise, along each axis that rows show: [t, axes]."""
        least = self.size[-1] * torch.finfo(self.size.dtype).eps * len(self.size)
        return torch.where(self.size > least, 1 / (self.size.clamp(min=0) + noise[:, None].square()), 0.0)

    def surprise(self, a: Tensor, b: Tensor, noise: Tensor) -> Tensor:
        """The product a^T (J J^T + N)^-1 b of gaps [t, v w]: [t]; of a gap with itself: how unlikely it is."""
        along: Tensor = (self._along(a) * self._along(b) * self._gain(noise)).sum(1)
        whole: Tensor = (a * b * self.weight.square()).sum(1)
        return along if self.wide else (whole - along) / noise.square().clamp(min=_TINY)


def _solved(prior: Prior, views: LinearViews, solver: _Solver, noise: Tensor) -> Tensor:
    """The features of targets [t, f] that weigh their views alike; clipped rows are given back their length first.

    A row at the clipping norm was that long or longer. How much longer in each view follows from the features, and
    these from the lengths: the first guess is the typical length, and a few rounds settle the rest.
    """
    middle = (views.offset + views.slope @ prior.mean).flatten()
    if views.clip == torch.inf:
        return prior.mean + solver(views.rows.flatten(1) - middle, noise) @ prior.root.T
    clipped, features = _at_clip(views)[:, None], prior.mean
    typical = (views.slope @ prior.root).square().sum((1, 2)) + (views.offset + views.slope @ prior.mean).square().sum(
        1
    )
    lengths = typical.sqrt().expand(len(views.rows), -1)
    for _ in range(_ROUNDS):
        ratio = torch.where(clipped, (lengths / views.clip).clamp(min=1.0), 1.0)  # [t, v]
        rows, noisier = (views.rows * ratio[:, :, None]).flatten(1), noise * ratio.mean(1)
        factor = torch.where(clipped, _factor(solver, views, rows, middle, noisier), 1.0)
        factor = torch.maximum(factor, 1 / ratio.amin(1, keepdim=True))
        white = solver(factor * rows - middle, noisier * factor[:, 0])
        features = prior.mean + white @ prior.root.T
        lengths = (torch.einsum("vwf,tf->tvw", views.slope, features) + views.offset).norm(dim=2)
    return features


def _factor(solver: _Solver, views: LinearViews, rows: Tensor, middle: Tensor, noise: Tensor) -> Tensor:
    """The most probable factor s by which rows r [t, v w] are too short, all views of a target alike: [t, 1].

    The density of a gap s r - m falls with its surprise; but noise that was added to the short row stands for s times
    as much beside the long one, in every direction but its own, so that k directions of rows give a weight of
    s^(k - 1). The product is largest for s = (b + sqrt(b^2 + 4 a (k - 1))) / 2a, where a and b are the products of r
    with r and with m.
    """
    a = solver.surprise(rows, rows, noise).clamp(min=_TINY)
    b = solver.surprise(rows, middle.expand_as(rows), noise)
    others = min(views.slope.shape[1:]) - 1
    return ((b + (b.square() + 4 * a * others).sqrt()) / (2 * a))[:, None]


def _at_clip(views: LinearViews) -> Tensor:
    """Whether rows are as long as the clipping norm, as far as noise lets tell: [t] bool."""
    noise, width = views.noise.square(), views.rows.shape[2]
    there = ~noise.isinf()
    noise, count = noise.masked_fill(~there, 0.0), there.sum(1).clamp(min=1)
    squares = (views.rows.square().sum(2) - width * noise) * there
    doubt = (4 * views.clip**2 * noise + 2 * width * noise.square()).sum(1).sqrt() / count
    return squares.sum(1) / count >= (_AT_CLIP * views.clip) ** 2 - 2 * doubt


def _rounded(weight: Tensor) -> Tensor:
    """Weights to three digits, so that targets that are weighed nearly alike are solved together."""
    return (weight * 1000).round() / 1000
