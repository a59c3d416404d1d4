"""Aggregates through the server: silos send parts of sums to it, and it hands out each sum once, without senders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import SERVER, Kind
from isthmus.wire.door import Door
from isthmus.wire.server_legs import Ends, by_host, hand_out, lift, tell_server

NEUTRAL = {"sum": 0.0, "amax": -torch.inf, "amin": torch.inf}  # what changes nothing when it joins; never sent


@dataclass(frozen=True)
class Column:
    """Neighbouring columns of a partial aggregate, and how those of several silos join."""

    join: str  # sum, amax or amin
    width: int


@dataclass(frozen=True)
class Relay:
    """Partials of my silos, and the slots that my silos opened for what comes back.

    On the server's host ``group`` is the slot, counted over all silos, that each partial of any silo joins, and
    ``open`` says which slots hold enough neighbours to be handed out. A silo knows by itself which of its own are
    ``shut``: zeros travel for these, both ways, so that everything that travels is a finite number.
    """

    partials: Ends
    slots: Ends
    group: Tensor  # [partials of all silos], on other hosts empty
    open: Tensor  # [slots of all silos] bool
    shut: Tensor  # [slots of my silos] bool

    def join(self, parts: Tensor, columns: Sequence[Column]) -> Tensor:
        """The server's work: one row for each slot, of zeros where it is not handed out."""
        out = []
        for part, column in zip(parts.split([column.width for column in columns], 1), columns, strict=True):
            empty = parts.new_full((len(self.open), column.width), NEUTRAL[column.join])
            at = self.group[:, None].expand_as(part)
            joined = empty.scatter_reduce(0, at, part, column.join)
            out.append(joined)
        return torch.cat(out, 1).masked_fill(~self.open[:, None], 0.0)

    def read(self, handed: Tensor, columns: Sequence[Column]) -> Tensor:
        """My slots as they were handed out; those that are shut hold what changes nothing when it joins."""
        neutral = torch.cat([handed.new_full((column.width,), NEUTRAL[column.join]) for column in columns])
        return torch.where(self.shut[:, None], neutral, handed)

    def share(self, adjoints: Tensor, parts: Tensor, whole: Tensor, columns: Sequence[Column]) -> Tensor:
        """The server's work backwards: each part of a sum gets its derivative, the largest parts that of a maximum.

        Parts that are equally large share alike. A slot that stayed shut passes nothing on, whatever was sent for it.
        """
        adjoints = adjoints.masked_fill(~self.open[:, None], 0.0)
        out, at = [], 0
        for column in columns:
            here, at = slice(at, at + column.width), at + column.width
            given = adjoints[:, here]
            if column.join != "sum":
                reached = (parts[:, here] == whole[self.group, here]).to(given.dtype)
                ties = torch.zeros_like(given).index_add_(0, self.group, reached).clamp(min=1)
                out.append(reached * (given / ties)[self.group])
            else:
                out.append(given[self.group])
        return torch.cat(out, 1)


def open_relay(
    wire: Door,
    partials: tuple[Tensor, Tensor, Tensor],
    labels: Tensor,
    slots: tuple[Tensor, Tensor],
    near: Tensor,
    fewest: int,
) -> Relay:
    """Tell the server which slot of which silo each partial joins, and how many slots each silo has.

    ``partials`` and ``slots``: silos (ascending) and stack rows; of partials also the rows that they are sums of.
    ``labels`` [partials, 3]: the silo that asked, its slot, and the number of neighbours in the partial; ``near``: how
    many there are in all of each of my slots. Slots with fewer neighbours than ``fewest`` stay shut.
    """
    device = labels.device
    serves = wire.houses(SERVER)
    mine = torch.tensor(wire.mine, dtype=torch.int64, device=device)
    counts = torch.bincount(slots[0], minlength=wire.silos)[mine]
    with wire.ledger.at_once():
        told, from_hosts = tell_server(wire, Kind.IDS, labels, partials[0])
        opened, _ = tell_server(wire, Kind.IDS, counts[:, None], mine)
    every = opened.flatten()
    first = every.cumsum(0) - every
    group = first[told[:, 0]] + told[:, 1] if serves else told[:, 0]
    total = int(every.sum()) if serves else 0
    held = torch.zeros(total, dtype=torch.int64, device=device).index_add_(0, group, told[:, 2])
    to_hosts = by_host(wire, every) if serves else [0] * wire.hosts
    silo, row, parts = partials
    return Relay(Ends(silo, row, from_hosts, parts), Ends(*slots, to_hosts), group, held >= fewest, near < fewest)


def relayed(
    wire: Door, relay: Relay, x: Tensor, columns: Sequence[Column], layer: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Send partials to the server, which merges them: returns my silos' slots, and what the server got and made."""
    parts = lift(wire, Kind.PARTIALS, x.detach(), relay.partials, layer)
    whole = relay.join(parts, columns)
    return relay.read(hand_out(wire, Kind.PARTIALS, whole, relay.slots), columns), parts, whole


class Relayed(torch.autograd.Function):
    """Partials [p, w] of my silos become merged rows [s, w] of my silos' slots; derivatives return the same way."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, token: Tensor, wire: Door, relay: Relay, columns: Sequence[Column], layer: int
    ) -> tuple[Tensor, Tensor]:
        """Merge partials through the server, and remember what the backward pass needs."""
        ctx.wire, ctx.relay, ctx.columns, ctx.layer = wire, relay, columns, layer
        arrived, parts, whole = relayed(wire, relay, x, columns, layer)
        ctx.save_for_backward(parts, whole)
        return arrived, token.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """Up from the slots, shared out by the server, down to the partials."""
        gy, gtoken = grads
        wire, relay, columns = ctx.wire, ctx.relay, ctx.columns
        adjoints = lift(wire, Kind.ADJOINTS, gy.masked_fill(relay.shut[:, None], 0.0), relay.slots, ctx.layer)
        back = hand_out(wire, Kind.ADJOINTS, relay.share(adjoints, *ctx.saved_tensors, columns), relay.partials)
        return back, gtoken, None, None, None, None
