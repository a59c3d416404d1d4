"""Single nodes out of sums: many sums over different sets of nodes are as many linear equations for the nodes in them.

A silo's row ``r_s = sum over u in s of (E y_u + c)`` is a sum over nodes u that whoever asked for it knows. Of every
node the adversary assumes y_u ~ N(mu, S) before, S = R R^T. With ``y = mu + R d`` and J = E R a sum is
``r_s - |s| (c + E mu) = sum of J d_u``. All sums of a step are ``M d J^T = g``, M being the matrix of who is in which.

Rows that are at least as wide as y are first mapped back by the pseudo-inverse of J, which leaves ``M d = g J^+``
whatever the parameters of the step, with noise of covariance sigma^2 Q. Narrower ones are mapped by J^T, and steps then
share the mean H of their J^T J, which is exact where parameters or sets do not change from step to step. Along the axes
of M^T M (size l) and of Q or H (sizes q or h) the estimates are

    d = (M^T g J^+) / (l + sigma^2 q)      or      d = (M^T g J) / (l h + sigma^2).

Where sums do not tell two nodes apart, they share what is known of both, and come out nearer to the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.audit.attributes import Prior

WIDE = 2048  # numbers of a node beyond which noise is taken to be passed on alike in all directions
_TINY = torch.finfo(torch.float64).tiny


class SumSolver:
    """Collects sums over ``count`` nodes of one silo, and solves for what is in them."""

    def __init__(self, count: int, prior: Prior) -> None:
        size = len(prior.mean)
        self.prior, self.wide, self.narrow = prior, size > WIDE, False
        self.square = torch.zeros(count, count, dtype=torch.float64)  # M^T M; each step weighs by its precision
        self.right = torch.zeros(count, size, dtype=torch.float64)  # M^T g, mapped back
        self.shape = torch.zeros((1, 1) if self.wide else (size, size), dtype=torch.float64)  # Q or H
        self.times = torch.zeros(count, dtype=torch.float64)  # how many sums each node was in
        self.sums = 0
        self.power = torch.zeros(2, dtype=torch.float64)  # sum of squares of released numbers, and how many these are

    def add(
        self, node: Tensor, which: Tensor, rows: Tensor, slope: Tensor | None = None, offset: Tensor | None = None
    ) -> None:
        """Take up sums ``rows`` [s, w]: sum ``which[i]`` contains node ``node[i]``, as ``slope`` y + ``offset``.

        Without a slope rows are sums of y itself.
        """
        rows, count = rows.double(), len(rows)
        back, middle, weight = self._mapping(slope)
        sizes = torch.bincount(which, minlength=count).double()
        gap = (rows - sizes[:, None] * (middle if offset is None else middle + offset.double())) @ back.T
        ones = torch.ones(len(node), dtype=torch.float64)
        member = torch.sparse_coo_tensor(torch.stack([which, node]), ones, (count, len(self.square))).coalesce()
        self.square += weight * torch.sparse.mm(member.t(), member).to_dense()
        self.right += weight * torch.sparse.mm(member.t(), gap)
        self.shape += count * weight * (back.square().sum() / min(back.shape) if self.wide else back @ back.T)
        self.times.index_add_(0, node, ones)
        self.sums += count
        self.power += torch.tensor([float(rows.square().sum()), rows.numel()], dtype=torch.float64)

    def _mapping(self, slope: Tensor | None) -> tuple[Tensor, Tensor, float]:
        """The map from rows to what is solved for [q, w], the row of the prior mean [w], and what such rows weigh."""
        if slope is None:
            unit = torch.eye(len(self.prior.mean), dtype=torch.float64)
            back, middle = torch.linalg.solve_triangular(self.prior.root, unit, upper=False), self.prior.mean
        else:
            white, middle = slope.double() @ self.prior.root, slope.double() @ self.prior.mean
            self.narrow = white.shape[0] < white.shape[1] and not self.wide
            if self.narrow:
                return white.T, middle, 1.0
            back = torch.linalg.pinv(white)
        return back, middle, len(middle) / max(float(back.square().sum()), _TINY)

    def solve(self, sigma: float, rounding: float) -> Tensor:
        """The estimate of every node's y [nodes, q], for noise ``sigma``; ``rounding`` is relative to the rows."""
        square, numbers = self.power.tolist()
        noise = sigma**2 + rounding**2 * square / max(numbers, 1)
        along, axes = torch.linalg.eigh(self.shape / max(self.sums, 1))
        size, basis = torch.linalg.eigh(self.square)
        size, along = size.clamp(min=0)[:, None], along.clamp(min=0)
        below = size * along + noise if self.narrow else size + noise * along
        known = size > size[-1] * torch.finfo(size.dtype).eps * len(size)
        gain = torch.where(known, 1 / below.clamp(min=_TINY), 0.0)
        turned = self.right if self.wide else self.right @ axes
        white = basis @ ((basis.T @ turned) * gain)
        found: Tensor = self.prior.mean + (white if self.wide else white @ axes.T) @ self.prior.root.T
        return found


def features_of(found: Tensor, scales: Tensor) -> Tensor:
    """Features [n, f] from estimates of (s x, s) [n, f + 1], where each node's row is scaled by an unknown number s.

    ``scales`` are those of nodes that the adversary knows: no other is smaller or larger than these.
    """
    features: Tensor = found[:, :-1] / found[:, -1:].clamp(float(scales.min()), float(scales.max()))
    return features
