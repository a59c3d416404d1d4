"""OptimES: owners push boundary embeddings once a round; others read them as constants until the next push."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.engine.forward import Beyond, layers
from isthmus.engine.site import Site
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import (
    Exchange,
    LiveExchange,
    Nothing,
    need_embedding,
    tell_holders,
    whole_graph,
)
from isthmus.methods.exchange.drift import Drift
from isthmus.nn.model import ModelConfig
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch


@dataclass(frozen=True)
class OptimES(Exchange):
    """Before layers 2 .. L,  h_v of every halo node v  <-  what its owner computed at the end of the last round.

    A pass before the first round fills the cache. A push uses each silo's own parameters, before they are averaged. The
    new rows are all computed before any is written: nobody pushes a row that is made of this round's rows.
    """

    name: ClassVar[str] = "optimes"
    stepwise: ClassVar[bool] = True  # cached rows are read within steps, if a schedule does not say otherwise

    @property
    def view(self) -> str:
        """At the first layer far ends are placeholders: raw features never cross."""
        return "placeholder"

    def check(self, model: ModelConfig) -> None:
        """Refuse a model without an embedding: the cache holds rows of one width."""
        need_embedding(model, "OptimES caches rows of one width")

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, whose cache is filled with rows of the first parameters before the first step."""
        return LiveOptimES(self, site)


class LiveOptimES(LiveExchange):
    """The cache of boundary embeddings: ``layer-l`` [halo rows, width] for each hidden layer l.

    ``filled`` says that there is one, so that a resumed run does not push again what it reads from its state.
    """

    def __init__(self, spec: OptimES, site: Site) -> None:
        super().__init__(spec, site)
        spec.check(site.model)
        self._batcher = site.batcher(site.train_stack, self.reads_halo)
        self._drift = Drift(site)

    @property
    def drift(self) -> Drift:
        """How far cached rows have moved in a round."""
        return self._drift

    def begin(self) -> None:
        """Fill the cache with rows of the first parameters, unless it is filled."""
        if "filled" not in self.state:
            self.state["filled"] = torch.ones(1, dtype=torch.bool, device=self.site.device)
            self.round_end()

    def apart(self, stack: Stack) -> tuple[LiveExchange, Stack]:
        """Far ends as the silo computes them from placeholders, at every layer."""
        return Nothing("placeholder").open(self.site), stack

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """Embedded features; the cache is filled by now."""
        self.begin()
        return super().enter(batch, this)

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Halo rows from the cache; the first layer, and the first push, have none."""
        cached = self.state.get(f"layer-{layer}")
        if cached is None:
            return Beyond(h)
        assert isinstance(h, Tensor)
        rows = batch.layout.read[layer]
        at = (~self.site.stack.owned[rows]).nonzero().flatten()
        return Beyond(h.index_copy(0, at, cached[self.site.boundary.place[rows[at]]]))

    @torch.no_grad()
    def round_end(self) -> None:
        """Every silo computes its boundary rows on its whole graph and sends those of the hidden layers."""
        site = self.site
        batch = whole_graph(site, self._batcher)
        asked = site.wire.ask(site.boundary, site.boundary.halo)
        hidden = list(layers(site.net, self, batch, site.passing(training=False, agree=False)))[:-1]
        every = torch.arange(len(site.boundary.halo), device=site.device)
        self._drift.begin()
        for layer, h in enumerate(hidden, start=1):
            told, old = tell_holders(site, asked, h[asked.served], layer), self.state.get(f"layer-{layer}")
            if old is not None:
                self._drift.compare(every, old, told)
            self.state[f"layer-{layer}"] = told

    def table_bytes(self) -> list[int]:
        """Bytes of the cached rows of a silo's halo."""
        tables = [table for name, table in self.state.items() if name.startswith("layer-")]
        row = sum(table.shape[1] * table.element_size() for table in tables)
        return [row * silo.h for silo in self.site.federation.silos]
