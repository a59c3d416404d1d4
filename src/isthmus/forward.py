"""One forward pass: embed, then layer by layer with whatever the exchange brings, then the head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch

if TYPE_CHECKING:
    from isthmus.state import Run


def layers(run: Run, batch: Batch, this: Pass) -> Iterator[Tensor]:
    """The target rows of each layer, first to last."""
    ready, h = run.exchange.enter(batch, run, this)
    if ready:
        assert isinstance(h, Tensor)
        yield h
    for layer, block in list(enumerate(batch.blocks))[ready:]:
        beyond = run.exchange.beyond(layer, h, batch, run, this)
        pre = run.model.convolve(layer, beyond.rows, block, beyond.partial)
        pre = run.exchange.settle(layer, pre, batch, run, this)
        h = run.model.finish(layer, pre, block.targets, this)
        yield h


def forward(run: Run, batch: Batch, training: bool) -> Tensor:
    """Logits of the batch's seeds."""
    this = Pass(training, run.seed, batch.step, run.total_moments)
    *_, h = layers(run, batch, this)
    if run.schema.target == "node":
        return run.model.readout(h[batch.ends[0]], batch.seed_rows)
    both = run.exchange.beyond(len(batch.blocks), h, batch, run, this).rows  # the two ends of an edge meet
    assert isinstance(both, Tensor)
    source, target = (run.exchange.meet(both[end], batch) for end in batch.ends)
    return run.model.readout_edges(source, target, batch.seed_attr, batch.seed_rows)
