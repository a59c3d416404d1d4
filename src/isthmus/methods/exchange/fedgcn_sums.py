"""Sums of neighbours' features over the whole graph, from parts that each silo adds up at home (FedGCN)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.graph.features import Features, SparseRows, concat, take, weighted_sums
from isthmus.graph.stack import Stack
from isthmus.wire.route import Boundary
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class Sums:
    """For each of some nodes a weighted sum of features, and beside it the same sum of ones."""

    x: Features  # [n, features]
    one: Tensor  # [n, 1]

    def added(self, source: Tensor, target: Tensor, weight: Tensor, rows: int) -> Sums:
        """Row t of ``rows``: the sum of weight_e times row source_e over all e with target_e = t."""
        one = self.one.new_zeros(rows, 1).index_add_(0, target, weight[:, None] * self.one[source])
        return Sums(weighted_sums(self.x, source, target, weight, rows), one)

    def under(self, table: Tensor) -> Sums:
        """These rows, then those of a table that crossed; sparse where these are."""
        x = table[:, :-1]
        arrived = SparseRows.from_dense(x) if isinstance(self.x, SparseRows) else x
        return Sums(concat([self.x, arrived]), torch.cat([self.one, table[:, -1:]]))

    def at(self, rows: Tensor) -> Sums:
        """The sums in the given rows."""
        return Sums(take(self.x, rows), self.one[rows])

    def table(self) -> Tensor:
        """The rows as they cross: [n, features + 1]."""
        x = self.x.dense() if isinstance(self.x, SparseRows) else self.x
        return torch.cat([x, self.one], 1)


def collect_sums(wire: Wire, stack: Stack, boundary: Boundary) -> Sums:
    """The sum over u in N(v) and v itself of [x_u, 1] / sqrt(d_u + 1), for every owned node v, in stack order.

    Each silo adds up what its own nodes contribute to a halo node, and sends that one row to the node's owner.
    """
    owned, place = stack.owned, stack.own_line
    scale = stack.in_degree.add(1).to(stack.x.dtype).rsqrt()
    mine = Sums(stack.x, scale.new_ones(len(stack.x), 1))
    source, target = stack.ends[:, owned[stack.ends[0]]]
    inside = owned[target]
    far = target[~inside]
    asked = wire.ask(boundary, far.unique())
    line = torch.zeros_like(place)
    line[asked.halo] = torch.arange(len(asked.halo), device=far.device)
    parts = mine.added(place[source[~inside]], line[far], scale[source[~inside]], len(asked.halo))
    served, halo = asked.lots(wire.silos)
    arrived = wire.move(Kind.AGGREGATES, parts.table(), halo, served, parts=_members(source[~inside], far, stack.rows))
    here = torch.arange(len(stack.x), device=far.device)
    there = torch.arange(len(arrived), device=far.device) + len(stack.x)
    return mine.under(arrived).added(
        torch.cat([place[source[inside]], here, there]),
        torch.cat([place[target[inside]], here, place[asked.served]]),
        torch.cat([scale[source[inside]], scale[owned], scale.new_ones(len(there))]),
        len(stack.x),
    )


def hand_out_sums(wire: Wire, stack: Stack, boundary: Boundary, sums: Sums) -> Sums:
    """The sums of all rows: owners send those of halo nodes from which an edge leads to this silo; others are 0."""
    owned, place = stack.owned, stack.own_line
    source, target = stack.ends
    asked = wire.ask(boundary, source[~owned[source] & owned[target]].unique())
    served, halo = asked.lots(wire.silos)
    inside = _own_parts(stack, asked.served.unique())
    rows = sums.at(place[asked.served]).table()
    arrived = wire.move(Kind.AGGREGATES, rows, served, halo, layer=1, parts=inside)
    nothing = arrived.new_zeros(1, arrived.shape[1])
    line = torch.full_like(place, len(stack.x) + len(arrived))
    line[owned] = place[owned]
    line[asked.halo] = torch.arange(len(arrived), device=line.device) + len(stack.x)
    return sums.under(torch.cat([arrived, nothing])).at(line)


def _own_parts(stack: Stack, targets: Tensor) -> Tensor:
    """The owned rows that the sums of some owned rows are made of: themselves, and their neighbours in their silo.

    What other silos have added to a sum left them before, and is charged to them.
    """
    chosen = torch.zeros_like(stack.owned)
    chosen[targets] = True
    source, target = stack.ends
    inner = chosen[target] & stack.owned[source]
    around = torch.cat([targets, source[inner]]), torch.cat([targets, target[inner]])
    return _members(*around, stack.rows)


def _members(source: Tensor, target: Tensor, rows: int) -> Tensor:
    """The rows that are in the sums of targets, each once for every sum, whatever the number of parallel edges."""
    pairs: Tensor = (target * rows + source).unique()
    return pairs % rows
