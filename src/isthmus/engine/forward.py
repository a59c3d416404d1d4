"""One forward pass: embed, then layer by layer with whatever the exchange brings, then the head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from isthmus.graph.features import Features
from isthmus.nn.edges import Edges
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch

if TYPE_CHECKING:
    from isthmus.state import Run


class _Step(NamedTuple):
    """One layer's rows."""

    read: Features  # with what came from beyond the boundary
    made: Tensor


def layers(run: Run, batch: Batch, this: Pass) -> Iterator[Tensor]:
    """The target rows of each layer, first to last."""
    return (step.made for step in _steps(run, batch, this))


def _steps(run: Run, batch: Batch, this: Pass) -> Iterator[_Step]:
    """The layers one after the other."""
    edge: Edges | None = None
    ready, h = batch.exchange.enter(batch, run, this)
    if ready:
        assert isinstance(h, Tensor)
        yield _Step(h, h)
    for layer, block in list(enumerate(batch.blocks))[ready:]:
        beyond = batch.exchange.beyond(layer, h, batch, run, this)
        edge = run.model.edges(layer, beyond.rows, block, edge)
        pre = run.model.convolve(layer, beyond.rows, block, edge, beyond.partial)
        pre = batch.exchange.settle(layer, pre, batch, run, this)
        h = run.model.finish(layer, pre, block.targets, this)
        yield _Step(beyond.rows, h)


def forward(run: Run, batch: Batch, training: bool) -> Tensor:
    """Logits of the batch's seeds."""
    this = Pass(training, run.seed, batch.step, run.total_moments)
    if run.schema.target == "edge":
        return _score_edges(run, batch, this)
    *_, h = layers(run, batch, this)
    return run.model.readout(h[batch.ends[0]], batch.seed_rows)


def _score_edges(run: Run, batch: Batch, this: Pass) -> Tensor:
    """Logits of seed edges: both ends meet in the head, with edge updates already after every layer."""
    met: list[tuple[Tensor, Tensor]] = []
    for layer, step in enumerate(_steps(run, batch, this)):
        if layer and run.model.edge_updates is not None:
            met.append(_ends(layer, step.read, run, batch))
    last = len(batch.blocks)
    met.append(_ends(last, batch.exchange.beyond(last, step.made, batch, run, this).rows, run, batch))
    assert batch.seed_edges is not None
    edge = run.model.seed_edges(batch.seed_edges, met)
    return run.model.readout_edges(*met[-1], edge, batch.seed_rows)


def _ends(layer: int, rows: Features, run: Run, batch: Batch) -> tuple[Tensor, Tensor]:
    """The rows of both ends of the seed edges, among those that a layer reads."""
    assert isinstance(rows, Tensor)
    read, ends = batch.layout.read, batch.ends
    if read[layer] is not read[-1]:
        ends = tuple(torch.searchsorted(read[layer], read[-1][end]) for end in ends)
    source, target = (batch.exchange.meet(rows[end], batch) for end in ends)
    return source, target
