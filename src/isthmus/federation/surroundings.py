"""The neighbours of every node as lanes: whose rows are added up where, and who holds which share on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import devices_of
from isthmus.core.parcel import Origin, Traffic, members
from isthmus.graph.stack import Adjacency, Stack
from isthmus.wire.neighbour_sums import Lanes, Surroundings
from isthmus.wire.route import Boundary, Lot
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class _Owners:
    """Where rows lie among those that are added up, and whose they are."""

    row: Tensor  # [stack rows] place among this host's owned rows, or after them among those that arrive
    silo: Tensor  # [stack rows] the silo that owns each
    leaving: Lot | None
    arriving: Lot | None


def build_surroundings(wire: Wire, boundary: Boundary, stack: Stack, fewest: int, padded_to: int) -> Surroundings:
    """The lanes of this host's owned rows, inward and outward.

    Sums of rows of fewer than ``fewest`` other nodes are not made. Devices pass second shares on among shares of zero,
    so that their silo sees ``padded_to`` of them for each sum (0: the next power of two).
    """
    place = _placed(wire, boundary, stack)
    sides = stack.incoming, stack.outgoing
    inward, outward = (_lanes(stack, *pair, place, fewest, padded_to) for pair in (sides, sides[::-1]))
    return Surroundings(inward, outward)


def _placed(wire: Wire, boundary: Boundary, stack: Stack) -> _Owners:
    numbers = torch.tensor(stack.silos or (0,), device=stack.keys.device)
    rows = torch.arange(stack.rows, device=stack.keys.device)
    silo, row = numbers[stack.silo_of(rows)], stack.own_line.clone()
    silo[boundary.halo] = boundary.halo_pair % wire.silos
    if wire.hosts == 1:  # every row is here: lists of halo and of served rows are in one order
        row[boundary.halo] = row[boundary.served]
        return _Owners(row, silo, None, None)
    served = row[boundary.served]
    row[boundary.halo] = int(stack.owned.sum()) + torch.arange(len(boundary.halo), device=row.device)
    leaving = Lot(served, boundary.served, boundary.served_pair, boundary.served_ptr.diff().tolist(), wire.silos)
    halo = boundary.halo
    return _Owners(
        row, silo, leaving, Lot(halo, halo, boundary.halo_pair, boundary.halo_ptr.diff().tolist(), wire.silos)
    )


def _lanes(stack: Stack, into: Adjacency, out_of: Adjacency, place: _Owners, fewest: int, padded_to: int) -> Lanes:
    """Lanes along one direction: sums at the rows of ``into``, messages along the edges of ``out_of``."""
    own = stack.owned.nonzero().flatten()
    counts, near = into.degree[own], place.row[into.near]
    others = _others(into, own)
    kept = others >= (fewest if fewest > 1 else 0)
    if not bool(kept.all()):
        near = near[torch.repeat_interleave(kept, counts)]
        counts = torch.where(kept, counts, 0)
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    sender = torch.repeat_interleave(torch.arange(stack.rows, device=own.device), out_of.degree)
    first = _messages(place.silo[sender], place.silo[out_of.near])
    summed = Traffic.up(place.silo[own[counts > 0]])
    zeros = _padding(counts, place.silo[own], padded_to)
    to_silos = Traffic(devices_of(0) - first.sender, first.receiver, first.rows)
    second = to_silos + Traffic(devices_of(0) - zeros.sender, zeros.sender, zeros.rows)
    return Lanes(
        near=near,
        ptr=ptr,
        others=others,
        holders=(Traffic(devices_of(0) - first.sender, devices_of(0) - first.receiver, first.rows), second),
        origin=Origin(place.silo[own], own, members(sender, out_of.near, stack.rows)),
        up=Traffic(devices_of(0) - summed.sender, summed.sender, summed.rows),
        down=Traffic(summed.sender, devices_of(0) - summed.sender, summed.rows),
        arriving=place.arriving,
        leaving=place.leaving,
    )


def _others(into: Adjacency, own: Tensor) -> Tensor:
    """How many other nodes have an edge to each owned row: parallel edges count once, and self-loops not at all."""
    rows = len(into.degree)
    target = torch.repeat_interleave(torch.arange(rows, device=own.device), into.degree)
    pairs = (target * rows + into.near)[target != into.near].unique()
    return torch.bincount(pairs // rows, minlength=rows)[own]


def _messages(sender: Tensor, receiver: Tensor) -> Traffic:
    """One message for every edge, by the silos of its ends."""
    silos = int(max(sender.max(), receiver.max())) + 1 if len(sender) else 1
    return Traffic.between(sender * silos + receiver, silos)


def _padding(counts: Tensor, silo: Tensor, padded_to: int) -> Traffic:
    """Shares of zero that devices add to those that they pass on, by silo."""
    longest = int(counts.max()) if len(counts) else 0
    if padded_to and longest > padded_to:
        raise IsthmusError(f"exchange.padded_to is {padded_to}, but a node has {longest} neighbours; use {longest}.")
    power = 2 ** torch.log2(counts.clamp(min=1).double()).ceil().long()
    missing = torch.where(counts > 0, (padded_to if padded_to else power) - counts, 0)
    owner, rows = np.unique(torch.repeat_interleave(silo, missing).cpu().numpy(), return_counts=True)
    return Traffic(owner, owner, rows)
