"""Sums of neighbours' features over the whole graph, from parts that each silo adds up at home (FedGCN)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.core.parcel import members
from isthmus.graph.features import Features, SparseRows, concat, take, weighted_sums
from isthmus.graph.stack import Stack
from isthmus.wire.route import Boundary
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class Sums:
    """For each of some nodes v, S_x(v) = sum of w_u x_u and S_1(v) = sum of w_u over the nodes u that it adds up."""

    x: Features  # [n, features]
    one: Tensor  # [n, 1]

    def added(self, source: Tensor, target: Tensor, weight: Tensor, rows: int) -> Sums:
        """Row t of ``rows``: the sum of weight_e times row source_e over all e with target_e = t."""
        one = self.one.new_zeros(rows, 1).index_add_(0, target, weight[:, None] * self.one[source])
        return Sums(weighted_sums(self.x, source, target, weight, rows), one)

    def under(self, table: Tensor) -> Sums:
        """These rows with the rows of a table [m, features + 1] that crossed below them; sparse where these are."""
        x = table[:, :-1]
        arrived = SparseRows.from_dense(x) if isinstance(self.x, SparseRows) else x
        return Sums(concat([self.x, arrived]), torch.cat([self.one, table[:, -1:]]))

    def at(self, rows: Tensor) -> Sums:
        """The sums in the given rows."""
        return Sums(take(self.x, rows), self.one[rows])

    def table(self) -> Tensor:
        """The rows as they cross, S_1 in the last column: [n, features + 1]."""
        x = self.x.dense() if isinstance(self.x, SparseRows) else self.x
        return torch.cat([x, self.one], 1)


@dataclass(frozen=True)
class Arrived:
    """Rows of sums that other silos sent, and the stack rows that each belongs to."""

    at: Tensor  # [n]
    rows: Tensor  # [n, features + 1]


def send_parts(wire: Wire, stack: Stack, boundary: Boundary) -> Arrived:
    """Each silo adds up its own neighbours of a halo node, and sends the sum, one row, to the node's owner."""
    owned, place = stack.owned, stack.own_line
    source, far = stack.ends[:, owned[stack.ends[0]] & ~owned[stack.ends[1]]]
    asked = wire.ask(boundary, far.unique())
    line = torch.zeros_like(place)
    line[asked.halo] = torch.arange(len(asked.halo), device=far.device)
    parts = _own(stack).added(place[source], line[far], _scale(stack)[source], len(asked.halo))
    served, halo = asked.lots(wire.silos)
    inside = members(source, far, stack.rows)
    return Arrived(asked.served, wire.move(Kind.AGGREGATES, parts.table(), halo, served, parts=inside))


def add_up(stack: Stack, parts: Arrived) -> Sums:
    """The sum over u in N(v) and v itself of [x_u, 1] / sqrt(d_u + 1), for every owned node v, in stack order.

    ``parts``: what nodes of other silos add to it.
    """
    owned, place, scale = stack.owned, stack.own_line, _scale(stack)
    source, target = stack.ends[:, owned[stack.ends].all(0)]
    here = torch.arange(len(stack.x), device=source.device)
    there = torch.arange(len(parts.rows), device=source.device) + len(stack.x)
    every = _own(stack).under(parts.rows)
    return every.added(
        torch.cat([place[source], here, there]),
        torch.cat([place[target], here, place[parts.at]]),
        torch.cat([scale[source], scale[owned], scale.new_ones(len(there))]),
        len(stack.x),
    )


def send_sums(wire: Wire, stack: Stack, boundary: Boundary, sums: Sums) -> Arrived:
    """Owners send the sums of nodes, of which edges lead to other silos, to those silos."""
    owned, place = stack.owned, stack.own_line
    source, target = stack.ends
    asked = wire.ask(boundary, source[~owned[source] & owned[target]].unique())
    served, halo = asked.lots(wire.silos)
    inside = _own_parts(stack, asked.served.unique())
    rows = sums.at(place[asked.served]).table()
    return Arrived(asked.halo, wire.move(Kind.AGGREGATES, rows, served, halo, layer=1, parts=inside))


def of_all_rows(stack: Stack, sums: Sums, far: Arrived) -> Sums:
    """The sums of all rows of a stack: those of its own nodes, those ``far`` that arrived, and zeros for the others."""
    place = stack.own_line
    nothing = far.rows.new_zeros(1, far.rows.shape[1])
    line = torch.full_like(place, len(stack.x) + len(far.rows))
    line[stack.owned] = place[stack.owned]
    line[far.at] = torch.arange(len(far.rows), device=line.device) + len(stack.x)
    return sums.under(torch.cat([far.rows, nothing])).at(line)


def _own(stack: Stack) -> Sums:
    """The features of a stack's own nodes, and ones."""
    return Sums(stack.x, _scale(stack).new_ones(len(stack.x), 1))


def _scale(stack: Stack) -> Tensor:
    """1 / sqrt(d + 1) of each row; right for owned rows only, until owners tell the degrees of halo rows."""
    return stack.in_degree.add(1).to(stack.x.dtype).rsqrt()


def _own_parts(stack: Stack, targets: Tensor) -> Tensor:
    """The owned rows that the sums of some owned rows are made of: themselves, and their neighbours in their silo.

    What other silos have added to a sum left them before, and is charged to them.
    """
    chosen = torch.zeros_like(stack.owned)
    chosen[targets] = True
    source, target = stack.ends
    inner = chosen[target] & stack.owned[source]
    around = torch.cat([targets, source[inner]]), torch.cat([targets, target[inner]])
    return members(*around, stack.rows)
