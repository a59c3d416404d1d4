"""The neighbours of every node as lanes: whose rows are added up where, and who holds which share on the way."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import devices_of
from isthmus.core.parcel import Origin, Traffic, members
from isthmus.graph.stack import Adjacency, Stack
from isthmus.wire.neighbour_sums import Carriage, Lanes, Surroundings
from isthmus.wire.route import Boundary
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class _Owners:
    """Where rows lie among those that are added up, and whose they are."""

    row: Tensor  # [stack rows] place among this host's owned rows, or after them among those that arrive
    silo: Tensor  # [stack rows] the silo that owns each
    host: Tensor  # [stack rows] the host on which that silo lives
    rows: Carriage  # of rows, with no sums yet


def build_surroundings(wire: Wire, boundary: Boundary, stack: Stack, fewest: int, padded_to: int) -> Surroundings:
    """The lanes of this host's owned rows, inward and outward.

    Sums of rows of fewer than ``fewest`` other nodes are not made. Devices pass second shares on among shares of zero,
    so that their silo sees ``padded_to`` of them for each sum (0: the next power of two); so with further shares.
    """
    place = _placed(wire, boundary, stack)
    sides = stack.incoming, stack.outgoing
    inward, outward = (_lanes(wire, stack, *pair, place, fewest, padded_to) for pair in (sides, sides[::-1]))
    return Surroundings(inward, outward)


def _placed(wire: Wire, boundary: Boundary, stack: Stack) -> _Owners:
    numbers = torch.tensor(stack.silos or (0,), device=stack.keys.device)
    rows = torch.arange(stack.rows, device=stack.keys.device)
    silo, row = numbers[stack.silo_of(rows)], stack.own_line.clone()
    silo[boundary.halo] = boundary.halo_pair % wire.silos
    homes = torch.tensor([wire.members.home(each) for each in range(wire.silos)], device=silo.device)
    none = row[:0]
    if wire.hosts == 1:  # every row is here: lists of halo and of served rows are in one order
        row[boundary.halo] = row[boundary.served]
        return _Owners(row, silo, homes[silo], Carriage(none))
    served = row[boundary.served]
    row[boundary.halo] = int(stack.owned.sum()) + torch.arange(len(boundary.halo), device=row.device)
    splits = (each.diff().tolist() for each in (boundary.served_ptr, boundary.halo_ptr))
    return _Owners(row, silo, homes[silo], Carriage(none, served, *splits))


def _lanes(
    wire: Wire, stack: Stack, into: Adjacency, out_of: Adjacency, place: _Owners, fewest: int, padded_to: int
) -> Lanes:
    """Lanes along one direction: sums at the rows of ``into``, messages along the edges of ``out_of``."""
    own = stack.owned.nonzero().flatten()
    counts, others = into.degree[own], _others(into, own)
    kept = others >= (fewest if fewest > 1 else 0)
    summed_edges = torch.repeat_interleave(kept, counts)
    counts = torch.where(kept, counts, 0)
    messages = _messages_by_edge(wire, stack, into, out_of, place)
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    sender = torch.repeat_interleave(torch.arange(stack.rows, device=own.device), out_of.degree)
    first = _traffic(place.silo[sender], place.silo[out_of.near])
    summed = Traffic.up(place.silo[own[counts > 0]])
    zeros = _padding(counts, place.silo[own], padded_to)
    apart = range(max(wire.protect.holders - 1, 1))  # how far by number a silo that holds shares is from the target's
    return Lanes(
        rows=replace(place.rows, near=place.row[into.near][summed_edges]),
        messages=replace(messages, near=messages.near[summed_edges]),
        copies=place.row[sender],
        ptr=ptr,
        others=others,
        holders=(
            Traffic(devices_of(first.sender), devices_of(first.receiver), first.rows),
            *(_moved(first, wire.silos, by) + _moved(zeros, wire.silos, by) for by in apart),
        ),
        origin=Origin(place.silo[own], own, members(sender, out_of.near, stack.rows), fewest),
        up=(
            Traffic(devices_of(summed.sender), summed.sender, summed.rows),
            *(Traffic((summed.sender + by) % wire.silos, summed.sender, summed.rows) for by in apart[1:]),
        ),
        down=Traffic(summed.sender, devices_of(summed.sender), summed.rows),
    )


def _messages_by_edge(wire: Wire, stack: Stack, into: Adjacency, out_of: Adjacency, place: _Owners) -> Carriage:
    """For each edge of ``into`` where its message lies: among this host's own along ``out_of``, or behind those.

    Both hosts of an edge know its key, and list messages between them by it.
    """
    leaving, arriving = (_by_host(wire, stack, side, place) for side in (out_of, into))
    known = torch.cat([stack.edge_keys[out_of.edge], stack.edge_keys[into.edge[arriving[0]]]])
    ordered, order = known.sort()
    if bool((ordered[1:] == ordered[:-1]).any()):
        raise IsthmusError("Two edges have the same key, a chance of one in 10^19 for each pair; give nodes other ids.")
    near = order[torch.searchsorted(ordered, stack.edge_keys[into.edge])]
    return Carriage(near) if wire.hosts == 1 else Carriage(near, leaving[0], leaving[1], arriving[1])


def _by_host(wire: Wire, stack: Stack, side: Adjacency, place: _Owners) -> tuple[Tensor, list[int]]:
    """The edges of ``side`` whose other end lives on another host, by host and key, and how many each host has."""
    host = place.host[side.near]
    far = (host != wire.host).nonzero().flatten()
    far = far[torch.argsort(stack.edge_keys[side.edge[far]])]
    far = far[torch.argsort(host[far], stable=True)]
    return far, torch.bincount(host[far], minlength=wire.hosts).tolist()


def _others(into: Adjacency, own: Tensor) -> Tensor:
    """How many other nodes have an edge to each owned row: parallel edges count once, and self-loops not at all."""
    rows = len(into.degree)
    target = torch.repeat_interleave(torch.arange(rows, device=own.device), into.degree)
    pairs = (target * rows + into.near)[target != into.near].unique()
    return torch.bincount(pairs // rows, minlength=rows)[own]


def _traffic(sender: Tensor, receiver: Tensor) -> Traffic:
    """One message for every edge, by the silos of its ends."""
    silos = int(max(sender.max(), receiver.max())) + 1 if len(sender) else 1
    return Traffic.between(sender * silos + receiver, silos)


def _moved(shares: Traffic, silos: int, by: int) -> Traffic:
    """Shares from devices to the silo whose number is ``by`` more than that of the target's, and from the last to 0."""
    return Traffic(devices_of(shares.sender), (shares.receiver + by) % silos, shares.rows)


def _padding(counts: Tensor, silo: Tensor, padded_to: int) -> Traffic:
    """Shares of zero that devices add to those that they pass on, by silo."""
    longest = int(counts.max()) if len(counts) else 0
    if padded_to and longest > padded_to:
        raise IsthmusError(f"exchange.padded_to is {padded_to}, but a node has {longest} neighbours; use {longest}.")
    power = 2 ** torch.log2(counts.clamp(min=1).double()).ceil().long()
    missing = torch.where(counts > 0, (padded_to if padded_to else power) - counts, 0)
    owner, rows = np.unique(torch.repeat_interleave(silo, missing).cpu().numpy(), return_counts=True)
    return Traffic(owner, owner, rows)
