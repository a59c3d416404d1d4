"""How well attribute inference does against rows that left, beside a guess without them and beside near neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.audit.attributes import Knowledge, Prior, RowFunction, infer
from isthmus.audit.context import Context
from isthmus.protect.gaussian import clipped

NEAR = 0.01  # of all nodes: the nearest ones, among whom a node should be lost
STARTS = 3  # of a search through layers
TargetsDone = Callable[[int], None]  # so many more targets are done


@dataclass(frozen=True)
class Finding:
    """What the attack on the rows before one layer found at one level of noise; errors are squared, per feature."""

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
        """The error as a share of the guess's."""
        return self.error / self.guess if self.guess else math.nan


@dataclass(frozen=True)
class Released:
    """Rows of one layer that left, as they left last: of which nodes of the context, and how often."""

    layer: int
    node: Tensor  # [r]
    releases: Tensor  # [r]
    rows: Tensor  # [r, w]
    clip: float = math.inf

    def only(self, at: Tensor) -> Released:
        """Some of them."""
        return replace(self, node=self.node[at], releases=self.releases[at], rows=self.rows[at])

    def sample(self, most: int, nodes: int, seed: int) -> Released:
        """At most so many of them, at all layers the same nodes as far as they left there."""
        rank = torch.empty(nodes, dtype=torch.int64)
        rank[torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))] = torch.arange(nodes)
        return self.only(rank[self.node].argsort()[:most])


class Adversary:
    """All silos but the target's owner, put together: their features are the prior, their own rows show the misfit."""

    def __init__(self, context: Context) -> None:
        self.context, self.owner = context, context.owner
        self.priors = priors(context)

    def misfits(self, left: Released) -> Tensor:
        """For the adversary of each silo, how far its rows lie from what it computes for them: [silos]."""
        gap = left.rows - clipped(self.context.rows(left.layer), left.clip)[left.node]
        squares, counts = torch.zeros(2, len(self.priors), dtype=gap.dtype)
        squares.index_add_(0, self.owner[left.node], gap.square().mean(1))
        counts.index_add_(0, self.owner[left.node], torch.ones(len(gap), dtype=gap.dtype))
        mean: Tensor = (squares.sum() - squares) / (counts.sum() - counts).clamp(min=1)
        return mean.clamp(min=0).sqrt()

    def infer(self, targets: Released, misfits: Tensor, added: float, seed: int, tell: TargetsDone) -> Tensor:
        """The features of the targets as the attack has them, were so much noise ``added`` to their rows: [t, f]."""
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
        """What it would say without the rows."""
        return torch.stack([prior.mean for prior in self.priors])[self.owner[targets.node]]


def _clipping(compute: RowFunction, clip: float) -> RowFunction:
    return lambda x: clipped(compute(x), clip)


def priors(context: Context) -> list[Prior]:
    """For each silo, the prior of all others together."""
    parts = [context.features((context.owner == i).nonzero().flatten()) for i in range(len(context.stack.silos))]
    counts = torch.tensor([float(len(x)) for x in parts], dtype=torch.float64)
    totals, squares = torch.stack([x.sum(0) for x in parts]), [x.T @ x for x in parts]
    whole = torch.stack(squares).sum(0)
    each = zip((counts.sum() - counts).clamp(min=1).tolist(), totals.sum(0) - totals, squares, strict=True)
    return [Prior.of(count, total, whole - mine) for count, total, mine in each]


def near_distance(context: Context, nodes: Tensor) -> float:
    """Mean squared distance, per feature, of nodes to the nearest ``NEAR`` of all others."""
    everyone = context.features(torch.arange(context.stack.rows))
    count = max(1, math.ceil(NEAR * (len(everyone) - 1)))
    total = 0.0
    for node in nodes.tolist():
        apart = (everyone - everyone[node]).square().mean(1)
        apart[node] = math.inf
        total += float(apart.topk(count, largest=False).values.mean())
    return total / len(nodes)
