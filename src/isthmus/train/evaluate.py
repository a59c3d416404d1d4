"""Scores of the current parameters on a split, silo by silo and for the federation."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.graph.graph import Schema
from isthmus.methods.objective.base import LiveObjective
from isthmus.sample.order import Pool
from isthmus.train.metrics import Scores, led_by, metric_names, score_silos, weighted_mean
from isthmus.train.scorers import Scorer
from isthmus.wire.wire import Wire


def evaluate(scorer: Scorer, wire: Wire, objective: LiveObjective, split: int, pooled: bool = False) -> Scores:
    """Each silo scores its own seeds and tells the server the result; pooled scores export scores and labels."""
    train, schema = scorer.site.train, scorer.site.schema
    logits, y, _ = scorer.logits(split)
    pool, order = scorer.pool(split), led_by(train.metric, schema)
    names = tuple(metric_names(schema)[place] for place in order)
    mine = score_silos(logits, y, pool.ptr, schema, objective.minority)[:, order]
    silos = wire.share(Kind.METRICS, mine)
    weights = (pool.counts if train.average == "seeds" else pool.counts > 0).double()
    together = _pool(wire, schema, pool, logits, y, objective.minority)[order] if pooled else None
    members = tuple(wire.party(i) for i in range(wire.silos))
    return Scores(names, weighted_mean(silos, weights), silos, weights, members, together)


def _pool(wire: Wire, schema: Schema, pool: Pool, logits: Tensor, y: Tensor, minority: Tensor) -> Tensor:
    """Metrics over all silos' seeds together; every score and label goes to the server."""
    said: dict[int, Tensor] = {}
    for i, silo in enumerate(wire.mine):
        part = slice(pool.ptr[i], pool.ptr[i + 1])
        labels = y[part] if y.dim() == 2 else y[part, None]
        said[silo] = torch.cat([logits[part], labels.to(logits)], 1)
    heard = wire.gather(Kind.SCORES, said)
    verdict = None
    if heard is not None:
        rows, width = torch.cat(list(heard.values())), len(schema.labels)
        labels = rows[:, width:].long().squeeze(1) if schema.task == "classes" else rows[:, width:].long()
        verdict = score_silos(rows[:, :width], labels, (0, len(rows)), schema, minority)
    return wire.answer(Kind.METRICS, verdict)[0]
