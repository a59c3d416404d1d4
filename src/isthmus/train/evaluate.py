"""Scores of the current parameters on a split, silo by silo and for the federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.forward import forward
from isthmus.graph.graph import SPLIT_NAMES
from isthmus.metrics import led_by, metric_names, score_silos, weighted_mean
from isthmus.sample.order import draw_batches
from isthmus.wire.ledger import SERVER, Kind

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass(frozen=True)
class Scores:
    """Metrics of one split: of every silo, their mean by ``weights`` and, if asked for, of all predictions pooled.

    The first metric is the one that models are selected by.
    """

    names: tuple[str, ...]
    overall: Tensor  # [metrics], the mean over silos
    silos: Tensor  # [silos, metrics]
    weights: Tensor  # [silos]
    members: tuple[str, ...]  # names of the silos
    pooled: Tensor | None = None  # [metrics]

    def as_dict(self) -> dict[str, float | None]:
        """Overall metrics by name; None where nothing could be scored."""
        return _named(self.names, self.overall)

    def pooled_dict(self) -> dict[str, float | None]:
        """Metrics of all silos' predictions together, by name; empty unless asked for."""
        return {} if self.pooled is None else _named(self.names, self.pooled)

    def per_silo(self) -> dict[str, dict[str, float | None]]:
        """Metrics of each silo by name."""
        return {name: _named(self.names, row) for name, row in zip(self.members, self.silos, strict=True)}


def _named(names: tuple[str, ...], row: Tensor) -> dict[str, float | None]:
    return {n: float(v) if bool(torch.isfinite(v)) else None for n, v in zip(names, row, strict=True)}


@torch.no_grad()
def predict(run: Run, split: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels and stack index of every seed of a split on this host, grouped by silo."""
    pool = run.pools[split]
    run.exchange.score_begin(run, SPLIT_NAMES[split])
    logits, labels, index = [], [], []
    drawn = draw_batches(pool, run.wire, run.order, run.train.batch, run.seed, SPLIT_NAMES[split], 0)
    for number, seeds in enumerate(drawn):
        batch = run.make_batch(seeds, number, purpose=SPLIT_NAMES[split])
        logits.append(forward(run, batch, training=False))
        labels.append(batch.y)
        index.append(seeds.index)
    if not logits:
        empty = torch.zeros(0, dtype=torch.int64)
        return torch.zeros(0, len(run.schema.labels)), run.labels[:0], empty
    order = torch.argsort(torch.cat(index), stable=True)
    return torch.cat(logits)[order], torch.cat(labels)[order], torch.cat(index)[order]


def evaluate(run: Run, split: int, pooled: bool = False) -> Scores:
    """Each silo scores its own seeds and tells the server the result; pooled scores export scores and labels."""
    logits, y, _ = predict(run, split)
    order = led_by(run.train.metric, run.schema)
    names = tuple(metric_names(run.schema)[place] for place in order)
    mine = score_silos(logits, y, run.pools[split].ptr, run.schema, run.minority)[:, order]
    silos = run.wire.share(Kind.METRICS, mine)
    counts = run.pools[split].counts
    weights = (counts if run.train.average == "seeds" else counts > 0).double()
    together = _pool(run, split, logits, y)[order] if pooled else None
    members = tuple(run.wire.party(i) for i in range(run.wire.silos))
    return Scores(names, weighted_mean(silos, weights), silos, weights, members, together)


def _pool(run: Run, split: int, logits: Tensor, y: Tensor) -> Tensor:
    """Metrics over all silos' seeds together; every score and label goes to the server."""
    ptr = run.pools[split].ptr
    sent: dict[tuple[int, int], Tensor] = {}
    for i, silo in enumerate(run.wire.mine):
        part = slice(ptr[i], ptr[i + 1])
        labels = y[part] if y.dim() == 2 else y[part, None]
        sent[silo, SERVER] = torch.cat([logits[part], labels.to(logits)], 1)
    got = run.wire.post(Kind.SCORES, sent)
    answer: dict[tuple[int, int], Tensor] = {}
    if run.wire.serves:
        rows = torch.cat([got[silo, SERVER] for silo in range(run.wire.silos)])
        width = len(run.schema.labels)
        labels = rows[:, width:].long().squeeze(1) if run.schema.task == "classes" else rows[:, width:].long()
        overall = score_silos(rows[:, :width], labels, (0, len(rows)), run.schema, run.minority)
        answer = {(SERVER, silo): overall for silo in range(run.wire.silos)}
    return run.wire.post(Kind.METRICS, answer)[SERVER, run.wire.mine[0]][0]
