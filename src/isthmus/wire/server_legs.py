"""The two legs of a way through the server: rows of silos up to it, rows of its own making down to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.protect.base import ROWS, Origin
from isthmus.wire.ledger import SERVER, Kind

if TYPE_CHECKING:
    from isthmus.wire.base import Wire


@dataclass(frozen=True)
class Ends:
    """Rows on the silos' side of the server: whose they are (ascending), under which stack rows they are booked."""

    silo: Tensor  # [n] numbers of silos
    row: Tensor  # [n] stack rows
    hosts: list[int]  # rows of each host; known where the server lives, zeros elsewhere
    parts: Tensor | None = None  # stack rows that these are sums of, each as often as it is in one (None: no sums)


def tell_server(wire: Wire, kind: Kind, numbers: Tensor, silo: Tensor) -> tuple[Tensor, list[int]]:
    """Send what the server does not expect yet; there: all silos' numbers in order, and how many each host sent."""
    sealed, event = wire.protect.seal(kind, numbers, Origin(silo, silo), wire.noise)
    _record(wire, kind, str(event), silo, sealed, up=True)
    there, sizes = wire._swap_sized(kind, sealed, [len(sealed), *[0] * (wire.hosts - 1)])
    return there, sizes


def lift(wire: Wire, kind: Kind, rows: Tensor, ends: Ends, layer: int) -> Tensor:
    """Protect, count and send rows of my silos to the server; there: all silos' rows in order."""
    sealed, event = wire.protect.seal(kind, rows, Origin(ends.silo, ends.row), wire.noise)
    if ends.parts is not None and kind == Kind.PARTIALS:
        wire.releases.record_parts(kind, layer, ends.parts)
    elif kind in ROWS:
        wire.releases.record(kind, layer, ends.row, sealed, wire.protect.constrain(kind, rows))
    _record(wire, kind, str(event), ends.silo, sealed, up=True)
    leaving = [len(sealed), *[0] * (wire.hosts - 1)]
    return wire._swap(kind, sealed, leaving, ends.hosts).to(rows.dtype)


def hand_out(wire: Wire, kind: Kind, rows: Tensor, ends: Ends) -> Tensor:
    """Send the server's rows, in the order of silos, to those whose they are; returns my silos' part."""
    arriving = [len(ends.silo), *[0] * (wire.hosts - 1)]
    got = wire._swap(kind, wire.protect.formatted(kind, rows), ends.hosts, arriving)
    _record(wire, kind, str(wire._seal_nothing(kind, rows)), ends.silo, got, up=False)
    return got.to(rows.dtype)


def by_host(wire: Wire, counts: Tensor) -> list[int]:
    """Sums over the silos of each host, from a number for every silo."""
    home = torch.tensor([wire.home(silo) for silo in range(wire.silos)])
    sums = torch.zeros(wire.hosts, dtype=torch.int64).index_add_(0, home, counts.cpu())
    return [int(total) for total in sums]


def _record(wire: Wire, kind: Kind, event: str, silo: Tensor, rows: Tensor, up: bool) -> None:
    """One leg, and a line of the ledger for each of my silos that took part."""
    wire.ledger.leg()
    size = rows.shape[1:].numel() * rows.element_size()
    counts = torch.bincount(silo, minlength=wire.silos).tolist()
    for number in wire.mine:
        if counts[number]:
            sender, receiver = (number, SERVER) if up else (SERVER, number)
            wire.ledger.record(kind, event, sender, receiver, counts[number], counts[number] * size)
