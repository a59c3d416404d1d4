"""Layer-wise exchange (Fwd-LE, Fwd/Bwd-LE): at every layer of every step halo rows are refreshed by their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.engine.absence import DROP, LAST
from isthmus.engine.forward import Beyond
from isthmus.engine.site import Site
from isthmus.federation.boundary import make_route
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.absent_rows import AbsentRows, check_absent
from isthmus.methods.exchange.base import Exchange, LiveExchange, Nothing, agree_on_far_ends, need_embedding
from isthmus.methods.exchange.local_samples import ServedSampler
from isthmus.nn.model import ModelConfig
from isthmus.nn.norm import Pass
from isthmus.sample.across import JointSampler
from isthmus.sample.batches import Batch, LayerRows
from isthmus.sample.neighbours import Sampler
from isthmus.wire.route import Asked, Route


@dataclass(frozen=True)
class LayerWise(Exchange):
    """Before layer l,  h_v of every halo node v  <-  h_v of its owner  (learned input embeddings at layer 0, never x).

    With ``adjoint`` (Fwd/Bwd-LE) every holder returns the derivative of its loss by h_v to the owner, which sums them:
    the transpose of the forward copy. Without it (Fwd-LE) what arrives is a constant.

    ``absent``: rows of silos that miss a round are as they were released ``last`` (zeros, where they never were), the
    moving ``average`` of what was released, or their edges are left out (``drop``).
    """

    adjoint: bool = True
    absent: str = LAST
    name: ClassVar[str] = "fwd-bwd-le"
    stepwise: ClassVar[bool] = True
    asks_degrees: ClassVar[bool] = False  # degrees and ports of far ends are told even if silos keep own statistics

    def __post_init__(self) -> None:
        check_absent(self.absent)

    @property
    def sees(self) -> str:
        """``across``: owners compute the rows of far ends with the parameters that are scored."""
        return "across"

    @property
    def leaves_out(self) -> bool:
        """Whether edges to nodes of absent silos are left out."""
        return self.absent == DROP

    @property
    def view(self) -> str:
        """Far ends are rows without neighbours of their own."""
        return "halo"

    def with_batches(self, batches: str) -> Exchange:
        """With joint batches this exchange; with local ones `LocalLayerWise`, in which owners serve only some rows."""
        return self if batches == "joint" else LocalLayerWise(self.adjoint, self.absent)

    def check(self, model: ModelConfig) -> None:
        """Refuse a model without an embedding, whose raw features would cross."""
        need_embedding(model, "Layer-wise exchange would send raw features")

    def open(self, site: Site) -> LiveExchange:
        """The live exchange; degrees and ports of far ends are agreed on now, and a full batch asks for all rows."""
        return LiveLayerWise(self, site)


@dataclass(frozen=True)
class LocalLayerWise(LayerWise):
    """Layer-wise exchange as its paper has it: each silo draws its own batch and sample.

    Halo rows that their owner has not computed at a layer keep the value that the silo computed from its placeholder.
    """

    name: ClassVar[str] = "local-fwd-bwd-le"

    @property
    def view(self) -> str:
        """Far ends start from placeholders and are computed here too, for layers at which their owner has no row."""
        return "placeholder"

    def with_batches(self, batches: str) -> Exchange:
        """With local batches this exchange; with joint ones `LayerWise`, in which owners serve every row."""
        return self if batches == "local" else LayerWise(self.adjoint, self.absent)


@dataclass(frozen=True)
class FreshRows(LayerWise):
    """Halo rows as their owners compute them, whatever the batches: how parameters are scored across the boundary."""

    adjoint: bool = False
    absent: str = DROP
    name: ClassVar[str] = "fresh-rows"
    asks_degrees: ClassVar[bool] = True

    def with_batches(self, batches: str) -> Exchange:
        """The exchange itself, also with local batches: samples to score with are drawn together."""
        return self


class LiveLayerWise(LiveExchange):
    """Layer-wise exchange at work on one host; routes of passes over whole graphs are made once."""

    spec: LayerWise

    def __init__(self, spec: LayerWise, site: Site) -> None:
        super().__init__(spec, site)
        spec.check(site.model)
        self.adjoint = spec.adjoint
        self._whole: dict[tuple[int, ...], Route] = {}  # by who is present
        self._absent = AbsentRows(self, spec.absent)
        self._everything: Asked | None = None
        if site.agreed or spec.asks_degrees:
            agree_on_far_ends(site)
        if site.whole:  # now and not at the first step, or a resumed run would ask again
            self._everything = site.wire.ask(site.boundary, site.boundary.halo)

    def apart(self, stack: Stack) -> tuple[LiveExchange, Stack]:
        """No exchange, along own edges; with local batches far ends are computed from placeholders."""
        if isinstance(self.spec, LocalLayerWise):
            return Nothing("placeholder").open(self.site), stack
        return super().apart(stack)

    def sampler(self, stack: Stack, fanout: Sequence[int]) -> Sampler:
        """A sampler that asks owners to expand halo nodes; with local batches one that asks which rows they have."""
        site = self.site
        kind = ServedSampler if isinstance(self.spec, LocalLayerWise) else JointSampler
        return kind(stack, fanout, site.draws, site.model.directed, site.wire, site.boundary)

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Fill the halo rows that this layer reads."""
        assert isinstance(h, Tensor)
        route = self._route(layer, batch.layout)
        rows = self.site.wire.linear(h, route, Kind.EMBEDDINGS, self.adjoint, layer)
        if not self.site.absence.goes_on or self.spec.leaves_out:
            return Beyond(rows)
        if this.training:
            self._absent.keep(layer, self.site.boundary.place[route.fill.row], rows[route.fill.at])
        return Beyond(self._absent.fill(layer, rows, batch.layout.read[layer]))

    def _route(self, layer: int, layout: LayerRows) -> Route:
        """The route of layer l: rows asked for in the first (layers - l) hops; all rows if untrimmed or full batch."""
        wire = self.site.wire
        if layout.asks:
            layer = layer if layout.trimmed else 0
            if layer not in layout.routes:
                asks = layout.asks[: len(layout.read) - layer]
                layout.routes[layer] = make_route(asks, layout.held[layer], layout.read[layer], wire)
            return layout.routes[layer]
        present = wire.members.present
        if present not in self._whole:
            assert self._everything is not None
            asked = self._everything.among(wire.members)
            self._whole[present] = make_route([asked], layout.held[0], layout.read[0], wire)
        return self._whole[present]
