"""The error of attribute inference from released rows, beside that of a guess and the distance of near neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.audit.attributes import Knowledge, Prior, RowFunction, infer
from isthmus.audit.context import Context
from isthmus.protect.gaussian import clipped

NEAR = 0.01  # share of all nodes that count as a node's near neighbours
STARTS = 3  # searches for a target behind layers, each from another start
TargetsDone = Callable[[int], None]  # called with the number of targets that were attacked since the last call


@dataclass(frozen=True)
class Finding:
    """The result of the attack on the rows of one layer at one level of noise; errors are squared, per feature."""

    layer: int
    sigma: float
    what_if: bool
    parameters: str
    targets: int
    releases: float  # of a target, on average; the attack has the last one
    error: float
    guess: float  # the error of the prior mean
    neighbours: float  # squared distance, per feature, of a target to its nearest NEAR of all nodes
    misfit: float  # how far rows lie from what the adversary computes: deviation of an entry
    norm: float  # of the rows, on average

    @property
    def ratio(self) -> float:
        """The error as a share of the guess's error."""
        return self.error / self.guess if self.guess else math.nan


@dataclass(frozen=True)
class Released:
    """The rows of one layer as they last left: the nodes (rows of the context) they are of, and how often each left."""

    layer: int
    node: Tensor  # [r]
    releases: Tensor  # [r]
    rows: Tensor  # [r, w]
    clip: float = math.inf

    def only(self, at: Tensor) -> Released:
        """The released rows at some places."""
        return replace(self, node=self.node[at], releases=self.releases[at], rows=self.rows[at])

    def sample(self, most: int, nodes: int, seed: int) -> Released:
        """A random sample of at most ``most`` released rows; all layers sample by one ranking of the nodes."""
        rank = torch.empty(nodes, dtype=torch.int64)
        rank[torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))] = torch.arange(nodes)
        return self.only(rank[self.node].argsort()[:most])


class Adversary:
    """All silos but the target's owner, together.

    The features of their own nodes give the prior; their own released rows show how far rows lie from computed ones.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.owner = context, context.owner
        self.priors = priors(context)

    def misfits(self, left: Released) -> Tensor:
        """For the adversary of each silo, the typical distance of its own rows from what it computes: [silos]."""
        gap = left.rows - clipped(self.context.rows(left.layer), left.clip)[left.node]
        squares, counts = torch.zeros(2, len(self.priors), dtype=gap.dtype)
        squares.index_add_(0, self.owner[left.node], gap.square().mean(1))
        counts.index_add_(0, self.owner[left.node], torch.ones(len(gap), dtype=gap.dtype))
        mean: Tensor = (squares.sum() - squares) / (counts.sum() - counts).clamp(min=1)
        return mean.clamp(min=0).sqrt()

    def infer(self, targets: Released, misfits: Tensor, added: float, seed: int, tell: TargetsDone) -> Tensor:
        """The features of the targets that the attack infers after noise ``added`` was added to their rows: [t, f]."""
        fresh = torch.randn(targets.rows.shape, generator=torch.Generator().manual_seed(seed), dtype=targets.rows.dtype)
        rows, noise = targets.rows + added * fresh, (misfits.square() + added**2).sqrt()
        starts = 1 if targets.layer == 0 and targets.clip == math.inf else STARTS
        parts = []
        for some in self.context.together(targets.node, targets.layer):
            compute = _clipping(self.context.around(targets.node[some], targets.layer), targets.clip)
            known = Knowledge(self.priors, noise, self.owner[targets.node[some]])
            parts.append(infer(compute, rows[some], known, starts, seed))
            tell(len(some))
        return torch.cat(parts)

    def guess(self, targets: Released) -> Tensor:
        """The adversary's estimate of the targets' features without their rows: [t, f]."""
        return torch.stack([prior.mean for prior in self.priors])[self.owner[targets.node]]


def _clipping(compute: RowFunction, clip: float) -> RowFunction:
    """The function that computes rows and clips them."""
    return lambda x: clipped(compute(x), clip)


def priors(context: Context) -> list[Prior]:
    """For each silo, the prior from the features of all other silos' nodes."""
    parts = [context.features((context.owner == i).nonzero().flatten()) for i in range(len(context.stack.silos))]
    counts = torch.tensor([float(len(x)) for x in parts], dtype=torch.float64)
    totals, squares = torch.stack([x.sum(0) for x in parts]), [x.T @ x for x in parts]
    whole = torch.stack(squares).sum(0)
    each = zip((counts.sum() - counts).clamp(min=1).tolist(), totals.sum(0) - totals, squares, strict=True)
    return [Prior.of(count, total, whole - mine) for count, total, mine in each]


def near_distance(context: Context, nodes: Tensor) -> float:
    """The mean squared distance, per feature, of nodes to their near neighbours (a share ``NEAR`` of all nodes)."""
    everyone = context.features(torch.arange(context.stack.rows))
    count = max(1, math.ceil(NEAR * (len(everyone) - 1)))
    total = 0.0
    for node in nodes.tolist():
        apart = (everyone - everyone[node]).square().mean(1)
        apart[node] = math.inf
        total += float(apart.topk(count, largest=False).values.mean())
    return total / len(nodes)
