"""Attribute inference from all releases of single nodes' rows, and the two baselines: a guess, and near neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.audit.attributes import Knowledge, Prior, RowFunction, View, infer
from isthmus.audit.axes import Axes, entrance
from isthmus.audit.context import Context
from isthmus.audit.findings import NEAR
from isthmus.audit.history import History, ReleaseSums
from isthmus.audit.journal import DEEP
from isthmus.audit.stacked_releases import PATTERNS, LinearViews, estimate
from isthmus.protect.gaussian import clipped

LIGHT = 30.0  # releases that are this much noisier than a target's best one are left out of a search behind layers
KEPT = 8  # priors of silos that are kept at a time
STARTS = 3  # searches for a target behind layers, each from another start
TargetsDone = Callable[[int], None]  # called with the number of targets that were attacked since the last call


@dataclass(frozen=True)
class Released:
    """All releases of some nodes' rows before one layer: the nodes (rows of the context), and their history."""

    layer: int
    node: Tensor  # [r]
    history: History
    clip: float = math.inf
    sigma: float = 0.0  # the noise that the run says it added

    def only(self, at: Tensor) -> Released:
        """The releases of the nodes at the places ``at``."""
        return replace(self, node=self.node[at], history=self.history.only(at))

    def in_blocks(self, most: int) -> Released:
        """All these releases in at most ``most`` blocks."""
        return replace(self, history=self.history.coarser(most))

    def that_left(self) -> Released:
        """The releases of the nodes that left at least once."""
        return self.only((self.history.counts > 0).nonzero().flatten())


class Adversary:
    """All silos but the target's owner, together with the server.

    The features of their own nodes give the prior; their own released rows show how far rows lie from computed ones.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.owner = context, context.owner
        self.priors = Priors(context)

    def misfits(self, left: Released) -> Tensor:
        """Squared distance of one release from what is computed, per entry, as each adversary sees it: [blocks, silos].

        The adversary of a silo measures it on the rows of all others: noise, and drift of parameters.
        """
        whose, silos = self.owner[left.node], len(self.priors)
        found = []
        for block in left.history.blocks:
            gap = (block.mean - self.computed(left, block)).square().mean(1) * block.counts
            seen = (block.counts > 0).double()
            each = torch.zeros(2, silos, dtype=torch.float64).index_add_(1, whose, torch.stack([gap * seen, seen]))
            total, count = each.sum(1, keepdim=True) - each
            found.append(torch.where(count > 0, total / count.clamp(min=1), left.sigma**2))
        return torch.stack(found)

    def computed(self, left: Released, block: ReleaseSums) -> Tensor:
        """The rows [r, w] of released nodes as the adversary computes them for a block of releases."""
        known = block.mean_parameters()
        if left.layer:
            self.context.load(known)
            return clipped(self.context.rows(left.layer)[left.node], left.clip)
        weight, bias = entrance(known)
        x, place = self.context.features(left.node), self.owner[left.node] % len(weight)
        rows = torch.empty(len(x), weight.shape[2], dtype=torch.float64)
        for number in place.unique().tolist():
            mine = place == number
            rows[mine] = x[mine] @ weight[number] + bias[number]
        return clipped(rows, left.clip)

    def infer(self, targets: Released, misfits: Tensor, added: float, seed: int, tell: TargetsDone) -> Tensor:
        """The features [t, f] inferred from all releases, after noise ``added`` was added to each of them."""
        counts = torch.stack([block.counts for block in targets.history.blocks], 1)  # [t, v]
        rows = torch.stack([block.mean for block in targets.history.blocks], 1)  # [t, v, w]
        fresh = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed), dtype=rows.dtype)
        rows = rows + added * fresh / counts.clamp(min=1).sqrt()[:, :, None]
        noise = ((misfits.T[self.owner[targets.node]] + added**2) / counts).sqrt().nan_to_num(nan=math.inf)
        noise = noise.masked_fill(counts == 0, math.inf)
        if targets.layer:
            return self._search(targets, rows, noise, seed, tell)
        found = torch.empty(len(rows), self.priors.means.shape[1], dtype=torch.float64)
        for silo, mine in self._by_owner(targets):
            views = self.linear_views(targets, silo, rows[mine], noise[mine])
            found[mine] = estimate(self.priors[silo], views)
            tell(len(mine))
        return found

    def linear_views(self, targets: Released, silo: int, rows: Tensor, noise: Tensor) -> LinearViews:
        """The releases of a silo's rows before the first layer, which are linear in features, block by block."""
        known = [entrance(block.mean_parameters()) for block in targets.history.blocks]
        slope = torch.stack([weight[silo % len(weight)].T for weight, _ in known])
        offset = torch.stack([bias[silo % len(bias)] for _, bias in known])
        return LinearViews(slope, offset, rows, noise, targets.clip)

    def manageable(self, targets: Released, misfits: Tensor) -> bool:
        """Whether there are few enough different weightings of blocks among targets to solve without joining blocks."""
        if targets.layer:
            return len(targets.history.blocks) <= DEEP + 1
        counts = torch.stack([block.counts for block in targets.history.blocks], 1)
        noise = (misfits.T[self.owner[targets.node]] / counts).sqrt().masked_fill(counts == 0, math.inf)
        width = targets.history.blocks[0].rows.shape[1]
        return all(
            self.linear_views(targets, silo, torch.zeros(len(mine), 0, width), noise[mine]).patterns() <= PATTERNS
            for silo, mine in self._by_owner(targets)
        )

    def _by_owner(self, targets: Released) -> Iterator[tuple[int, Tensor]]:
        """Each silo that owns targets, and the places of these."""
        whose = self.owner[targets.node]
        return ((silo, (whose == silo).nonzero().flatten()) for silo in whose.unique().tolist())

    def _search(self, targets: Released, rows: Tensor, noise: Tensor, seed: int, tell: TargetsDone) -> Tensor:
        """The features behind rows of deeper layers, among the node's true neighbours: [t, f].

        Such rows depend on the node's own features through its embeddings alone, so that the search is in the
        directions of features that these show; in all others features stay at the prior mean.
        """
        used = [view for view in range(rows.shape[1]) if bool((noise[:, view] <= LIGHT * noise.amin(1)).any())]
        known = [targets.history.blocks[view].mean_parameters() for view in used]
        parts = []
        for some in self.context.together(targets.node, targets.layer):
            axes = Axes(self.priors, self.owner[targets.node[some]], [entrance(each) for each in known])
            around = self.context.around(targets.node[some], targets.layer)
            views = []
            for number, (view, parameters) in enumerate(zip(used, known, strict=True)):
                compute = _composed(around.rows(parameters), *axes.embedding(number), targets.clip)
                views.append(View(compute, rows[some, view], noise[some, view]))
            latent = infer(views, Knowledge([axes.prior], torch.zeros(len(some), dtype=torch.int64)), STARTS, seed)
            parts.append(axes.features(latent))
            tell(len(some))
        return torch.cat(parts)

    def guess(self, nodes: Tensor) -> Tensor:
        """The adversary's estimate of nodes' features without anything that they released: [t, f]."""
        return self.priors.means[self.owner[nodes]]


def _composed(rows: RowFunction, offset: Tensor, slope: Tensor, clip: float) -> RowFunction:
    """The function z -> clipped rows of the embeddings ``offset`` + ``slope`` z."""
    return lambda z: clipped(rows(offset + (slope @ z[:, :, None]).squeeze(2)), clip)


class Priors(Mapping[int, Prior]):
    """The prior of each silo's adversary, from features of all other silos' nodes; a few are kept in memory."""

    def __init__(self, context: Context) -> None:
        self._context, self._kept = context, dict[int, Prior]()
        mine = [(context.owner == i).nonzero().flatten() for i in range(len(context.stack.silos))]
        self._counts = torch.tensor([float(len(each)) for each in mine], dtype=torch.float64)
        totals = [context.features(each).sum(0) for each in mine]
        self._others = torch.stack(totals).sum(0) - torch.stack(totals)
        self._squares = torch.zeros(len(totals[0]), len(totals[0]), dtype=torch.float64)
        for each in mine:
            x = context.features(each)
            self._squares += x.T @ x

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __getitem__(self, silo: int) -> Prior:
        """The prior of the adversary of one silo."""
        if silo not in self._kept:
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            x = self._context.features((self._context.owner == silo).nonzero().flatten())
            self._kept[silo] = Prior.of(float(self._count[silo]), self._others[silo], self._squares - x.T @ x)
        return self._kept[silo]

    @property
    def _count(self) -> Tensor:
        """How many nodes all other silos have."""
        return (self._counts.sum() - self._counts).clamp(min=1)

    @property
    def means(self) -> Tensor:
        """The prior means: [silos, f]."""
        return self._others / self._count[:, None]


def near_distance(context: Context, nodes: Tensor) -> float:
    """The mean squared distance, per feature, of nodes to their near neighbours (a share ``NEAR`` of all nodes)."""
    everyone = context.features(torch.arange(context.stack.rows))
    count = max(1, math.ceil(NEAR * (len(everyone) - 1)))
    squares = everyone.square().sum(1)
    apart = (squares[nodes][:, None] + squares - 2 * everyone[nodes] @ everyone.T).clamp(min=0)
    apart[torch.arange(len(nodes)), nodes] = math.inf
    return float(apart.topk(count, largest=False).values.mean()) / everyone.shape[1]


def squared_error(x: Tensor, true: Tensor) -> float:
    """The mean squared error of estimated features."""
    return float((x - true).square().mean())
