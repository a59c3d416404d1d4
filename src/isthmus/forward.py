"""One forward pass: embed, then layer by layer with whatever the exchange brings, then the head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from isthmus.graph.features import take
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch

if TYPE_CHECKING:
    from isthmus.state import Run


def forward(run: Run, batch: Batch, training: bool) -> Tensor:
    """Logits of the batch's seeds: embed, then layer by layer with whatever the exchange brings, then the head."""
    this = Pass(training, run.seed, batch.step, run.total_moments)
    h = run.model.embed(batch.x, batch.x_rows, batch.ego)
    h = h if batch.feature_row is None else take(h, batch.feature_row)
    for layer, block in enumerate(batch.blocks):
        beyond = run.exchange.beyond(layer, h, batch, run)
        pre = run.model.convolve(layer, beyond.rows, block, beyond.partial)
        pre = run.exchange.settle(layer, pre, batch, run)
        h = run.model.finish(layer, pre, block.targets, this)
    if run.schema.target == "edge":  # both ends meet, wherever they live
        h = run.exchange.beyond(len(batch.blocks), h, batch, run).rows
        assert isinstance(h, Tensor)
        source, target = batch.ends
        return run.model.readout_edges(h[source], h[target], batch.seed_attr, batch.seed_rows)
    assert isinstance(h, Tensor)
    return run.model.readout(h[batch.ends[0]], batch.seed_rows)
