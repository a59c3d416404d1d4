"""Sums of neighbours' rows in which nobody reads a single row: rows are added up sealed, and only sums are opened.

A node is a device here. It sends its row to the devices of its neighbours; where rows are divided into shares, anew for
every message, the first share goes to the target's device, and the second to the target's silo. The device passes it on
with shares of zero among them, and can read it as little as anybody else on the way (it is encrypted for the silo).
Of more than two shares the third goes to the next silo by number, and so on, likewise. All holders add up what they
hold. They hand their sums to the target's silo, which opens the sum of rows and returns it to the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.wire.arrival_checks import check_elements, check_finite
from isthmus.wire.door import Door


@dataclass(frozen=True)
class Carriage:
    """Where what is added up lies: behind what this host's devices send comes what other hosts send here.

    ``at``, ``leaving``: what goes to other hosts, and how much to each; ``arriving``: how much each sends here. With
    one host nothing is carried.
    """

    near: Tensor  # [m] what is added up
    at: Tensor | None = None
    leaving: list[int] = field(default_factory=list)
    arriving: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Lanes:
    """In one direction of the edges: whose rows are added up at which of this host's owned rows.

    Rows that are not divided travel once to each host (``rows``). Where they are divided, every message has shares of
    its own (``messages``): who got one share twice would know that two sums have a row in common.
    ``holders``: who gets the first share of each message that this host's devices send, the second, and so on.
    """

    rows: Carriage
    messages: Carriage
    copies: Tensor  # [messages that this host's devices send] the owned row that each carries
    ptr: Tensor  # [owned + 1] by target
    others: Tensor  # [owned] how many nodes beside the target itself have rows in its sum, whether it is made or not
    holders: tuple[Traffic, ...]
    origin: Origin  # of this host's own rows; ``parts``: each once for every sum that it is in
    up: tuple[Traffic, ...]  # sums on their way to the target's silo: of first shares, and of third ones and further
    down: Traffic  # opened sums on their way back

    @property
    def longest(self) -> int:
        """The largest number of rows in one sum."""
        return int(self.ptr.diff().max()) if len(self.ptr) > 1 else 0


@dataclass(frozen=True)
class Surroundings:
    """The neighbours of this host's owned rows: along incoming edges, and backwards along outgoing ones."""

    inward: Lanes
    outward: Lanes


def add_up(wire: Door, rows: Tensor, lanes: Lanes, kind: Kind, layer: int) -> Tensor:
    """At each owned row the sum of the rows that its lanes name, added up while sealed: [owned, width]."""
    if lanes.longest > wire.protect.terms:
        raise IsthmusError(
            f"A node has {lanes.longest:,} neighbours, but protect.most={wire.protect.terms:,} rows can be added "
            "without a wrap; use a larger protect.most (and a smaller protect.fraction, where that leaves too little)."
        )
    shared = wire.protect.shares
    origin = lanes.origin if shared else Origin(lanes.origin.silo, lanes.origin.row)
    copies, carriage = (lanes.copies, lanes.messages) if shared else (None, lanes.rows)
    parcel = Parcel(kind, rows.detach(), origin, lanes.holders[0], layer, holders=lanes.holders, copies=copies)

    def carry(sealed: Tensor) -> Tensor:
        return wire.protect.add(_gathered(wire, kind, sealed, carriage), carriage.near, lanes.ptr)

    sums = wire.leave_alone(parcel, carry, opened=not shared)
    return _opened(wire, kind, sums, rows, lanes) if shared else sums


def _gathered(wire: Door, kind: Kind, sealed: Tensor, carriage: Carriage) -> Tensor:
    """What this host's devices sent, sealed, followed by what other hosts sent, which is checked."""
    if carriage.at is None:
        return sealed
    sent = sealed.index_select(0, carriage.at)
    came = wire.carry_rows(kind, sent, carriage.leaving, carriage.arriving)
    check = check_elements if wire.protect.shares else check_finite
    check(kind, came, carriage.arriving, wire.who)
    return torch.cat([sealed, came])


def _opened(wire: Door, kind: Kind, sums: Tensor, like: Tensor, lanes: Lanes) -> Tensor:
    """All holders hand their sums of shares to the target's silo, which opens the sums of rows and returns them."""
    own = Origin(lanes.origin.silo, lanes.origin.row)
    held = [
        Parcel(Kind.SHARE_SUMS, sums[:, k], own, up, derived=True)
        for k, up in zip((0, *range(2, sums.shape[1])), lanes.up, strict=True)
    ]
    first, *further = (wire.leave_alone(parcel, lambda x: x) for parcel in held)
    shares = torch.stack([first, sums[:, 1], *further], 1)
    rows = wire.protect.open(kind, shares, like)
    return wire.leave_alone(Parcel(Kind.NEIGHBOUR_SUMS, rows, own, lanes.down, derived=True), lambda x: x)


class Summed(torch.autograd.Function):
    """y_u = sum of h_v over edges (v, u); backwards, g_v = sum of the derivatives by y_u over the same edges."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, token: Tensor, wire: Door, around: Surroundings, layer: int
    ) -> tuple[Tensor, Tensor]:
        """Sums along incoming edges, and the token."""
        ctx.wire, ctx.around, ctx.layer = wire, around, layer
        return add_up(wire, h, around.inward, Kind.EMBEDDINGS, layer), token.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """Sums of derivatives along outgoing edges: the transpose, by the way that rows take."""
        gy, gtoken = grads
        made = ctx.around.inward.ptr.diff() > 0  # a sum that was not made is a constant
        gy = gy * made[:, None].to(gy)
        return add_up(ctx.wire, gy, ctx.around.outward, Kind.ADJOINTS, ctx.layer), gtoken, None, None, None
