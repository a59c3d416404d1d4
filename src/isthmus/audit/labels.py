"""Labels from adjoints: what the derivatives that a silo returns tell of the labels of its training nodes.

The derivative of a silo's loss by a row that it received is a sum over its training nodes t that read the row,
``g = sum over t of J_t^T (p_t - y_t)``: predicted probabilities minus the label, times the Jacobian of the last layers.
The row's owner knows which nodes these can be, as it knows the edges between them and its own. All derivatives are
equations for the parts ``J_t^T (p_t - y_t)`` of single nodes, and the adversary has labelled examples of such parts:
those of its own training nodes, which it computed itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.audit.ridge import classify

_RIDGE = 0.1  # of the regression, where a node that is in one sum counts 1
_STEPS = 60
_SETTLED = 1e-10


@dataclass(frozen=True)
class Parts:
    """What was worked out for single training nodes (or edges): the silos that learn from them, labels, and parts."""

    owner: Tensor  # [n]
    label: Tensor  # [n]
    rows: Tensor  # [n, w]


def unmixed(rows: Tensor, at: Tensor, node: Tensor, count: int) -> Tensor:
    """The parts [count, w] whose sums are ``rows`` [s, w], where row ``at[i]`` contains the part of ``node[i]``.

    Ridge regression by conjugate gradients: where sums do not tell nodes apart, they share alike.
    """
    ones = torch.ones(len(at), dtype=torch.float64)
    member = torch.sparse_coo_tensor(torch.stack([at, node]), ones, (len(rows), count)).coalesce()
    turned = member.t().coalesce()
    found = torch.zeros(count, rows.shape[1], dtype=torch.float64)
    gap = torch.sparse.mm(turned, rows.double())
    step, size = gap.clone(), gap.square().sum(0)
    goal = _SETTLED * size.max().clamp(min=torch.finfo(torch.float64).tiny)
    for _ in range(_STEPS):
        if bool(size.max() <= goal):
            break
        image = torch.sparse.mm(turned, torch.sparse.mm(member, step)) + _RIDGE * step
        pace = size / (step * image).sum(0).clamp(min=torch.finfo(torch.float64).tiny)
        found, gap = found + pace * step, gap - pace * image
        before, size = size, gap.square().sum(0)
        step = gap + size / before.clamp(min=torch.finfo(torch.float64).tiny) * step
    return found


def label_scores(parts: Parts, classes: int) -> tuple[Tensor, Tensor]:
    """For every node or edge a score of each label [n, classes], and the label that would be guessed [n].

    All silos but its owner learn the scores from parts of their own; the guess is their most frequent label. Where they
    have none to learn from, scores are nan and the guess is -1.
    """
    scores = torch.full((len(parts.label), classes), torch.nan, dtype=torch.float64)
    guess = torch.full((len(parts.label),), -1)
    for silo in parts.owner.unique().tolist():
        mine = parts.owner == silo
        known, labels = parts.rows[~mine], parts.label[~mine]
        if len(labels) > 1:
            scores[mine] = classify(known, labels, parts.rows[mine], classes)
            guess[mine] = torch.bincount(labels, minlength=classes).argmax()
    return scores, guess
