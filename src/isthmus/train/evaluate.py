"""Scores of the current parameters on a split: silo by silo, their mean, and of all predictions together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.graph.graph import Schema
from isthmus.methods.objective.base import LiveObjective
from isthmus.train.alert_figures import DAY, RareScores, can_alert, rare_scores
from isthmus.train.metrics import Scores, check_scores, led_by, metric_names, score_silos, weighted_mean
from isthmus.train.scorers import Scorer
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class SeedsBySilo:
    """Scored seeds of this host, grouped by silo; in a merged run by the silos that were merged."""

    logits: Tensor
    y: Tensor
    ptr: tuple[int, ...]
    index: Tensor  # the row of the stack, or the edge, that each seed is


def evaluate(scorer: Scorer, wire: Wire, objective: LiveObjective, split: int, pool: bool = False) -> Scores:
    """Scores of the current parameters on a split: each silo scores its own seeds and tells the server the result.

    ``pool``: also score all predictions together. In one process that costs nothing. Between hosts every score and
    label would go to the server, and it is done only where ``train.pooled`` asks for it.
    """
    train, schema = scorer.site.train, scorer.site.schema
    order = led_by(train.metric, schema)
    found, counts, names = _grouped(scorer, wire, split)
    mine = score_silos(found.logits, found.y, found.ptr, schema, objective.minority)[:, order]
    merged = len(names) != wire.silos
    silos = mine if merged else wire.share(Kind.METRICS, mine)
    if not merged and not wire.members.complete:
        silos[[silo for silo in range(wire.silos) if silo not in wire.members.present]] = torch.nan
    check_scores(silos, names)
    weights = (counts if train.average == "seeds" else counts > 0).double()
    together = _pooled(wire, schema, found, objective.minority, train.pooled) if pool else None
    lead = tuple(metric_names(schema)[place] for place in order)
    overall = weighted_mean(silos, weights)
    pooled = None if together is None else together[order]
    rare = _rare(scorer, wire, found, names, objective.minority) if pool and can_alert(schema) else None
    return Scores(lead, overall, silos, weights, names, counts, pooled, rare)


def _rare(scorer: Scorer, wire: Wire, found: SeedsBySilo, names: tuple[str, ...], minority: Tensor) -> RareScores:
    """Predictions of the rare class on this host, where they stay."""
    mine = names if len(found.ptr) == len(names) + 1 else tuple(names[silo] for silo in wire.mine)
    times = scorer.layout.edge_time if scorer.site.schema.target == "edge" else None
    day = None if times is None else torch.div(times[found.index.cpu()], DAY, rounding_mode="floor")
    return rare_scores(found.logits, found.y, day, found.ptr, mine, int(minority))


def _grouped(scorer: Scorer, wire: Wire, split: int) -> tuple[SeedsBySilo, Tensor, tuple[str, ...]]:
    """Scored seeds of this host by silo, how many every silo of the federation has, and the silos' names."""
    logits, y, index = scorer.logits(split)
    parts = scorer.site.federation.silos[0].merged_from if wire.silos == 1 else ()
    if len(parts) < 2:
        pool = scorer.pool(split)
        return SeedsBySilo(logits, y, pool.ptr, index), pool.counts, tuple(wire.party(i) for i in range(wire.silos))
    stack, on_nodes = scorer.layout.stack, scorer.site.schema.target == "node"
    first = torch.tensor([size for _, size in parts], device=index.device).cumsum(0)
    whose = torch.searchsorted(first, index if on_nodes else stack.seed_end(index), right=True)
    order = torch.argsort(whose, stable=True)
    counts = torch.bincount(whose, minlength=len(parts)).cpu()
    found = SeedsBySilo(logits[order], y[order], (0, *counts.cumsum(0).tolist()), index[order])
    return found, counts, tuple(name for name, _ in parts)


def _pooled(wire: Wire, schema: Schema, found: SeedsBySilo, minority: Tensor, asked: bool) -> Tensor | None:
    """Metrics over all silos' seeds together; None where they would have to cross and nobody asked for it."""
    if asked:
        return _gathered(wire, schema, found, minority)
    if wire.hosts > 1:
        return None
    return score_silos(found.logits, found.y, (0, len(found.logits)), schema, minority)[0]


def _gathered(wire: Wire, schema: Schema, found: SeedsBySilo, minority: Tensor) -> Tensor:
    """Metrics over all silos' seeds together, by the server, to which every score and label goes."""
    said: dict[int, Tensor] = {}
    spans = zip(found.ptr, found.ptr[1:], strict=False) if len(found.ptr) == len(wire.mine) + 1 else [(0, None)]
    for silo, (a, b) in zip(wire.mine, spans, strict=False):
        labels = found.y[a:b] if found.y.dim() == 2 else found.y[a:b, None]
        said[silo] = torch.cat([found.logits[a:b], labels.to(found.logits)], 1)
    heard = wire.gather(Kind.SCORES, said)
    verdict = None
    if heard is not None:
        rows, width = torch.cat(list(heard.values())), len(schema.labels)
        labels = rows[:, width:].long().squeeze(1) if schema.task == "classes" else rows[:, width:].long()
        verdict = score_silos(rows[:, :width], labels, (0, len(rows)), schema, minority)
    return wire.answer(Kind.METRICS, verdict)[0]
