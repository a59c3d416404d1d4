"""Layer-wise exchange: at every layer of every step halo rows are refreshed by their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from isthmus.exchange.base import Beyond, Exchange, agree_on_far_ends, need_embedding
from isthmus.graph.boundary import make_route
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.nn.norm import Pass
from isthmus.sample.across import JointSampler
from isthmus.sample.batches import Batch, Layout
from isthmus.sample.neighbours import Sampler
from isthmus.wire.ledger import Kind
from isthmus.wire.route import Asked, Route

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class LayerWise(Exchange):
    """Before layer l,  h_v of every halo node v  <-  h_v of its owner  (learned input embeddings at layer 0, never x).

    With ``adjoint`` (Fwd/Bwd-LE) every holder returns the derivative of its loss by h_v to the owner, which sums them:
    the transpose of the forward copy. Without it (Fwd-LE) what arrives is a constant.
    """

    adjoint: bool = True
    stepwise: ClassVar[bool] = True
    _everything: Asked = field(init=False, repr=False)
    _whole: Route | None = field(default=None, init=False, repr=False)

    @property
    def view(self) -> str:
        """Far ends are rows without neighbours of their own."""
        return "halo"

    def with_batches(self, batches: str) -> Exchange:
        """Local batches leave rows unserved."""
        from isthmus.exchange.served import Served

        return self if batches == "joint" else Served(adjoint=self.adjoint)

    def begin(self, run: Run) -> None:
        """Agree what a centralised model would know of far ends; a full batch asks for all of them, once."""
        need_embedding(run, "Layer-wise exchange would send raw features")
        if run.agreed:
            agree_on_far_ends(run)
        if run.crosses_whole:  # now and not at the first step, or a resumed run would ask again
            self._everything = run.wire.ask(run.boundary, run.boundary.halo)

    def sampler(self, run: Run, stack: Stack, fanout: Sequence[int], directed: bool) -> Sampler:
        """Expand the sample across the boundary by asking owners."""
        return JointSampler(stack, fanout, run.draws, directed, run.wire, run.boundary)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """Fill the halo rows that this layer reads."""
        assert isinstance(h, Tensor)
        route = self._route(layer, batch.layout, run)
        return Beyond(run.wire.linear(h, route, Kind.EMBEDDINGS, self.adjoint, layer))

    def _route(self, layer: int, layout: Layout, run: Run) -> Route:
        """Layer l reads the rows that were asked for in the first (layers - l) hops; untrimmed or in full, all."""
        if layout.asks:
            layer = layer if layout.trimmed else 0
            if layer not in layout.routes:
                asks = layout.asks[: len(layout.read) - layer]
                layout.routes[layer] = make_route(asks, layout.held[layer], layout.read[layer], run.wire)
            return layout.routes[layer]
        if self._whole is None:
            self._whole = make_route([self._everything], layout.held[0], layout.read[0], run.wire)
        return self._whole
