"""CE-FedGNN's exchange: moving averages of every node's pre-activations; rows that changed cross once a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import Kind
from isthmus.engine.absence import AVERAGE, DROP, LAST
from isthmus.engine.forward import Beyond, layers
from isthmus.engine.site import Site
from isthmus.graph.features import Features
from isthmus.methods.exchange.absent_rows import AbsentRows, check_absent
from isthmus.methods.exchange.base import (
    Exchange,
    LiveExchange,
    agree_on_far_ends,
    need_embedding,
    tell_holders,
    whole_graph,
)
from isthmus.methods.exchange.drift import Drift
from isthmus.nn.block import Rows
from isthmus.nn.model import ModelConfig
from isthmus.nn.norm import Pass
from isthmus.protect.number_format import FORMATS
from isthmus.sample.batcher import Batcher
from isthmus.sample.batches import Batch


@dataclass(frozen=True)
class MovingAverage(Exchange):
    r"""Z_l(v) <- (1 - gamma) Z_l(v) + gamma (fresh pre-activation of layer l),  h_l(v) = activation of Z_l(v).

    Halo rows are constants: what their owners released at the end of the last round, zeros before the first release.
    For the first layer that is the learned input embedding, never x. Only rows that a silo has computed since its last
    release are released, before parameters are averaged.

    ``first``: a row's average starts from its first ``fresh`` value, or from ``zero``. ``backward``: the gradient
    passes the average as if it were the fresh value (``straight``), or shrunk by gamma (``plain``). ``table``: the
    number format in which averages are kept (``float32``, ``bfloat16``; empty: that of the run). ``cross``: from a
    labelled cross edge ``both`` silos learn, each by half and through its own end, or the owner of its ``target``. By
    half, the head gets its full gradient from the two of them, but the layers below only half of it; with ``correct``
    the gradient of an own end of a cross edge counts twice. ``scored_with``: parameters are scored with halo rows
    that their owners compute with them, a release of every boundary row (``fresh``), or with those of the last round
    (``released``), which other parameters have made. ``absent``: rows of silos that miss a round are as they were
    released ``last``, the moving ``average`` of what was released, or their edges are left out (``drop``).
    """

    gamma: float = 0.5
    first: str = "fresh"
    backward: str = "straight"
    table: str = ""
    cross: str = "both"
    correct: bool = False
    scored_with: str = "fresh"
    absent: str = LAST
    name: ClassVar[str] = "ce-fedgnn"

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise IsthmusError(f"exchange.gamma is {self.gamma}; it must lie in (0, 1].")
        for name, choices in (
            ("first", ("fresh", "zero")),
            ("backward", ("straight", "plain")),
            ("table", FORMATS),
            ("cross", ("both", "target")),
            ("scored_with", ("fresh", "released")),
        ):
            if getattr(self, name) not in choices:
                raise unknown(f"exchange.{name}", getattr(self, name), [choice for choice in choices if choice])
        if self.correct and self.cross != "both":
            raise IsthmusError("exchange.correct makes up for halves, which exchange.cross=target does not have.")
        check_absent(self.absent)

    @property
    def leaves_out(self) -> bool:
        """Whether edges to nodes of absent silos are left out."""
        return self.absent == DROP

    @property
    def view(self) -> str:
        """Far ends are rows without neighbours of their own."""
        return "halo"

    @property
    def doubles(self) -> bool:
        """Whether both silos of a labelled cross edge learn from it."""
        return self.cross == "both"

    def with_batches(self, batches: str) -> Exchange:
        """In a joint batch every edge is drawn once, so that one silo learns from it."""
        return self if batches == "local" else replace(self, cross="target", correct=False)

    def check(self, model: ModelConfig) -> None:
        """Refuse a model without an embedding, whose raw features would be released."""
        need_embedding(model, "CE-FedGNN would release raw features")

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, with empty tables; degrees and ports of far ends are agreed on now."""
        return LiveMovingAverage(self, site)


class LiveMovingAverage(LiveExchange):
    """The tables of averages and of released halo rows, by layer.

    ``average-l`` [owned rows, width], ``halo-l`` [halo rows, width], and of owned rows which were ``seen`` at all and
    which ``changed`` since their last release; of halo rows which have ``arrived`` at all.
    """

    spec: MovingAverage

    def __init__(self, spec: MovingAverage, site: Site) -> None:
        super().__init__(spec, site)
        spec.check(site.model)
        agree_on_far_ends(site)
        self.place = site.stack.own_line  # [stack rows] the line of an owned row in the tables
        self.fresh: dict[int, Tensor] = {}  # halo rows to score with, by layer
        self._drift = Drift(site)
        self._absent = AbsentRows(self, spec.absent)
        owned, halo, width = int(site.stack.owned.sum()), len(site.boundary.halo), site.model.hidden
        kept = FORMATS[spec.table] or site.dtype
        for layer in range(site.model.layers + 1):
            self.state[f"average-{layer}"] = torch.zeros(owned, width, dtype=kept, device=site.device)
            self.state[f"halo-{layer}"] = torch.zeros(halo, width, dtype=kept, device=site.device)
            self.state[f"seen-{layer}"] = torch.zeros(owned, dtype=torch.bool, device=site.device)
            self.state[f"changed-{layer}"] = torch.zeros(owned, dtype=torch.bool, device=site.device)
            self.state[f"arrived-{layer}"] = torch.zeros(halo, dtype=torch.bool, device=site.device)

    @property
    def drift(self) -> Drift:
        """How far released rows have moved in a round."""
        return self._drift

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Own rows as they are and halo rows as last released; fresh halo rows where parameters are scored so."""
        assert isinstance(h, Tensor)
        if layer == 0 and this.training:  # the input embedding is no average: it is kept as it was last used
            self._keep(0, batch.layout.held[0], h.detach())
        released = self._released(layer)
        return _with_halo(self.site, layer, h, batch, released if this.training else self.fresh.get(layer, released))

    def settle(self, layer: int, pre: Tensor, batch: Batch, this: Pass) -> Tensor:
        """In training, average what was computed with what is kept; an evaluation leaves the averages alone."""
        if not this.training or layer >= len(self.site.net.norms):  # logits are nobody's input
            return pre
        at = self.place[batch.layout.held[layer + 1]]
        old, seen = self.state[f"average-{layer + 1}"][at].to(pre.dtype), self.state[f"seen-{layer + 1}"][at]
        pace = torch.where(seen | (self.spec.first == "zero"), self.spec.gamma, 1.0).to(pre.dtype)[:, None]
        average = (1 - pace) * old + pace * pre
        self._keep(layer + 1, batch.layout.held[layer + 1], average.detach())
        return pre + (average - pre).detach() if self.spec.backward == "straight" else average

    def meet(self, ends: Tensor, batch: Batch) -> Tensor:
        """With ``correct``, double the gradient of ends of cross edges; a far end has none anyway."""
        if not self.spec.correct or batch.seeds.share is None:
            return ends
        crosses = (batch.seeds.share < 1).to(ends.dtype)[:, None]
        return ends + crosses * (ends - ends.detach())

    def _released(self, layer: int) -> Tensor:
        """Halo rows as last released; of absent silos their moving averages, where these were asked for."""
        return self._absent.patched(layer, self.state[f"halo-{layer}"])

    def _keep(self, layer: int, held: Tensor, rows: Tensor) -> None:
        """Write averages of the owned stack rows ``held``; those of absent silos stand still."""
        if not self.site.wire.members.complete:
            stay = self.site.present(held)
            held, rows = held[stay], rows[stay]
        at, table = self.place[held], self.state[f"average-{layer}"]
        table[at] = rows.to(table.dtype)
        self.state[f"seen-{layer}"][at] = True
        self.state[f"changed-{layer}"][at] = True

    @torch.no_grad()
    def round_end(self) -> None:
        """Release the boundary rows that changed, layer by layer; the others stand as they were last released."""
        self._drift.begin()
        here = self.site.present(self.site.stack.owned.nonzero().flatten())
        count = self.site.model.layers + (self.site.schema.target == "edge")  # ends of edges meet after the last layer
        for layer in range(count):
            changed = self.state[f"changed-{layer}"]
            places = changed[self.place[self.site.boundary.served]].nonzero().flatten()
            offered = self.site.wire.offer(self.site.boundary, places)
            leaving, arriving = offered.lots(self.site.wire.silos)
            fresh = self._activated(layer, offered.served)
            rows = self.site.wire.move(Kind.EMBEDDINGS, fresh, leaving, arriving, layer)
            halo, places = self.state[f"halo-{layer}"], self.site.boundary.place[offered.halo]
            known = self.state[f"arrived-{layer}"][places].nonzero().flatten()
            self._drift.compare(places[known], halo[places[known]].to(rows.dtype), rows[known])
            halo[places], self.state[f"arrived-{layer}"][places] = rows.to(halo.dtype), True
            if self.site.absence.goes_on and self.spec.absent == AVERAGE:
                self._absent.keep(layer, places, rows)
            changed[here] = False

    def welcome(self, back: Sequence[int]) -> None:
        """All rows that silos hold which are ``back`` are released to them again when the round ends."""
        boundary, silos = self.site.boundary, self.site.wire.silos
        missed = torch.isin(boundary.served_pair % silos, torch.tensor(list(back), device=self.site.device))
        at = self.place[boundary.served[missed]]
        for name in [name for name in self.state if name.startswith("changed-")]:
            self.state[name][at] |= self.state[name.replace("changed", "seen")][at]

    @torch.no_grad()
    def score_begin(self, batcher: Batcher) -> None:
        """Compute fresh halo rows to score with: all silos compute all their rows and release them layer by layer."""
        self.fresh = {}
        if self.spec.scored_with == "released":
            return
        site, release = self.site, ReleaseOfAllRows(self.spec, self.site, self._released)
        batch, this = whole_graph(site, batcher), site.passing(training=False)
        *_, h = layers(site.net, release, batch, this)
        if site.schema.target == "edge":
            release.beyond(len(batch.blocks), h, batch, this)
        self.fresh = release.halo

    def table_bytes(self) -> list[int]:
        """Bytes of the averages of a silo's own nodes and of released rows of its halo, at every layer."""
        tables = [table for name, table in self.state.items() if name.startswith(("average-", "halo-"))]
        row = sum(table.shape[1] * table.element_size() for table in tables) // 2  # a row is in one of two tables
        return [row * (silo.n + silo.h) for silo in self.site.federation.silos]

    def _activated(self, layer: int, at: Tensor) -> Tensor:
        """The embeddings to release for stack rows ``at``: activations of their averages, without dropout."""
        rows = self.state[f"average-{layer}"][self.place[at]].to(self.site.dtype)
        if layer == 0 or not len(at):
            return rows
        order = torch.argsort(at, stable=True)  # by silo, as parameters and moments lie
        whose = Rows(self.site.stack.segments(at[order]), self.site.stack.keys[at[order]])
        done = self.site.net.finish(layer - 1, rows[order], whose, self.site.passing(training=False, agree=False))
        return torch.empty_like(done).index_copy_(0, order, done)


class ReleaseOfAllRows(LiveExchange):
    """A pass over whole graphs in which owners release every boundary row at every layer, as they compute it.

    ``halo`` keeps what arrived, by layer: [halo rows, width]; of absent silos what was ``released`` before.
    """

    def __init__(self, spec: MovingAverage, site: Site, released: Callable[[int], Tensor]) -> None:
        super().__init__(spec, site)
        self.released = released
        self.halo: dict[int, Tensor] = {}

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Own rows, and halo rows that their owners release now."""
        assert isinstance(h, Tensor)
        asked = self.site.wire.ask(self.site.boundary, self.site.boundary.halo)
        own = h[torch.searchsorted(batch.layout.held[layer], asked.served)]
        self.halo[layer] = tell_holders(self.site, asked, own, layer, self.released(layer))
        return _with_halo(self.site, layer, h, batch, self.halo[layer])


def _with_halo(site: Site, layer: int, h: Tensor, batch: Batch, table: Tensor) -> Beyond:
    """What a layer reads: rows ``h`` that this host holds, and rows of far ends from ``table`` [halo rows, width]."""
    if not len(site.boundary.halo):
        return Beyond(h)
    held, read = batch.layout.held[layer], batch.layout.read[layer]
    rows = table[site.boundary.place[read].clamp(min=0)].to(h.dtype)
    return Beyond(rows.index_copy(0, torch.searchsorted(read, held), h))
