"""One forward pass: layer by layer, with the rows or sums that the exchange brings from other silos, then the head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from isthmus.graph.features import Features
from isthmus.nn.edges import Edges
from isthmus.nn.model import GNN
from isthmus.nn.monoid import State
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch


@dataclass(frozen=True)
class Beyond:
    """What a layer reads: source rows, with halo rows filled, and perhaps partial aggregates to merge with its own."""

    rows: Features
    partial: State | None = None


class Crossing(Protocol):
    """The methods of an exchange that a forward pass calls."""

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """How many layers were computed before the pass began, and the rows that the next one reads."""
        ...

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """What layer ``layer`` reads, from the rows that this host holds."""
        ...

    def settle(self, layer: int, pre: Tensor, batch: Batch, this: Pass) -> Tensor:
        """The rows ``pre`` of a layer, as normalisation and activation are to read them."""
        ...

    def meet(self, ends: Tensor, batch: Batch) -> Tensor:
        """The rows of one end of the seed edges, as the head is to read them."""
        ...


class _Step(NamedTuple):
    """One layer's rows: those it read, with what came from beyond the boundary, and those it made."""

    read: Features
    made: Tensor


def layers(net: GNN, exchange: Crossing, batch: Batch, this: Pass) -> Iterator[Tensor]:
    """The target rows of each layer, first to last."""
    return (step.made for step in _steps(net, exchange, batch, this))


def _steps(net: GNN, exchange: Crossing, batch: Batch, this: Pass) -> Iterator[_Step]:
    """What each layer read and made, first to last; layers that were computed before the pass count as one."""
    edge: Edges | None = None
    ready, h = exchange.enter(batch, this)
    if ready:
        assert isinstance(h, Tensor)
        yield _Step(h, h)
    for layer, block in list(enumerate(batch.blocks))[ready:]:
        beyond = exchange.beyond(layer, h, batch, this)
        edge = net.edges(layer, beyond.rows, block, edge)
        pre = net.convolve(layer, beyond.rows, block, edge, beyond.partial)
        pre = exchange.settle(layer, pre, batch, this)
        h = net.finish(layer, pre, block.targets, this)
        yield _Step(beyond.rows, h)


def forward(net: GNN, exchange: Crossing, batch: Batch, this: Pass) -> Tensor:
    """Logits of the batch's seeds: [seeds, labels]."""
    if net.schema.target == "edge":
        return _score_edges(net, exchange, batch, this)
    *_, h = layers(net, exchange, batch, this)
    return net.readout(h[batch.ends[0]], batch.seed_rows)


def _score_edges(net: GNN, exchange: Crossing, batch: Batch, this: Pass) -> Tensor:
    """Logits of seed edges: both ends meet in the head, and with edge updates after every layer too."""
    met: list[tuple[Tensor, Tensor]] = []
    for layer, step in enumerate(_steps(net, exchange, batch, this)):
        if layer and net.edge_updates is not None:
            met.append(_ends(layer, step.read, exchange, batch))
    last = len(batch.blocks)
    met.append(_ends(last, exchange.beyond(last, step.made, batch, this).rows, exchange, batch))
    assert batch.seed_edges is not None
    edge = net.seed_edges(batch.seed_edges, met)
    return net.readout_edges(*met[-1], edge, batch.seed_rows)


def _ends(layer: int, rows: Features, exchange: Crossing, batch: Batch) -> tuple[Tensor, Tensor]:
    """The rows of both ends of the seed edges, among those that a layer reads."""
    assert isinstance(rows, Tensor)
    read, ends = batch.layout.read, batch.ends
    if read[layer] is not read[-1]:
        ends = tuple(torch.searchsorted(read[layer], read[-1][end]) for end in ends)
    source, target = (exchange.meet(rows[end], batch) for end in ends)
    return source, target
