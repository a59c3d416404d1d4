"""Swift-FedGNN's exchange: neighbours beyond the boundary are added up by their owners, then by the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.exchange.base import Beyond, Exchange
from isthmus.graph.agree import agree_far_ports
from isthmus.graph.features import Features, take
from isthmus.graph.stack import Stack
from isthmus.nn.block import Block, Rows
from isthmus.nn.layer import Layer
from isthmus.nn.monoid import Monoid, State
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch
from isthmus.sample.neighbours import Sampler
from isthmus.sample.partial import AskedEdges, PartialSampler
from isthmus.wire.relay import NEUTRAL, Column, Relay, open_relay

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass(frozen=True)
class Errand:
    """What my silos do for others at a layer, and what they get in return."""

    sources: Tensor  # [s] stack rows that are asked for, ascending
    block: Block  # edges from them into one target for each (silo of mine, target elsewhere)
    target: Tensor  # [t] stack rows of my silos' targets, in the order of slots
    held: Tensor  # [t] sampled neighbours beyond the boundary
    relay: Relay


@dataclass
class ServerAggregate(Exchange):
    r"""a_v = merge of a_v(own silo) and a_v(beyond),  a_v(beyond) = merge over silos B of reduce_{u in N(v), B} m_uv.

    Owners compute the rows of sampled neighbours u, and reduce their messages for each target v to one partial
    aggregate. The server merges the partials of all silos, and the silo that trains receives one row for each target,
    from the server. With ``adjoint`` its derivative returns the same way, so that with all neighbours a step is that of
    the whole graph; without, what arrives is a constant.

    ``fewest``: an aggregate of fewer neighbours is not handed out, and the target makes do with those of its own silo.
    With 1, a target with a single sampled neighbour beyond the boundary receives that neighbour's message as it is.
    """

    adjoint: bool = True
    fewest: int = 1
    stepwise: ClassVar[bool] = True
    _whole: Errand | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.fewest < 1:
            raise IsthmusError(f"exchange.fewest is {self.fewest}; it must be at least 1.")

    @property
    def view(self) -> str:
        """Far ends are known, and never computed here."""
        return "halo"

    @property
    def reads_halo(self) -> bool:
        """Nobody's row crosses."""
        return False

    def begin(self, run: Run) -> None:
        """Refuse what cannot be merged; agree on the ports of cross edges, which owners encode for others' targets."""
        _check(run)
        if run.model.config.ports:
            agree_far_ports(run.wire, run.federation.silos, run.stack)
        shape = len(run.wire.mine), 2
        self.state["handed"] = torch.zeros(shape, dtype=torch.int64, device=run.device)  # aggregates; of one neighbour

    def sampler(self, run: Run, stack: Stack, fanout: Sequence[int], directed: bool) -> Sampler:
        """Expand the sample across the boundary; the silo that asks never sees a far row."""
        return PartialSampler(stack, fanout, run.seed, run.wire, run.boundary)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """Reduce what others ask for, let the server merge, and read what it hands out."""
        if layer == len(batch.blocks):
            return Beyond(h)
        errand = self._errand(layer, batch, run)
        monoid = run.model.monoid(layer)
        mine = take(h, torch.searchsorted(batch.layout.held[layer], errand.sources))
        partial = run.model.partial(layer, mine, errand.block)
        columns = [Column(how, partial[part].shape[1], part != "count") for part, how in monoid.joins.items()]
        rows = torch.cat([partial[part] for part in monoid.joins], 1)
        if this.training:
            self._count(errand, run)
        merged = run.wire.merge(rows if self.adjoint else rows.detach(), errand.relay, columns, layer)
        return Beyond(h, _spread(merged, errand.target, batch.layout.held[layer + 1], monoid, columns))

    def _count(self, errand: Errand, run: Run) -> None:
        """How many aggregates my silos have been handed, and how many of them are of one neighbour."""
        place = _place(errand.target, run.stack)
        marks = torch.stack([errand.held >= self.fewest, (errand.held == 1) & (self.fewest == 1)], 1)
        self.state["handed"].index_add_(0, place, marks.long())

    def _errand(self, layer: int, batch: Batch, run: Run) -> Errand:
        """Layer l merges the cross edges that were asked for in the first (layers - l) hops; in full, all."""
        layout = batch.layout
        if not layout.asks:
            if self._whole is None:
                sampler = run.ways.across["train"].sampler
                assert isinstance(sampler, PartialSampler)
                self._whole = make_errand([sampler.everything()], run, self.fewest)
            return self._whole
        layer = layer if layout.trimmed else 0
        asks = [asked for asked in layout.asks[: len(batch.blocks) - layer] if isinstance(asked, AskedEdges)]
        return make_errand(asks, run, self.fewest)


def _spread(merged: Tensor, target: Tensor, held: Tensor, monoid: Monoid, columns: Sequence[Column]) -> State:
    """What was handed out as the state of all targets of a layer; neutral where there is nothing."""
    at = torch.searchsorted(held, target)
    parts = merged.split([column.width for column in columns], 1)
    return {
        name: part.new_full((len(held), part.shape[1]), NEUTRAL[column.join]).index_copy(0, at, part)
        for name, part, column in zip(monoid.joins, parts, columns, strict=True)
    }


def make_errand(asks: Sequence[AskedEdges], run: Run, fewest: int) -> Errand:
    """Group the edges that were asked of my silos by target, and tell the server what joins what."""
    stack, silos = run.stack, run.wire.silos
    edges = torch.cat([asked.served for asked in asks])
    slots = torch.cat([asked.served_slot for asked in asks])
    pairs = torch.cat([asked.served_pair for asked in asks])
    order = torch.argsort(stack.ends[1][edges], stable=True)  # far targets of one silo of mine lie together
    edges, slots, pairs = edges[order], slots[order], pairs[order]
    far, at, count = stack.ends[1][edges].unique(return_inverse=True, return_counts=True)
    sources = stack.ends[0][edges].unique()
    first = count.cumsum(0) - count
    labels = torch.stack([pairs[first] % silos, slots[first], count], 1)
    target = torch.cat([asked.target for asked in asks])
    number = torch.cat([asked.slot for asked in asks])
    order = torch.argsort(number, stable=True)
    order = order[torch.argsort(_place(target[order], stack), stable=True)]
    target, held = target[order], torch.cat([asked.held for asked in asks])[order]
    whose = torch.tensor(stack.silos, device=target.device)[_place(target, stack)]
    relay = open_relay(run.wire, (pairs[first] // silos, far), labels, (whose, target), fewest)
    return Errand(sources, _block(edges, at, sources, far, stack, run), target, held, relay)


def _place(rows: Tensor, stack: Stack) -> Tensor:
    """The silo of each stack row, by its place on this host."""
    return torch.searchsorted(torch.tensor(stack.ptr[1:], device=rows.device), rows, right=True)


def _block(edges: Tensor, at: Tensor, sources: Tensor, far: Tensor, stack: Stack, run: Run) -> Block:
    """The edges from rows of mine into targets elsewhere, by target."""
    return Block(
        src=torch.searchsorted(sources, stack.ends[0][edges]),
        dst=at,
        sources=Rows(stack.segments(sources), stack.keys[sources]),
        targets=Rows(stack.segments(far), stack.keys[far]),
        attr=None if stack.edge_attr is None else stack.edge_attr[edges],
        ports=stack.ports[edges],
        src_degree=stack.in_degree[sources] if run.batcher.degrees else None,
    )


def _check(run: Run) -> None:
    """Refuse models that have no aggregate to merge, and labels that need more than aggregates."""
    layer, config = run.model.layers[0], run.model.config
    if isinstance(layer, Layer) and layer.monoid is None:
        raise layer.refusal()
    if config.directed or config.edge_updates:
        what = "a directed model has two aggregates at each node" if config.directed else "edge updates read both ends"
        raise IsthmusError(
            f"Aggregates through the server are of incoming edges alone, but {what}; use model.directed=false and "
            "model.edge_updates=false, or exchange rows, as sync-sgd+fwd-bwd-le does."
        )
    if run.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, whose ends meet as rows, and aggregates tell nothing of a single far end; use "
            "sync-sgd+fwd-bwd-le or ce-fedgnn."
        )
