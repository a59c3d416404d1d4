"""Attribute inference: from a released row back to the features of its node.

CE-FedGNN's attack (its equation 32) looks for the features x' whose row, computed in context, lies nearest to the
released one. Rows are wider or narrower than features, and noisy, so that nearest alone says little: the adversary also
knows how features are distributed among its own nodes, with mean mu and covariance S, and how far rows lie from what it
computes (noise). It takes

    x' = argmin  ||row(x') - released||^2 + noise^2 (x' - mu)^T S^-1 (x' - mu),

for a linear row the mean of what x can still be, so that no estimate has a lower expected error where features are
normal. Without noise, and with rows at least as wide as features, it is the exact inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

RIDGE = 1e-3  # of the mean variance: no feature is quite as certain as the adversary's own nodes have it
DOUBTS = (1.0, 0.3, 0.1, 0.0)  # noise that the search adds at first, in units of the rows
_STEPS = 3
_SHORTEST = 1e-3  # of a step
_SETTLED = 1e-9  # of the objective, or of where it stands: less is not worth another step
RowFunction = Callable[
    [Tensor], Tensor
]  # features of the targets [t, f] -> their rows [t, w], each by its own features alone


@dataclass(frozen=True)
class Prior:
    """What the adversary knows of features before it sees a row."""

    mean: Tensor  # [f]
    root: Tensor  # [f, f], lower triangular; root root^T is the covariance

    @staticmethod
    def of(count: float, total: Tensor, squares: Tensor) -> Prior:
        """From the number of nodes, the sum of their features [f] and that of x x^T [f, f]."""
        mean = total / count
        covariance = squares / count - mean[:, None] * mean
        ridge = RIDGE * covariance.diagonal().mean().clamp(min=torch.finfo(mean.dtype).eps)
        return Prior(mean, torch.linalg.cholesky(covariance + ridge * torch.eye(len(mean), dtype=mean.dtype)))

    def mahalanobis(self, x: Tensor) -> Tensor:
        """(x - mu)^T S^-1 (x - mu) of each row."""
        white: Tensor = torch.linalg.solve_triangular(self.root, (x - self.mean).T, upper=False)
        return white.square().sum(0)


@dataclass(frozen=True)
class Knowledge:
    """What the adversary of each target knows: a prior, and how far rows lie from what it computes."""

    priors: Sequence[Prior]
    noise: Tensor  # [priors] standard deviation of each entry of a row
    whose: Tensor  # [t] the prior of each target

    def guess(self) -> Tensor:
        """The best that can be said without a row: [t, f]."""
        return torch.stack([prior.mean for prior in self.priors])[self.whose]

    def draw(self, random: torch.Generator) -> Tensor:
        """Features as they might be, for all the adversary knows: [t, f]."""
        x = self.guess()
        normal = torch.randn(x.shape, generator=random, dtype=x.dtype)
        for number, prior in enumerate(self.priors):
            mine = self.whose == number
            x[mine] += normal[mine] @ prior.root.T
        return x

    def objective(self, x: Tensor, gap: Tensor) -> Tensor:
        """What the attack minimises, of each target; ``gap``: released less computed rows."""
        spread = torch.zeros(len(x), dtype=x.dtype)
        for number, prior in enumerate(self.priors):
            mine = self.whose == number
            spread[mine] = prior.mahalanobis(x[mine])
        return gap.square().sum(1) + self.noise[self.whose].square() * spread

    def solve(self, jacobian: Tensor, gap: Tensor) -> Tensor:
        """The minimiser for rows that are linear: ``gap`` [t, w] is released less the row of the prior mean."""
        x = self.guess()
        for number, prior in enumerate(self.priors):
            mine = (self.whose == number).nonzero().flatten()
            if len(mine):
                x[mine] = linear_estimate(prior, float(self.noise[number]), jacobian[mine], gap[mine])
        return x


def linear_estimate(prior: Prior, noise: float, jacobian: Tensor, gap: Tensor) -> Tensor:
    """The estimate  mu + S J^T (J S J^T + noise^2 I)^-1 gap  for J [t, w, f], gap [t, w]; without noise its limit."""
    left, size, right = torch.linalg.svd(jacobian @ prior.root, full_matrices=False)
    least = size.amax(1, keepdim=True) * torch.finfo(size.dtype).eps * max(jacobian.shape[1:])
    gain = torch.where(size > least, size / (size.square() + noise**2), 0.0)
    white: Tensor = ((gap[:, None] @ left) * gain[:, None] @ right).squeeze(1)
    return prior.mean + white @ prior.root.T


def infer(rows: RowFunction, released: Tensor, known: Knowledge, starts: int = 1, seed: int = 0) -> Tensor:
    """The features [t, f] behind released rows [t, w]: the best of what several ``starts`` lead to.

    Rows that are linear need one start. Others have hollows where a search gets stuck: units that are off give no
    slope. The first start is the prior mean, the others are drawn from the prior.
    """
    random = torch.Generator().manual_seed(seed)
    found, value = _descend(rows, released, known, known.guess())
    for _ in range(starts - 1):
        other, reached = _descend(rows, released, known, known.draw(random))
        found = torch.where((reached < value)[:, None], other, found)
        value = torch.minimum(reached, value)
    return found


def _descend(rows: RowFunction, released: Tensor, known: Knowledge, x: Tensor) -> tuple[Tensor, Tensor]:
    """Where Gauss-Newton steps lead from x, and the objective there.

    At first rows count as noisier than they are: whoever trusts a far-away slope to the full lands beyond anything
    that the prior knows.
    """
    scale = float(released.square().mean().sqrt())
    at = _Place.of(rows, x)
    for doubt in DOUBTS:
        about = replace(known, noise=(known.noise.square() + (doubt * scale) ** 2).sqrt())
        at = _steps(rows, released, about, at, _STEPS if doubt else 4 * _STEPS)
    return at.x, known.objective(at.x, released - at.row)


@dataclass(frozen=True)
class _Place:
    """Features, their rows, and the slope of the rows there."""

    x: Tensor
    row: Tensor
    slope: Tensor

    @staticmethod
    def of(rows: RowFunction, x: Tensor) -> _Place:
        return _Place(x, *with_jacobian(rows, x))

    def unless(self, better: Tensor, other: _Place) -> _Place:
        """Here, but for the targets where the other place is better."""
        flat, deep = better[:, None], better[:, None, None]
        moved = torch.where(flat, other.x, self.x), torch.where(flat, other.row, self.row)
        return _Place(*moved, torch.where(deep, other.slope, self.slope))


def _steps(rows: RowFunction, released: Tensor, known: Knowledge, at: _Place, most: int) -> _Place:
    """Each step solves the linear problem around where it stands; one that does not help is shortened."""
    pace = torch.ones(len(released), 1, dtype=released.dtype)
    for _ in range(most):
        gap = released - at.row
        line = gap + (at.slope @ (at.x - known.guess())[:, :, None]).squeeze(2)
        step = known.solve(at.slope, line) - at.x
        if not bool((step.norm(dim=1) > _SETTLED * at.x.norm(dim=1)).any()):
            break
        there = _Place.of(rows, at.x + pace * step)
        better = known.objective(there.x, released - there.row) < known.objective(at.x, gap) * (1 - _SETTLED)
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
