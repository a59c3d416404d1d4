"""OptimES: owners push boundary embeddings once a round; others read them as constants until the next push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import unknown
from isthmus.engine.absence import AVERAGE, DROP, LAST
from isthmus.engine.forward import Beyond, layers
from isthmus.engine.site import Site
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.absent_rows import AbsentRows, check_absent
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
from isthmus.sample.batcher import Batcher
from isthmus.sample.batches import Batch
from isthmus.wire.route import Asked


@dataclass(frozen=True)
class OptimES(Exchange):
    """Before layers 2 .. L,  h_v of every halo node v  <-  what its owner computed at the end of the last round.

    A pass before the first round fills the cache. A push uses each silo's own parameters, before they are averaged. The
    new rows are all computed before any is written: nobody pushes a row that is made of this round's rows.

    ``scored_with``: parameters are scored with rows that owners compute with them, layer by layer, a push of every
    boundary row (``fresh``); or with those of the last push (``released``), which other parameters have made.
    ``absent``: rows of silos that miss a round are those that they pushed ``last``, the moving ``average`` of their
    pushes, or their edges are left out (``drop``).
    """

    scored_with: str = "fresh"
    absent: str = LAST
    name: ClassVar[str] = "optimes"
    stepwise: ClassVar[bool] = True  # cached rows are read within steps, if a schedule does not say otherwise

    def __post_init__(self) -> None:
        check_absent(self.absent)
        if self.scored_with not in (choices := ("fresh", "released")):
            raise unknown("exchange.scored_with", self.scored_with, choices)

    @property
    def leaves_out(self) -> bool:
        """Whether edges to nodes of absent silos are left out."""
        return self.absent == DROP

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

    spec: OptimES

    def __init__(self, spec: OptimES, site: Site) -> None:
        super().__init__(spec, site)
        spec.check(site.model)
        self._batcher = site.batcher(site.train_stack, self.reads_halo)
        self._drift = Drift(site)
        self._absent = AbsentRows(self, spec.absent)
        self.fresh: dict[int, Tensor] = {}  # halo rows to score with, by layer

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
        """Halo rows from the cache; the first layer, and the first push, have none. Scores have fresh ones."""
        cached = self.state.get(f"layer-{layer}")
        table = cached if this.training else self.fresh.get(layer, cached)
        return _with_halo(self.site, layer, h, batch, None if table is None else self._absent.patched(layer, table))

    @torch.no_grad()
    def score_begin(self, batcher: Batcher) -> None:
        """Compute fresh halo rows to score with: all silos push the rows of every hidden layer, one after the other."""
        self.fresh = {}
        if self.spec.scored_with == "released":
            return
        site = self.site
        push = PushOfHiddenRows(self.spec, site, site.wire.ask(site.boundary, site.boundary.halo), self.state)
        for _ in layers(site.net, push, whole_graph(site, batcher), site.passing(training=False)):
            pass
        self.fresh = push.halo

    @torch.no_grad()
    def round_end(self) -> None:
        """Every silo computes its boundary rows on its whole graph and sends those of the hidden layers."""
        site, self.fresh = self.site, {}
        batch = whole_graph(site, self._batcher)
        asked = site.wire.ask(site.boundary, site.boundary.halo)
        hidden = list(layers(site.net, self, batch, site.passing(training=False, agree=False)))[:-1]
        places = site.boundary.place[asked.halo]
        self._drift.begin()
        for layer, h in enumerate(hidden, start=1):
            old = self.state.get(f"layer-{layer}")
            told = tell_holders(site, asked, h[asked.served], layer, old)
            if old is not None:
                self._drift.compare(places, old[places], told[places])
            if site.absence.goes_on and self.spec.absent == AVERAGE:
                self._absent.keep(layer, places, told[places])
            self.state[f"layer-{layer}"] = told

    def table_bytes(self) -> list[int]:
        """Bytes of the cached rows of a silo's halo."""
        tables = [table for name, table in self.state.items() if name.startswith("layer-")]
        row = sum(table.shape[1] * table.element_size() for table in tables)
        return [row * silo.h for silo in self.site.federation.silos]


class PushOfHiddenRows(LiveExchange):
    """A pass over whole graphs in which owners push what each hidden layer makes of their boundary rows.

    ``halo`` keeps what arrived, by layer: [halo rows, width]; absent silos' rows are those ``kept`` of earlier pushes.
    """

    def __init__(self, spec: OptimES, site: Site, asked: Asked, kept: Mapping[str, Tensor]) -> None:
        super().__init__(spec, site)
        self.asked, self.kept = asked, kept
        self.halo: dict[int, Tensor] = {}

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Placeholders at the first layer; at later ones rows that their owners push now."""
        if layer and isinstance(h, Tensor):
            self.halo[layer] = tell_holders(
                self.site, self.asked, h[self.asked.served], layer, self.kept.get(f"layer-{layer}")
            )
        return _with_halo(self.site, layer, h, batch, self.halo.get(layer))


def _with_halo(site: Site, layer: int, h: Features, batch: Batch, table: Tensor | None) -> Beyond:
    """What a layer reads: rows ``h``, those of far ends replaced by the ones in ``table`` [halo rows, width]."""
    if table is None:
        return Beyond(h)
    assert isinstance(h, Tensor)
    rows = batch.layout.read[layer]
    at = (~site.stack.owned[rows]).nonzero().flatten()
    return Beyond(h.index_copy(0, at, table[site.boundary.place[rows[at]]]))
