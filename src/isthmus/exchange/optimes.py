"""OptimES: boundary embeddings pushed once a round, read as constants and one round old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.exchange.base import Beyond, Exchange
from isthmus.forward import layers
from isthmus.graph.boundary import build_boundary
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch, Seeds
from isthmus.sample.neighbours import Sampler
from isthmus.wire.ledger import Kind
from isthmus.wire.route import Boundary

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class OptimES(Exchange):
    """Before layers 2 .. L,  h_v of every halo node v  <-  what its owner computed at the end of the last round.

    A pass before the first round fills the cache. A push uses each silo's own parameters, before they are averaged. The
    new rows are all computed before any is written: nobody pushes a row that is made of this round's rows.
    """

    boundary: Boundary = field(init=False, repr=False)

    @property
    def view(self) -> str:
        """At the first layer far ends are placeholders: raw features never cross."""
        return "placeholder"

    def sampler(self, run: Run, stack: Stack, fanout: Sequence[int], directed: bool) -> Sampler:
        """Each silo samples by itself."""
        self.boundary = build_boundary(run.wire, run.federation.plan, stack)
        return super().sampler(run, stack, fanout, directed)

    def begin(self, run: Run) -> None:
        """The pass before the first round."""
        if not run.model.config.embed:
            raise IsthmusError("OptimES caches rows of one width; give the model an embedding, model.embed=true.")
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
        return Beyond(h.index_copy(0, at, cached[self.boundary.place[rows[at]]]))

    @torch.no_grad()
    def _push(self, run: Run) -> None:
        """Every silo computes its boundary rows on its whole graph and sends those of the hidden layers."""
        none = torch.zeros(0, dtype=torch.int64, device=run.device)
        mine = len(run.wire.mine)
        batch = run.batcher.whole(Seeds(none, none, (0,) * (mine + 1), 0, torch.zeros(mine)), run.step)
        asked = run.wire.ask(self.boundary, self.boundary.halo)
        served, halo = asked.lots(run.wire.silos)
        hidden = list(layers(run, batch, Pass(False, run.seed, run.step)))[:-1]
        for layer, h in enumerate(hidden, start=1):
            rows = run.wire.move(Kind.EMBEDDINGS, h[asked.served], served, halo)
            self.state[f"layer-{layer}"] = torch.empty_like(rows).index_copy_(0, self.boundary.place[asked.halo], rows)
