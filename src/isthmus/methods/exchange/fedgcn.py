"""FedGCN: sums of neighbours' features cross once, before training; the first layer then reads no edge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.forward import Beyond
from isthmus.engine.site import Site
from isthmus.federation.statistics import agree_far_degrees
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import Exchange, LiveExchange
from isthmus.methods.exchange.fedgcn_sums import Arrived, Sums, add_up, of_all_rows, send_parts, send_sums
from isthmus.nn.block import Rows
from isthmus.nn.gcn import GCN
from isthmus.nn.linear import product
from isthmus.nn.model import GNN, ModelConfig
from isthmus.nn.norm import Pass
from isthmus.nn.sets import per_row
from isthmus.sample.batches import Batch
from isthmus.sample.neighbours import Sampler


@dataclass(frozen=True)
class FeatureSums(Exchange):
    r"""y_v = W (E S_x(v) + c S_1(v)) / sqrt(d_v + 1) + b,  S(v) = sum over u in N(v) and v of [x_u, 1] / sqrt(d_u + 1).

    That is a GCN's first layer after an embedding h = E x + c. Before training every silo sends its own nodes' part of
    S(v), for each of its halo nodes v, to the owner of v. With two ``hops`` the owner then sends S(v), now whole, to
    each silo that reads v. So every silo computes the first layer of its halo nodes too, with its own parameters and
    full gradients, and the second layer has all its cross edges. Later layers (with one hop the second too) have none:
    there a far end counts in its neighbours' degrees and adds nothing.
    S is complete whatever a batch samples, so that the last number of ``train.fanout`` has no use.
    """

    hops: int = 2
    name: ClassVar[str] = "fedgcn"

    def __post_init__(self) -> None:
        if self.hops not in (1, 2):
            raise IsthmusError(f"exchange.hops is {self.hops}; features are summed over 1 hop or over 2.")

    @property
    def view(self) -> str:
        """Far ends are rows without neighbours of their own."""
        return "halo"

    def check(self, model: ModelConfig) -> None:
        """Refuse models in which sums of features do not stand for sums of messages, and sums nobody would read."""
        if model.name != "gcn" or model.directed or model.ego:
            what = model.name if model.name != "gcn" else "a directed gcn" if model.directed else "gcn with ego ids"
            raise IsthmusError(
                "Sums of features stand for sums of messages only where messages are linear in the features alone and "
                f"a node's own row is folded in. That is so for gcn and not for {what}; use model.name=gcn with "
                "model.directed=false and model.ego=false, or another method, such as ce-fedgnn."
            )
        if model.layers < self.hops:
            raise IsthmusError(
                "A model of one layer would not read what crosses at the second hop; use exchange.hops=1."
            )

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, which collects the sums before the first step; nothing of features crosses later."""
        return LiveFeatureSums(self, site)


class LiveFeatureSums(LiveExchange):
    """The sums of owned rows, or with two hops those of all rows of the stack.

    What arrived is kept in ``state``, so that a resumed run has it without another release: ``parts`` of the sums of
    owned rows, with two hops also ``sums`` of halo rows, and the stack rows of both, ``parts-at`` and ``sums-at``.
    """

    spec: FeatureSums

    def __init__(self, spec: FeatureSums, site: Site) -> None:
        super().__init__(spec, site)
        spec.check(site.model)
        _check_labels(site)
        self._sums: Sums | None = None
        self.place = site.stack.own_line  # [stack rows] the line of a row in the sums
        if spec.hops == 2:
            agree_far_degrees(site.wire, site.stack, site.boundary)
            self.place = torch.arange(site.stack.rows, device=site.device)

    @torch.no_grad()
    def begin(self) -> None:
        """Collect the sums; a resumed run reads what had arrived from its checkpoint and sends nothing again."""
        if self._sums is not None:
            return
        wire, stack, boundary = self.site.wire, self.site.stack, self.site.boundary
        self.site.draws.read_whole()
        sums = add_up(stack, self._arrived("parts", lambda: send_parts(wire, stack, boundary)))
        if self.spec.hops == 2:
            sums = of_all_rows(stack, sums, self._arrived("sums", lambda: send_sums(wire, stack, boundary, sums)))
        self._sums = sums

    @property
    def sums(self) -> Sums:
        """The sums, collected by now."""
        self.begin()
        assert self._sums is not None
        return self._sums

    def _arrived(self, name: str, send: Callable[[], Arrived]) -> Arrived:
        """What arrived under ``name`` (``parts`` or ``sums``): from the state, or by ``send`` and then kept there."""
        if name not in self.state:
            arrived = send()
            self.state |= {f"{name}-at": arrived.at, name: arrived.rows}
        return Arrived(self.state[f"{name}-at"], self.state[name])

    def sampler(self, stack: Stack, fanout: Sequence[int]) -> Sampler:
        """Each silo expands what it knows by itself, one hop less than there are layers."""
        return Sampler(stack, fanout[:-1], self.site.draws, self.site.model.directed)

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """1, since the first layer is computed here from sums, and its rows; with two hops also those of halo nodes."""
        net, stack = self.site.net, self.site.stack
        at, rows = batch.layout.held[1], batch.blocks[0].targets
        if self.spec.hops == 2:
            at, rows = batch.layout.read[1], batch.blocks[1].sources
        sums = self.sums
        if len(at) < len(sums.one):  # else all of them, which are the sums as they lie, for rows ascend
            sums = sums.at(self.place[at])
        pre = _first_layer(net, sums, stack.in_degree[at], rows)
        return 1, net.finish(0, pre, rows, this)

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Zeros for far ends, where nothing is known of them: in all layers after the first ``hops``."""
        assert isinstance(h, Tensor)
        held, read = batch.layout.held[layer], batch.layout.read[layer]
        if layer < self.spec.hops or len(held) == len(read):
            return Beyond(h)
        return Beyond(h.new_zeros(len(read), h.shape[1]).index_copy(0, torch.searchsorted(read, held), h))


def _first_layer(model: GNN, sums: Sums, degree: Tensor, rows: Rows) -> Tensor:
    """W (E S_x + c S_1) / sqrt(d + 1) + b, before normalisation."""
    h, layer = sums.x, model.layers[0]
    assert isinstance(layer, GCN)
    if model.enter is not None:
        h = product(sums.x, model.enter.weight, None, rows)
        h = h if model.enter.bias is None else h + sums.one * per_row(model.enter.bias, rows)
    z: Tensor = layer.lin(h, rows)
    pre = z * degree.add(1).to(z.dtype).rsqrt()[:, None]
    return pre if layer.bias is None else pre + per_row(layer.bias, rows)


def _check_labels(site: Site) -> None:
    """Refuse labels on edges, whose ends meet where sums tell nothing."""
    if site.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, whose ends meet after the last layer, where sums of features tell nothing of a far "
            "end. Use sync-sgd+fwd-bwd-le or ce-fedgnn."
        )
