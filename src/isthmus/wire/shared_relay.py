"""Aggregates through a server that adds up what it does not read: partials stay sealed until their sum is there.

Where rows are divided into shares, two parties hold them that must not work together. The silo that makes a partial
sends its first share to the server, and its second straight to the silo that waits for the sum, which asked it for
this part and so knows already that it comes from there. The server adds up first shares and hands out their sums. The
receiver adds up second shares, and opens the sum of the partials: it reads no partial, and the server reads nothing.

Derivatives return likewise. The receiver divides that of a sum; the server passes copies of the first share on to the
silos that added to the sum, and these get the second share straight from the receiver.

Without shares whole numbers go through the server, which adds them up as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel
from isthmus.wire.arrival_checks import check_elements
from isthmus.wire.door import Door
from isthmus.wire.relay import Column, Relay
from isthmus.wire.route import Lot, Straight
from isthmus.wire.server_legs import Ends, hand_out, to_server

_FIRST, _SECOND = 0, 1  # shares of a row: the server's, and the other silo's


def lay_straight(
    wire: Door, partials: tuple[Tensor, Tensor, Tensor], asked: Tensor, place: Tensor, target: Tensor
) -> Straight:
    """The way past the server between those who make partials and those who wait for sums.

    ``partials``: for each partial of my silos the pair (who adds * silos + who waits), the slot that it joins, as who
    waits numbers them, and its stack row. ``asked``, ``place``: for each edge that my silos asked for the pair (who
    waits * silos + who adds), and the place of its target among my silos' slots, whose rows are ``target``.
    """
    silos, many = wire.silos, max(len(target), 1)
    pair, slot, row = partials
    order, splits = _ordered(wire, pair, slot, other=pair % silos)
    sent = Lot(order, row[order], pair[order], splits, silos)
    code = (_turned(asked, silos) * many + place).unique()  # several edges of one silo make one partial
    pair, place = code // many, code % many
    order, splits = _ordered(wire, pair, place, other=pair // silos)
    place = place[order]
    return Straight(sent, Lot(place, target[place], _turned(pair[order], silos), splits, silos))


def _turned(pair: Tensor, silos: int) -> Tensor:
    """Pairs of silos in the other direction."""
    return pair % silos * silos + pair // silos


def _ordered(wire: Door, pair: Tensor, slot: Tensor, other: Tensor) -> tuple[Tensor, list[int]]:
    """The order by (host of the ``other`` end, pair, slot), and how many entries there are for each host."""
    homes = torch.tensor([wire.members.home(silo) for silo in range(wire.silos)], device=pair.device)
    host = homes[other]
    order = torch.argsort(slot, stable=True)
    order = order[torch.argsort((host * wire.silos**2 + pair)[order], stable=True)]
    return order, torch.bincount(host, minlength=wire.hosts).tolist()


def add_sealed(wire: Door, relay: Relay, x: Tensor, columns: Sequence[Column], layer: int) -> Tensor:
    """Sums of the partials ``x`` at this host's slots, without a gradient; zeros at slots that are shut."""
    if any(column.join != "sum" for column in columns):
        raise IsthmusError("Sealed partials can be added up, but no maximum of them can be found; leave protect out.")
    ends = relay.partials
    origin = Origin(ends.silo, ends.row, ends.parts, ends.fewest)
    ways = None if relay.straight is None else (relay.straight.sent, relay.straight.due)
    held = _send(wire, Kind.PARTIALS, x, origin, ends, ways, layer)
    sums = _add(wire, held[_FIRST], relay.group, len(relay.open)).masked_fill(~relay.open[:, None], 0)
    first = hand_out(wire, _kind_of_sums(wire, Kind.PARTIALS), sums, relay.slots, opened=False)
    second = [] if ways is None else [_add(wire, held[_SECOND], ways[1].at, len(relay.shut))]
    return _opened(wire, Kind.PARTIALS, [first, *second], x).masked_fill(relay.shut[:, None], 0.0)


def return_sealed(wire: Door, relay: Relay, adjoints: Tensor, layer: int) -> Tensor:
    """Derivatives of this host's partials, from those of the sums that they are in.

    The silo that waits for a shut slot sends zeros; the server, which may be unable to read them, passes them on.
    """
    rows = adjoints.masked_fill(relay.shut[:, None], 0.0)
    origin = Origin(relay.slots.silo, relay.slots.row)
    ways = None if relay.straight is None else (relay.straight.due, relay.straight.sent)
    held = _send(wire, Kind.ADJOINTS, rows, origin, relay.slots, ways, layer)
    copies = held[_FIRST].index_select(0, relay.group)
    first = hand_out(wire, _kind_of_sums(wire, Kind.ADJOINTS), copies, relay.partials, opened=False)
    second = [] if ways is None else [torch.empty_like(first).index_copy_(0, ways[1].at, held[_SECOND])]
    return _opened(wire, Kind.ADJOINTS, [first, *second], adjoints)


def _send(
    wire: Door, kind: Kind, rows: Tensor, origin: Origin, ends: Ends, ways: tuple[Lot, Lot] | None, layer: int
) -> dict[int, Tensor]:
    """Let rows leave sealed: first shares (or whole rows) to the server, second shares straight to other silos.

    Returns what arrived here, sealed still: ``_FIRST`` at the server from all silos, ``_SECOND`` in the order of the
    second of ``ways``, by which they arrive.
    """
    holders = (ends.up,) if ways is None else (ends.up, ways[0].traffic)
    traffic = ends.up if ways is None else ends.up + ways[0].traffic  # a policy reads where shares go
    parcel = Parcel(kind, rows.detach(), origin, traffic, layer, holders=holders)

    def carry(sealed: dict[int, Tensor]) -> dict[int, Tensor]:
        whole = sealed[0]
        if ways is None:
            return {_FIRST: wire.carry_rows(kind, whole, to_server(wire, len(whole)), ends.hosts)}
        up, straight = whole[:, _FIRST].contiguous(), whole[:, _SECOND].index_select(0, ways[0].at)
        return {
            _FIRST: wire.carry_rows(kind, up, to_server(wire, len(up)), ends.hosts),
            _SECOND: wire.carry_rows(kind, straight, ways[0].splits, ways[1].splits),
        }

    wire.ledger.leg()
    held = wire.leave(kind, {0: parcel}, carry, opened=False)
    if wire.hosts > 1 and ways is not None:
        check_elements(kind, held[_FIRST], ends.hosts, wire.who)
        check_elements(kind, held[_SECOND], ways[1].splits, wire.who)
    return held


def _kind_of_sums(wire: Door, kind: Kind) -> Kind:
    """What the server hands out: sums (or copies) of shares, or else whole numbers of the kind that came."""
    return Kind.SHARE_SUMS if wire.protect.shares else kind


def _add(wire: Door, rows: Tensor, at: Tensor, count: int) -> Tensor:
    """Sums of sealed rows at ``count`` places: [count, w]."""
    terms = torch.bincount(at, minlength=count)
    longest = int(terms.max()) if count else 0
    if longest > wire.protect.terms:
        raise IsthmusError(
            f"An aggregate has parts of {longest:,} silos, but protect.most={wire.protect.terms:,} rows can be added "
            f"without a wrap; use protect.most={longest:,} or more."
        )
    ptr = torch.cat([terms.new_zeros(1), terms.cumsum(0)])
    return wire.protect.add(rows, torch.argsort(at, stable=True), ptr)


def _opened(wire: Door, kind: Kind, held: Sequence[Tensor], like: Tensor) -> Tensor:
    """Readable rows, from whole numbers, or from both shares of each."""
    rows = torch.stack(list(held), 1) if len(held) > 1 else held[0]
    return wire.protect.open(kind, rows, like)


class AddedSealed(torch.autograd.Function):
    """Differentiable sums of sealed partials: [p, w] of this host's silos to sums [s, w] at their slots."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, token: Tensor, wire: Door, relay: Relay, columns: Sequence[Column], layer: int
    ) -> tuple[Tensor, Tensor]:
        """Add partials up through the server, sealed."""
        ctx.wire, ctx.relay, ctx.layer = wire, relay, layer
        return add_sealed(wire, relay, x, columns, layer), token.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """Derivatives of sums return to the silos of the partials in them, sealed on the way."""
        gy, gtoken = grads
        return return_sealed(ctx.wire, ctx.relay, gy, ctx.layer), gtoken, None, None, None, None
