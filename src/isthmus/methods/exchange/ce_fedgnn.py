"""CE-FedGNN: moving averages of every node's pre-activations; what changed crosses once a round."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.errors import IsthmusError, unknown
from isthmus.exchange.base import Beyond, Exchange, agree_on_far_ends, need_embedding, tell_holders, whole_graph
from isthmus.forward import layers
from isthmus.graph.features import Features
from isthmus.nn.block import Rows
from isthmus.nn.norm import Pass
from isthmus.protect.base import FORMATS
from isthmus.sample.batches import Batch
from isthmus.wire.ledger import Kind

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
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
    the gradient of an own end of a cross edge counts twice. ``score``: parameters are scored with halo rows that their
    owners compute with them, a release of every boundary row (``fresh``), or with those of the last round
    (``released``), which other parameters have made.
    """

    gamma: float = 0.5
    first: str = "fresh"
    backward: str = "straight"
    table: str = ""
    cross: str = "both"
    correct: bool = False
    score: str = "fresh"
    fresh: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)  # halo rows to score with, by layer
    telling: bool = field(default=False, init=False, repr=False)  # while they are computed
    place: Tensor = field(init=False, repr=False)  # [stack rows] the line of an owned row in the tables

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise IsthmusError(f"exchange.gamma is {self.gamma}; it must lie in (0, 1].")
        for name, choices in (
            ("first", ("fresh", "zero")),
            ("backward", ("straight", "plain")),
            ("table", FORMATS),
            ("cross", ("both", "target")),
            ("score", ("fresh", "released")),
        ):
            if getattr(self, name) not in choices:
                raise unknown(f"exchange.{name}", getattr(self, name), [choice for choice in choices if choice])
        if self.correct and self.cross != "both":
            raise IsthmusError("exchange.correct makes up for halves, which exchange.cross=target does not have.")

    @property
    def view(self) -> str:
        """Far ends are rows without neighbours of their own."""
        return "halo"

    @property
    def doubles(self) -> bool:
        """As ``cross`` says."""
        return self.cross == "both"

    def with_batches(self, batches: str) -> Exchange:
        """In a joint batch every edge is drawn once, so that one silo learns from it."""
        return self if batches == "local" else replace(self, cross="target", correct=False)

    def begin(self, run: Run) -> None:
        """Agree on degrees and ports of far ends; nothing is known of any row yet."""
        need_embedding(run, "CE-FedGNN would release raw features")
        agree_on_far_ends(run)
        self.place = run.stack.own_line
        owned, halo, width = int(run.stack.owned.sum()), len(run.boundary.halo), run.model.config.hidden
        kept = FORMATS[self.table] or run.dtype
        for layer in range(run.model.config.layers + 1):
            self.state[f"average-{layer}"] = torch.zeros(owned, width, dtype=kept, device=run.device)
            self.state[f"halo-{layer}"] = torch.zeros(halo, width, dtype=kept, device=run.device)
            self.state[f"seen-{layer}"] = torch.zeros(owned, dtype=torch.bool, device=run.device)
            self.state[f"changed-{layer}"] = torch.zeros(owned, dtype=torch.bool, device=run.device)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """My own rows as they are, halo rows as they were released."""
        assert isinstance(h, Tensor)
        held, read = batch.layout.held[layer], batch.layout.read[layer]
        if layer == 0 and this.training:  # the input embedding is no average: it is kept as it was last used
            self._keep(0, self.place[held], h.detach())
        if self.telling:
            self.fresh[layer] = self._told(layer, h, held, run)
        if not len(run.boundary.halo):
            return Beyond(h)
        table = self.state[f"halo-{layer}"] if this.training else self.fresh.get(layer, self.state[f"halo-{layer}"])
        rows = table[run.boundary.place[read].clamp(min=0)].to(h.dtype)
        return Beyond(rows.index_copy(0, torch.searchsorted(read, held), h))

    def settle(self, layer: int, pre: Tensor, batch: Batch, run: Run, this: Pass) -> Tensor:
        """In training, average what was computed with what is kept; an evaluation leaves the averages alone."""
        if not this.training or layer >= len(run.model.norms):  # logits are nobody's input
            return pre
        at = self.place[batch.layout.held[layer + 1]]
        old, seen = self.state[f"average-{layer + 1}"][at].to(pre.dtype), self.state[f"seen-{layer + 1}"][at]
        pace = torch.where(seen | (self.first == "zero"), self.gamma, 1.0).to(pre.dtype)[:, None]
        average = (1 - pace) * old + pace * pre
        self._keep(layer + 1, at, average.detach())
        return pre + (average - pre).detach() if self.backward == "straight" else average

    def meet(self, ends: Tensor, batch: Batch) -> Tensor:
        """Twice the gradient for ends of cross edges, if asked for; the far one has none anyway."""
        if not self.correct or batch.seeds.share is None:
            return ends
        crosses = (batch.seeds.share < 1).to(ends.dtype)[:, None]
        return ends + crosses * (ends - ends.detach())

    def _keep(self, layer: int, at: Tensor, rows: Tensor) -> None:
        table = self.state[f"average-{layer}"]
        table[at] = rows.to(table.dtype)
        self.state[f"seen-{layer}"][at] = True
        self.state[f"changed-{layer}"][at] = True

    @torch.no_grad()
    def round_end(self, run: Run) -> None:
        """Release the boundary rows that changed, layer by layer; the others stand as they were last released."""
        count = run.model.config.layers + (run.schema.target == "edge")  # ends of edges meet after the last layer
        for layer in range(count):
            changed = self.state[f"changed-{layer}"]
            offered = run.wire.offer(run.boundary, changed[self.place[run.boundary.served]].nonzero().flatten())
            leaving, arriving = offered.lots(run.wire.silos)
            fresh = self._activated(layer, offered.served, run)
            rows = run.wire.move(Kind.EMBEDDINGS, fresh, leaving, arriving, layer)
            halo = self.state[f"halo-{layer}"]
            halo[run.boundary.place[offered.halo]] = rows.to(halo.dtype)
            changed.zero_()

    @torch.no_grad()
    def score_begin(self, run: Run, split: str) -> None:
        """Let every silo compute all its rows, layer by layer; each layer's are released as the next one asks."""
        self.fresh = {}
        if self.score == "released":
            return
        batch = whole_graph(run, run.ways.across[split].batcher)
        this, self.telling = Pass(False, run.seed, run.step, run.total_moments), True
        *_, h = layers(run, batch, this)
        if run.schema.target == "edge":
            self.beyond(len(batch.blocks), h, batch, run, this)
        self.telling = False

    def _told(self, layer: int, h: Tensor, held: Tensor, run: Run) -> Tensor:
        """What owners tell of all halo rows, from the rows ``h`` that they ``held``."""
        asked = run.wire.ask(run.boundary, run.boundary.halo)
        return tell_holders(run, asked, h[torch.searchsorted(held, asked.served)], layer)

    def table_bytes(self, run: Run) -> list[int]:
        """Averages of a silo's own nodes and released rows of its halo, at every layer."""
        tables = [table for name, table in self.state.items() if name.startswith(("average-", "halo-"))]
        row = sum(table.shape[1] * table.element_size() for table in tables) // 2  # one of each for every layer
        return [row * (silo.n + silo.h) for silo in run.federation.silos]

    def _activated(self, layer: int, at: Tensor, run: Run) -> Tensor:
        """The embeddings of the given rows as others use them: activations of averages, without dropout."""
        rows = self.state[f"average-{layer}"][self.place[at]].to(run.dtype)
        if layer == 0 or not len(at):
            return rows
        order = torch.argsort(at, stable=True)  # by silo, as parameters and moments lie
        whose = Rows(run.stack.segments(at[order]), run.stack.keys[at[order]])
        done = run.model.finish(layer - 1, rows[order], whose, Pass(False, run.seed, run.step))
        return torch.empty_like(done).index_copy_(0, order, done)
