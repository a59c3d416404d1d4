"""Aggregates through the server: silos send it partial sums, and it hands out each whole sum without its senders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import SERVER, Kind
from isthmus.wire.door import Door
from isthmus.wire.route import Straight
from isthmus.wire.server_legs import Ends, by_host, hand_out, lift, tell_server

NEUTRAL = {"sum": 0.0, "amax": -torch.inf, "amin": torch.inf}  # what changes nothing when it joins; never sent


@dataclass(frozen=True)
class Column:
    """A run of columns of a partial aggregate, and how values of several silos are joined in it."""

    join: str  # sum, amax or amin
    width: int


@dataclass(frozen=True)
class Relay:
    """Which partial aggregate (of which silo) joins which slot; a slot is a row that some silo waits for.

    ``partials`` and ``slots`` are those of this host's silos. On the server's host ``group`` is the slot, counted over
    all silos, that each partial of any silo joins, and ``open`` says which slots hold enough neighbours to be handed
    out. A silo knows by itself which of its own slots are ``shut``: zeros travel for these in both directions, so that
    everything that travels is a finite number. ``straight`` is the way of shares that the server does not hold; None
    where rows are not divided into shares.
    """

    partials: Ends
    slots: Ends
    group: Tensor  # [partials of all silos], on other hosts empty
    open: Tensor  # [slots of all silos] bool
    shut: Tensor  # [slots of my silos] bool
    straight: Straight | None = None

    def join(self, parts: Tensor, columns: Sequence[Column]) -> Tensor:
        """At the server, join partials [partials, w] into one row a slot [slots, w]; zeros where it is not open."""
        out = []
        for part, column in zip(parts.split([column.width for column in columns], 1), columns, strict=True):
            empty = parts.new_full((len(self.open), column.width), NEUTRAL[column.join])
            at = self.group[:, None].expand_as(part)
            joined = empty.scatter_reduce(0, at, part, column.join)
            out.append(joined)
        return torch.cat(out, 1).masked_fill(~self.open[:, None], 0.0)

    def read(self, handed: Tensor, columns: Sequence[Column]) -> Tensor:
        """Rows of this host's slots; those that are shut hold the neutral element (0 of a sum, -inf of a maximum)."""
        neutral = torch.cat([handed.new_full((column.width,), NEUTRAL[column.join]) for column in columns])
        return torch.where(self.shut[:, None], neutral, handed)

    def share(self, adjoints: Tensor, parts: Tensor, whole: Tensor, columns: Sequence[Column]) -> Tensor:
        """At the server, derivatives of partials from those of slots; a maximum's goes to the partial that reached it.

        Partials that tie share it equally. A slot that is not open passes nothing on, whatever was sent for it.
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
    straight: Straight | None = None,
) -> Relay:
    """The `Relay` of a layer, after the server was told which slot each partial joins and how many slots a silo has.

    ``partials`` and ``slots``: silos (ascending) and stack rows; of partials also the rows that they are sums of.
    ``labels`` [partials, 3]: the silo that asked, its slot, and the number of neighbours in the partial. ``near``: the
    neighbours in each slot of this host's silos, over all partials. A slot with fewer than ``fewest`` stays shut.
    """
    device = labels.device
    at_server = wire.houses(SERVER)
    mine = torch.tensor(wire.here, dtype=torch.int64, device=device)
    counts = torch.bincount(slots[0], minlength=wire.silos)[mine]
    with wire.ledger.at_once():
        told, from_hosts = tell_server(wire, Kind.IDS, labels, partials[0])
        opened, _ = tell_server(wire, Kind.IDS, counts[:, None], mine)
    every = opened.new_zeros(wire.silos)
    if at_server:
        every[list(wire.members.present)] = opened.flatten()
    first = every.cumsum(0) - every
    group = first[told[:, 0]] + told[:, 1] if at_server else told[:, 0]
    total = int(every.sum()) if at_server else 0
    held = torch.zeros(total, dtype=torch.int64, device=device).index_add_(0, group, told[:, 2])
    to_hosts = by_host(wire, every) if at_server else [0] * wire.hosts
    silo, row, parts = partials
    alone = int(labels[:, 2].min()) if len(labels) else fewest  # the server reads each partial, unless it has shares
    ends = Ends(silo, row, from_hosts, parts, fewest if straight is not None else alone), Ends(*slots, to_hosts)
    return Relay(*ends, group, held >= fewest, near < fewest, straight)


def relayed(
    wire: Door, relay: Relay, x: Tensor, columns: Sequence[Column], layer: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Merge partials ``x`` at the server, without a gradient.

    Returns rows of this host's slots; at the server also the partials that arrived and the merged rows of all slots.
    """
    parts = lift(wire, Kind.PARTIALS, x.detach(), relay.partials, layer)
    whole = relay.join(parts, columns)
    return relay.read(hand_out(wire, Kind.PARTIALS, whole, relay.slots), columns), parts, whole


class Relayed(torch.autograd.Function):
    """Differentiable merge at the server: partials [p, w] of this host's silos to merged rows [s, w] of their slots."""

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
        """Silos send adjoints of their slots to the server, which returns to each silo those of its partials."""
        gy, gtoken = grads
        wire, relay, columns = ctx.wire, ctx.relay, ctx.columns
        adjoints = lift(wire, Kind.ADJOINTS, gy.masked_fill(relay.shut[:, None], 0.0), relay.slots, ctx.layer)
        back = hand_out(wire, Kind.ADJOINTS, relay.share(adjoints, *ctx.saved_tensors, columns), relay.partials)
        return back, gtoken, None, None, None, None
