"""The attacks of an audit on rows that a replayed run released, each with its findings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.audit.context import Context
from isthmus.audit.findings import AREA, ERROR, FEATURES, LINKS, NOT_TRIED, WORST_CASE, Finding
from isthmus.audit.journal import DEEP, Journal, Totals
from isthmus.audit.links import area, likeness, pairs_of
from isthmus.audit.request import AuditRequest
from isthmus.audit.ridge import regress
from isthmus.audit.row_attacks import Adversary, Released, near_distance, squared_error
from isthmus.audit.watching import Watch
from isthmus.core.kinds import Kind
from isthmus.protect.base import Chain
from isthmus.protect.events import Clipped, GaussianNoise
from isthmus.train.training import Training

COARSE = 7  # blocks of releases where noise is added afterwards
NEIGHBOURS_KNOWN = f"neighbours known ({WORST_CASE})"
FROM_OWN = "learnt from own nodes"


@dataclass(frozen=True)
class Scene:
    """What attacks work on: the adversary, the replayed run, the journal of its releases, and the audit's settings."""

    adversary: Adversary
    training: Training
    journal: Journal
    request: AuditRequest
    watch: Watch

    @property
    def context(self) -> Context:
        """The merged graph, to compute rows by and to score attacks."""
        return self.adversary.context

    def owned(self, rows: Tensor) -> Tensor:
        """The rows of the merged graph of owned rows of a stack with halos, as releases are counted by.

        Training may have one without, where rows cross to be scored alone.
        """
        silos = self.training.federation.silos
        own = torch.cat([torch.arange(silo.n + silo.h) < silo.n for silo in silos])
        return (own.cumsum(0) - 1)[rows]


def treatment(chain: Chain, kind: Kind) -> tuple[float, float]:
    """Clip and noise of messages of a kind, by the events of a chain of protection: (clip, sigma)."""
    for event in chain.events(kind):
        if isinstance(event, GaussianNoise):
            return event.clip, event.sigma
        if isinstance(event, Clipped):
            return event.clip, 0.0
    return math.inf, 0.0


def features_from_rows(scene: Scene) -> Iterator[Finding]:
    """Attribute inference from all releases of rows, at every layer and level of noise."""
    for layer in sorted(scene.journal.histories):
        if scene.request.deepest is None or layer <= scene.request.deepest:
            yield from _from_layer(scene, layer)
            if layer:
                yield from _learnt(scene, layer)


def _from_layer(scene: Scene, layer: int) -> Iterator[Finding]:
    """Attribute inference from the rows of one layer, by inverting the model among the nodes' true neighbours."""
    adversary, request = scene.adversary, scene.request
    clip, sigma = treatment(scene.training.wire.protect, Kind.EMBEDDINGS)
    nodes = scene.owned(scene.journal.watched)
    left = Released(layer, nodes, scene.journal.histories[layer], clip, sigma).that_left()
    targets, misfits = left.only(torch.arange(min(request.targets, len(left.node)))), adversary.misfits(left)
    if not adversary.manageable(targets, misfits):
        left = left.in_blocks(DEEP)
        targets, misfits = left.only(torch.arange(len(targets.node))), adversary.misfits(left)
    true = scene.context.features(targets.node)
    near, guess = near_distance(scene.context, targets.node), squared_error(adversary.guess(targets.node), true)
    levels = request.levels(sigma, layer)
    scene.watch.begin(f"rows of layer {layer}, targets", len(levels) * len(targets.node))
    last = float(misfits[-1].mean()) ** 0.5
    for added in levels:
        if added and len(targets.history.blocks) > COARSE + 1:  # under noise, what parameters' moves show is lost
            targets = targets.in_blocks(COARSE)
            misfits = adversary.misfits(left.in_blocks(COARSE))
        found = adversary.infer(targets, misfits, added, request.seed, scene.watch.advance)
        yield Finding(
            FEATURES, Kind.EMBEDDINGS.value, ERROR, squared_error(found, true), guess, layer,
            float(targets.history.counts.mean()), len(targets.node), math.hypot(sigma, added), added > 0,
            NEIGHBOURS_KNOWN if layer else "", details={"neighbours": near, "misfit": last},
        )  # fmt: skip


def _learnt(scene: Scene, layer: int) -> Iterator[Finding]:
    """Attribute inference from mean rows of one layer, by regression that is fitted on the adversary's own nodes."""
    totals = scene.journal.embeddings[layer]
    sigma = treatment(scene.training.wire.protect, Kind.EMBEDDINGS)[1]
    yield from regressed(scene, totals.mean, totals, Kind.EMBEDDINGS, layer, sigma, FROM_OWN)


def regressed(
    scene: Scene, rows: Tensor, totals: Totals, kind: Kind, layer: int | None, sigma: float, note: str
) -> Iterator[Finding]:
    """Attribute inference by regression of features on ``rows`` that left; for each silo fitted on all other silos."""
    left = (totals.counts > 0).nonzero().flatten()
    order = torch.randperm(len(left), generator=torch.Generator().manual_seed(scene.request.seed))
    left = left[order]
    node, errors, guesses, times = scene.owned(left), list[Tensor](), list[Tensor](), list[Tensor]()
    whose = scene.context.owner[node]
    for silo in whose[: scene.request.targets].unique().tolist():
        mine = (whose[: scene.request.targets] == silo).nonzero().flatten()
        others = (whose != silo).nonzero().flatten()
        if len(others) < 2:
            continue
        true = scene.context.features(node[mine])
        found = regress(rows[left[others]], scene.context.features(node[others]), rows[left[mine]])
        errors.append((found - true).square().mean(1))
        guesses.append((scene.adversary.guess(node[mine]) - true).square().mean(1))
        times.append(totals.counts[left[mine]])
    if errors:
        got, guess, releases = (float(torch.cat(each).mean()) for each in (errors, guesses, times))
        count = sum(map(len, errors))
        yield Finding(FEATURES, kind.value, ERROR, got, guess, layer, releases, count, sigma, note=note)


def links(scene: Scene) -> Iterator[Finding]:
    """Link inference from means over all releases of rows, at every layer."""
    for layer, totals in sorted(scene.journal.embeddings.items()):
        if scene.request.deepest is not None and layer > scene.request.deepest:
            continue
        at = (totals.counts > 0).nonzero().flatten()
        known = torch.zeros(len(scene.context.owner), dtype=torch.bool)
        node = scene.owned(at)
        known[node] = True
        rows = torch.zeros(len(known), totals.rows.shape[1], dtype=torch.float64).index_copy_(0, node, totals.mean[at])
        joined, apart = pairs_of(scene.context.stack.ends, scene.context.owner, known, scene.request.seed)
        sigma = treatment(scene.training.wire.protect, Kind.EMBEDDINGS)[1]
        if not joined.shape[1]:
            yield Finding(
                LINKS, Kind.EMBEDDINGS.value, NOT_TRIED, layer=layer, note="no two neighbours in one silo left"
            )
            continue
        centre = rows[known].mean(0)
        got = area(likeness(rows, joined, centre), likeness(rows, apart, centre))
        times, count = float(totals.counts[at].mean()), 2 * joined.shape[1]
        yield Finding(LINKS, Kind.EMBEDDINGS.value, AREA, got, 0.5, layer, times, count, sigma, unit="pairs")
