"""The two legs of a trip through the server: rows of silos up to it, rows of its own making down to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from isthmus.core.kinds import SERVER, Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.wire.door import Door


@dataclass(frozen=True)
class Ends:
    """Rows that silos send to the server or get from it: whose they are, and the stack rows they are booked under."""

    silo: Tensor  # [n] numbers of silos, ascending
    row: Tensor  # [n] stack rows
    hosts: list[int]  # rows of each host; known where the server lives, zeros elsewhere
    parts: Tensor | None = None  # stack rows that these are sums of, each once for every sum (None: no sums)
    fewest: int = 1  # of how many rows any sum that somebody reads is made at least

    @cached_property
    def up(self) -> Traffic:
        """Who sends how many rows to the server."""
        return Traffic.up(self.silo)

    @cached_property
    def down(self) -> Traffic:
        """Who receives how many rows from the server."""
        return Traffic.down(self.silo)


def tell_server(wire: Door, kind: Kind, numbers: Tensor, silo: Tensor) -> tuple[Tensor, list[int]]:
    """Send numbers to the server, which does not know how many to expect.

    Returns at the server all silos' numbers in order, and how many each host sent; elsewhere no numbers.
    """
    parcel = Parcel(kind, numbers, Origin(silo, silo), Traffic.up(silo))
    return wire.leave_sized(parcel, to_server(wire, len(numbers)))


def lift(wire: Door, kind: Kind, rows: Tensor, ends: Ends, layer: int) -> Tensor:
    """Send rows of this host's silos to the server; returns there all silos' rows in order, and no rows elsewhere."""
    sums = kind == Kind.PARTIALS
    origin = Origin(ends.silo, ends.row, ends.parts, ends.fewest) if sums else Origin(ends.silo, ends.row)
    parcel = Parcel(kind, rows, origin, ends.up, layer)
    return wire.swap(parcel, to_server(wire, len(rows)), ends.hosts)


def hand_out(wire: Door, kind: Kind, rows: Tensor, ends: Ends, opened: bool = True) -> Tensor:
    """Send the server's rows, in the order of silos, to their silos; returns those for silos of this host.

    Rows that the server cannot read itself arrive as they were sent, not ``opened``.
    """
    parcel = Parcel(kind, rows, Origin.server(len(rows)), ends.down, by_server=True)
    return wire.swap(parcel, ends.hosts, to_server(wire, len(ends.silo)), opened)


def by_host(wire: Door, counts: Tensor) -> list[int]:
    """Sums over the silos of each host, from a number for every silo of the federation."""
    home = torch.tensor(wire.members.homes)
    sums = torch.zeros(wire.hosts, dtype=torch.int64).index_add_(0, home, counts.cpu())
    return [int(total) for total in sums]


def to_server(wire: Door, rows: int) -> list[int]:
    """How many rows go to each host when ``rows`` go to the server's host and none elsewhere: [hosts]."""
    return [rows if host == wire.members.home(SERVER) else 0 for host in range(wire.hosts)]
