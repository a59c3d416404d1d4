"""Graphs with added nodes, each linked to one node that was there before, in both directions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.core.random import combine
from isthmus.graph.graph import UNUSED
from isthmus.graph.stack import Adjacency, Stack


@dataclass(frozen=True)
class MendedStack:
    """A stack with added rows, which follow each silo's own; they are owned, have no label, and belong to no split.

    Of features an added row has, for the time being, those of the row that it is linked to.
    """

    stack: Stack
    before: Tensor  # [rows before] where each row is now
    added: Tensor  # [added] where each added row is


def mend(stack: Stack, beside: Tensor, number: Tensor) -> MendedStack:
    """The stack with an added row for each entry of ``beside`` [added], the row that it is linked to, ascending.

    ``number`` [added] tells apart those that are linked to one row: the public key of an added row follows from it and
    from the key of that row. Edges along which the stack has no neighbours are left out.
    """
    silo = stack.silo_of(beside)
    added = torch.bincount(silo, minlength=len(stack.ptr) - 1)
    shift = added.cumsum(0) - added  # rows that are added to earlier silos
    first = torch.tensor(stack.ptr, device=beside.device)
    every = torch.arange(stack.rows, device=beside.device)
    before = every + shift[stack.silo_of(every)]
    now = first[1:][silo] + torch.arange(len(beside), device=beside.device)
    ptr = (0, *(first[1:] + added.cumsum(0)).tolist())
    edges = stack.incoming.edge.sort().values
    there, back = torch.stack([now, before[beside]]), torch.stack([before[beside], now])
    ends = torch.cat([before[stack.ends[:, edges]], there, back], 1)
    keys = combine(stack.keys[beside], -1 - number)
    links = [combine(pair, torch.zeros_like(pair)) for pair in _both(keys, stack.keys[beside])]
    source, target = ends.cpu()
    sides = [Adjacency.build(at, near, None, ptr[-1]) for at, near in ((target, source), (source, target))]
    rows = every if stack.feature_row is None else stack.feature_row
    mended = replace(
        stack,
        ptr=ptr,
        keys=_filled(stack.keys, keys, before, now),
        owned=_filled(stack.owned, torch.ones_like(silo, dtype=torch.bool), before, now),
        feature_row=_filled(rows, rows[beside], before, now),
        y=_filled(stack.y, stack.y.new_full((len(beside), *stack.y.shape[1:]), -1), before, now),
        split=_filled(stack.split, stack.split.new_full((len(beside),), UNUSED), before, now),
        ends=ends,
        incoming=sides[0].to(beside.device),
        outgoing=sides[1].to(beside.device),
        edge_keys=torch.cat([stack.edge_keys[edges], *links]),
        edge_attr=None,
        edge_y=None,
        edge_split=None,
        edge_teacher=None,
        in_degree=sides[0].degree.to(beside.device),
        out_degree=sides[1].degree.to(beside.device),
        ports=None if stack.ports is None else torch.cat([stack.ports[edges], edges.new_zeros(2 * len(beside), 2)]),
    )
    return MendedStack(mended, before, now)


def _both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Keys of the pairs (a, b) and (b, a)."""
    return combine(a, b), combine(b, a)


def _filled(old: Tensor, new: Tensor, before: Tensor, now: Tensor) -> Tensor:
    """A table with the ``old`` rows at the places ``before`` and the ``new`` ones at the places ``now``."""
    table = old.new_empty(len(old) + len(new), *old.shape[1:])
    return table.index_copy_(0, before, old).index_copy_(0, now, new)
