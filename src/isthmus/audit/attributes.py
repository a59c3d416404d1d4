"""Attribute inference: estimating the features of a node from a row that was released for it.

CE-FedGNN's attack (its equation 32) looks for the features x' whose row, computed among the node's true neighbours, is
nearest to the released one. Rows are wider or narrower than features, and noisy, so that distance alone decides little.
The adversary therefore also uses the mean mu and the covariance S of the features of its own nodes, and the typical
distance of rows from what it computes (noise). Its estimate is

    x' = argmin  ||row(x') - released||^2 + noise^2 (x' - mu)^T S^-1 (x' - mu),

which for linear rows and normal features is the posterior mean of x, the estimate with the lowest expected error.
Without noise, and with rows at least as wide as features, it is the exact inverse. Several releases of a row are
several views of the same features: their rows are stacked, each divided by its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

RIDGE = 1e-3  # added to each variance, in units of the mean one: a feature may vary more than among the known nodes
DOUBTS = (1.0, 0.3, 0.1, 0.0)  # noise that the search assumes in addition, stage by stage, in units of the rows
_STEPS = 3
_SHORTEST = 1e-3  # share of a step below which the search ends
_SETTLED = 1e-9  # relative change of the objective or of x below which the search ends
RowFunction = Callable[
    [Tensor], Tensor
]  # features of the targets [t, f] -> their rows [t, w], each by its own features alone


@dataclass(frozen=True)
class Prior:
    """The distribution of features that the adversary assumes before it sees a row."""

    mean: Tensor  # [f]
    root: Tensor  # [f, f], lower triangular; root root^T is the covariance

    @staticmethod
    def of(count: float, total: Tensor, squares: Tensor) -> Prior:
        """The prior of nodes, from their number, the sum of their features [f] and the sum of x x^T [f, f]."""
        mean = total / count
        covariance = squares / count - mean[:, None] * mean
        ridge = RIDGE * covariance.diagonal().mean().clamp(min=torch.finfo(mean.dtype).eps)
        return Prior(mean, torch.linalg.cholesky(covariance + ridge * torch.eye(len(mean), dtype=mean.dtype)))

    def mahalanobis(self, x: Tensor) -> Tensor:
        """The squared Mahalanobis distance (x - mu)^T S^-1 (x - mu) of each row of x: [t]."""
        white: Tensor = torch.linalg.solve_triangular(self.root, (x - self.mean).T, upper=False)
        return white.square().sum(0)


@dataclass(frozen=True)
class View:
    """One look at the targets: rows as a function of their features, as they were released, and how noisy these are."""

    rows: RowFunction
    released: Tensor  # [t, w]
    noise: Tensor  # [t] standard deviation of each entry of a row; infinite where a target was not released


@dataclass(frozen=True)
class Knowledge:
    """What the adversary of each target knows beforehand: one of several priors."""

    priors: Sequence[Prior]
    whose: Tensor  # [t] the prior of each target

    def guess(self) -> Tensor:
        """The best estimate without a row, which is the prior mean: [t, f]."""
        return torch.stack([prior.mean for prior in self.priors])[self.whose]

    def draw(self, random: torch.Generator) -> Tensor:
        """Random features of the targets, drawn from their priors: [t, f]."""
        x = self.guess()
        normal = torch.randn(x.shape, generator=random, dtype=x.dtype)
        for number, prior in enumerate(self.priors):
            mine = self.whose == number
            x[mine] += normal[mine] @ prior.root.T
        return x

    def objective(self, x: Tensor, gap: Tensor, noise: Tensor) -> Tensor:
        """||gap||^2 + noise^2 (x - mu)^T S^-1 (x - mu) of each target: [t]; ``gap`` [t, w]: released - computed row."""
        spread = torch.zeros(len(x), dtype=x.dtype)
        for number, prior in enumerate(self.priors):
            mine = self.whose == number
            spread[mine] = prior.mahalanobis(x[mine])
        return gap.square().sum(1) + noise.square() * spread

    def solve(self, jacobian: Tensor, gap: Tensor, noise: Tensor) -> Tensor:
        """The minimiser for linear rows: [t, f]; ``gap`` [t, w] is released rows minus those of the prior mean."""
        x = self.guess()
        for number, prior in enumerate(self.priors):
            mine = (self.whose == number).nonzero().flatten()
            if len(mine):
                x[mine] = linear_estimate(prior, noise[mine], jacobian[mine], gap[mine])
        return x


def linear_estimate(prior: Prior, noise: Tensor, jacobian: Tensor, gap: Tensor) -> Tensor:
    """The estimate mu + S J^T (J S J^T + noise^2 I)^-1 gap: [t, f]; J is [t, w, f], gap [t, w], noise [t].

    Without noise it is the limit of this for noise -> 0.
    """
    left, size, right = torch.linalg.svd(jacobian @ prior.root, full_matrices=False)
    least = size.amax(1, keepdim=True) * torch.finfo(size.dtype).eps * max(jacobian.shape[1:])
    gain = torch.where(size > least, size / (size.square() + noise[:, None].square()), 0.0)
    white: Tensor = ((gap[:, None] @ left) * gain[:, None] @ right).squeeze(1)
    return prior.mean + white @ prior.root.T


@dataclass(frozen=True)
class _Stacked:
    """Several views as one: rows side by side, each divided by its noise beside that of the target's best view."""

    views: Sequence[View]
    weights: list[Tensor]  # of each view: [t]
    released: Tensor  # [t, v w]
    noise: Tensor  # [t]

    @staticmethod
    def of(views: Sequence[View]) -> _Stacked:
        """The views, stacked."""
        noise = torch.stack([view.noise for view in views])
        least = noise.amin(0)
        weights = [torch.where(each <= least, 1.0, least / each).masked_fill(each.isinf(), 0.0) for each in noise]
        released = [w[:, None] * view.released for w, view in zip(weights, views, strict=True)]
        return _Stacked(views, weights, torch.cat(released, 1), least)

    def at(self, x: Tensor) -> _Place:
        """The rows of features ``x`` in all views, and their derivative."""
        rows, slopes = [], []
        for weight, view in zip(self.weights, self.views, strict=True):
            row, slope = with_jacobian(view.rows, x)
            rows.append(weight[:, None] * row)
            slopes.append(weight[:, None, None] * slope)
        return _Place(x, torch.cat(rows, 1), torch.cat(slopes, 1))


def infer(views: Sequence[View], known: Knowledge, starts: int = 1, seed: int = 0) -> Tensor:
    """The features [t, f] that explain all views of the targets best: the best of searches from several ``starts``.

    Linear rows need one start. Others have local minima, because hidden units that are off have no slope. The first
    start is the prior mean, the others are drawn from the prior.
    """
    random, stacked = torch.Generator().manual_seed(seed), _Stacked.of(views)
    found, value = _descend(stacked, known, known.guess())
    for _ in range(starts - 1):
        other, reached = _descend(stacked, known, known.draw(random))
        found = torch.where((reached < value)[:, None], other, found)
        value = torch.minimum(reached, value)
    return found


def _descend(views: _Stacked, known: Knowledge, x: Tensor) -> tuple[Tensor, Tensor]:
    """The features that Gauss-Newton steps from x lead to [t, f], and the objective there [t].

    The first stages treat rows as noisier than they are: a slope far from the solution, trusted in full, would lead to
    features that the prior makes very unlikely.
    """
    scale = float(views.released.square().mean().sqrt())
    at = views.at(x)
    for doubt in DOUBTS:
        about = replace(views, noise=(views.noise.square() + (doubt * scale) ** 2).sqrt())
        at = _steps(about, known, at, _STEPS if doubt else 4 * _STEPS)
    return at.x, known.objective(at.x, views.released - at.row, views.noise)


@dataclass(frozen=True)
class _Place:
    """A point of the search: features, their rows, and the derivative of rows by features."""

    x: Tensor
    row: Tensor
    slope: Tensor

    def unless(self, better: Tensor, other: _Place) -> _Place:
        """The point itself, replaced by ``other`` for the targets marked in ``better``."""
        flat, deep = better[:, None], better[:, None, None]
        moved = torch.where(flat, other.x, self.x), torch.where(flat, other.row, self.row)
        return _Place(*moved, torch.where(deep, other.slope, self.slope))


def _steps(views: _Stacked, known: Knowledge, at: _Place, most: int) -> _Place:
    """The point after at most ``most`` Gauss-Newton steps; a step that does not lower the objective is shortened."""
    pace = torch.ones(len(at.x), 1, dtype=at.x.dtype)
    for _ in range(most):
        gap = views.released - at.row
        line = gap + (at.slope @ (at.x - known.guess())[:, :, None]).squeeze(2)
        step = known.solve(at.slope, line, views.noise) - at.x
        if not bool((step.norm(dim=1) > _SETTLED * at.x.norm(dim=1)).any()):
            break
        there = views.at(at.x + pace * step)
        reached = known.objective(there.x, views.released - there.row, views.noise)
        better = reached < known.objective(at.x, gap, views.noise) * (1 - _SETTLED)
        pace = torch.where(better[:, None], (2 * pace).clamp(max=1), pace / 4)
        at = at.unless(better, there)
        if not bool((better | (pace[:, 0] > _SHORTEST)).any()):
            break
    return at


def with_jacobian(rows: RowFunction, x: Tensor) -> tuple[Tensor, Tensor]:
    """The rows [t, w] of features x [t, f], and the derivative of each row by its own features [t, w, f]."""
    x = x.detach().requires_grad_()
    out = rows(x)
    each = [torch.autograd.grad(column.sum(), x, retain_graph=True)[0] for column in out.T]
    return out.detach(), torch.stack(each, 1)
