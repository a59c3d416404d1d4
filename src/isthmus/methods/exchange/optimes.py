"""OptimES: boundary embeddings pushed once a round, read as constants and one round old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.exchange.base import Beyond, Exchange, need_embedding, tell_holders, whole_graph
from isthmus.forward import layers
from isthmus.graph.features import Features
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class OptimES(Exchange):
    """Before layers 2 .. L,  h_v of every halo node v  <-  what its owner computed at the end of the last round.

    A pass before the first round fills the cache. A push uses each silo's own parameters, before they are averaged. The
    new rows are all computed before any is written: nobody pushes a row that is made of this round's rows.
    """

    @property
    def view(self) -> str:
        """At the first layer far ends are placeholders: raw features never cross."""
        return "placeholder"

    def begin(self, run: Run) -> None:
        """The pass before the first round."""
        need_embedding(run, "OptimES caches rows of one width")
        self._push(run)

    def round_end(self, run: Run) -> None:
        """Push, then let parameters be averaged."""
        self._push(run)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """Halo rows from the cache; the first layer, and the first push, have none."""
        cached = self.state.get(f"layer-{layer}")
        if cached is None:
            return Beyond(h)
        assert isinstance(h, Tensor)
        rows = batch.layout.read[layer]
        at = (~run.stack.owned[rows]).nonzero().flatten()
        return Beyond(h.index_copy(0, at, cached[run.boundary.place[rows[at]]]))

    @torch.no_grad()
    def _push(self, run: Run) -> None:
        """Every silo computes its boundary rows on its whole graph and sends those of the hidden layers."""
        batch = whole_graph(run, run.batcher)
        asked = run.wire.ask(run.boundary, run.boundary.halo)
        hidden = list(layers(run, batch, Pass(False, run.seed, run.step)))[:-1]
        for layer, h in enumerate(hidden, start=1):
            self.state[f"layer-{layer}"] = tell_holders(run, asked, h[asked.served], layer)

    def table_bytes(self, run: Run) -> list[int]:
        """Cached rows of a silo's halo."""
        row = sum(table.shape[1] * table.element_size() for table in self.state.values())
        return [row * silo.h for silo in run.federation.silos]
