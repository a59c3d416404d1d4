"""Ridge regression and classification that an adversary fits on its own nodes, whose rows and secrets it knows."""

from __future__ import annotations

import torch
from torch import Tensor

STRENGTHS = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 1e3, 1e6)  # of the ridge, in mean squared singular values
_MOST = 4000  # nodes to learn from


def regress(rows: Tensor, secrets: Tensor, targets: Tensor) -> Tensor:
    """The secrets [t, f] that ``targets`` [t, w] lead to, learnt from ``rows`` [n, w] with known ``secrets`` [n, f].

    The strength of the ridge is the one with the least error where each known row is predicted from all others.
    """
    rows, secrets = rows[:_MOST].double(), secrets[:_MOST].double()
    middle, mean = rows.mean(0), secrets.mean(0)
    left, size, right = torch.linalg.svd(rows - middle, full_matrices=False)
    wanted = left.T @ (secrets - mean)
    unit = size.square().mean().clamp(min=torch.finfo(size.dtype).tiny)
    errors = [_left_out(left, size, wanted, secrets - mean, float(strength * unit)) for strength in STRENGTHS]
    best = STRENGTHS[min(range(len(errors)), key=errors.__getitem__)] * unit
    gain = size / (size.square() + best)
    found: Tensor = mean + (targets.double() - middle) @ right.T @ (gain[:, None] * wanted)
    return found


def _left_out(left: Tensor, size: Tensor, wanted: Tensor, true: Tensor, ridge: float) -> float:
    """The mean squared error where each row is predicted from all others, in closed form."""
    share = size.square() / (size.square() + ridge)
    leverage = (left.square() @ share + 1 / len(left)).clamp(max=1 - 1e-9)
    gap = (true - left @ (share[:, None] * wanted)) / (1 - leverage)[:, None]
    return float(gap.square().mean())


def classify(rows: Tensor, labels: Tensor, targets: Tensor, classes: int) -> Tensor:
    """A score of each label for each target [t, classes], learnt from rows with known labels; lengths do not matter."""
    wanted = torch.nn.functional.one_hot(labels.long(), classes).double()
    return regress(_directions(rows), wanted, _directions(targets))


def _directions(rows: Tensor) -> Tensor:
    """Rows at unit length; a row of zeros stays."""
    return torch.nn.functional.normalize(rows.double(), dim=1)
