"""Partial aggregates of a layer: which rows a silo reduces for which targets of other silos, and where they join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.parcel import members
from isthmus.engine.site import Site
from isthmus.graph.stack import Stack
from isthmus.nn.block import Block, Rows
from isthmus.nn.monoid import Monoid, State
from isthmus.sample.partial_sums import AskedEdges, neighbours
from isthmus.wire.relay import NEUTRAL, Column, Relay, open_relay
from isthmus.wire.route import Straight
from isthmus.wire.shared_relay import lay_straight


@dataclass(frozen=True)
class Reduction:
    """Edges along which my silos reduce rows for others at a layer, and the targets for which they get aggregates."""

    sources: Tensor  # [s] stack rows that are asked for, ascending
    block: Block  # edges from them into one target for each (silo of mine, target elsewhere)
    target: Tensor  # [t] stack rows of my silos' targets, in the order of slots
    held: Tensor  # [t] how many sampled edges come from beyond the boundary
    near: Tensor  # [t] how many different neighbours these come from
    relay: Relay


def reduce_for_others(asks: Sequence[AskedEdges], site: Site, fewest: int) -> Reduction:
    """The reduction of a layer: edges that others asked for, by target; the server learns which partials join."""
    stack, silos = site.stack, site.wire.silos
    edges = torch.cat([asked.served for asked in asks])
    slots = torch.cat([asked.served_slot for asked in asks])
    pairs = torch.cat([asked.served_pair for asked in asks])
    order = torch.argsort(stack.ends[1][edges], stable=True)  # far targets of one silo of mine lie together
    edges, slots, pairs = edges[order], slots[order], pairs[order]
    far, at, count = stack.ends[1][edges].unique(return_inverse=True, return_counts=True)
    sources = stack.ends[0][edges].unique()
    first = count.cumsum(0) - count
    near = neighbours(at, stack.ends[0][edges], len(far), stack.rows)
    labels = torch.stack([pairs[first] % silos, slots[first], near], 1)
    target = torch.cat([asked.target for asked in asks])
    number = torch.cat([asked.slot for asked in asks])
    order = torch.argsort(number, stable=True)
    order = order[torch.argsort(stack.silo_of(target[order]), stable=True)]
    target = target[order]
    held, near = (torch.cat(each)[order] for each in ([a.held for a in asks], [a.near for a in asks]))
    whose = torch.tensor(stack.silos, dtype=torch.int64, device=target.device)[stack.silo_of(target)]
    partials = pairs[first] // silos, far, members(stack.ends[0][edges], at, stack.rows)
    straight = _straight(asks, (pairs[first], slots[first], far), target, site) if site.wire.protect.shares else None
    relay = open_relay(site.wire, partials, labels, (whose, target), near, fewest, straight)
    return Reduction(sources, _block(edges, at, sources, far, stack, site), target, held, near, relay)


def _straight(
    asks: Sequence[AskedEdges], partials: tuple[Tensor, Tensor, Tensor], target: Tensor, site: Site
) -> Straight:
    """The way of second shares past the server; both ends know it from what was asked of whom."""
    asked = torch.cat([each.halo_pair for each in asks])
    row = site.stack.ends[1][torch.cat([each.halo for each in asks])]
    order = torch.argsort(target)
    return lay_straight(site.wire, partials, asked, order[torch.searchsorted(target[order], row)], target)


def _block(edges: Tensor, at: Tensor, sources: Tensor, far: Tensor, stack: Stack, site: Site) -> Block:
    """The edges from rows of mine into targets elsewhere, by target."""
    return Block(
        src=torch.searchsorted(sources, stack.ends[0][edges]),
        dst=at,
        sources=Rows(stack.segments(sources), stack.keys[sources]),
        targets=Rows(stack.segments(far), stack.keys[far]),
        attr=None if stack.edge_attr is None else stack.edge_attr[edges],
        ports=None if stack.ports is None else stack.ports[edges],
        src_degree=stack.in_degree[sources] if site.degrees else None,
    )


def crossing_parts(monoid: Monoid) -> list[str]:
    """The parts of a state that cross; counts need not, since whoever asked knows how many it asked for."""
    return [part for part in monoid.joins if part != "count"]


def columns_of(monoid: Monoid, width: int) -> list[Column]:
    """How the columns of partial aggregates, ``width`` in all, join."""
    parts = crossing_parts(monoid)
    return [Column(monoid.joins[part], width // len(parts)) for part in parts]


def as_state(rows: Tensor, at: Tensor, count: int, monoid: Monoid) -> State:
    """The monoid's state of ``count`` targets: ``rows`` (counts in the last column) at ``at``, neutral elsewhere."""
    columns = [*columns_of(monoid, rows.shape[1] - 1), Column("sum", 1)]
    parts = rows.split([column.width for column in columns], 1)
    state = {
        name: part.new_full((count, column.width), NEUTRAL[column.join]).index_copy(0, at, part)
        for name, part, column in zip([*crossing_parts(monoid), "count"], parts, columns, strict=True)
    }
    return {name: state[name] for name in monoid.joins}
