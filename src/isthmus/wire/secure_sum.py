"""Sums of vectors that nobody sees one by one: masks that cancel, with recovery of drop-outs (Bonawitz et al. 2017).

The silos of a wire are the clients, its server adds up. Four times the clients say something, and three times the
server answers: public keys; shares of keys, sealed for other clients; masked vectors; shares that open their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER, Kind
from isthmus.protect import key_agreement
from isthmus.protect.masked_sums import GROUP, groups
from isthmus.wire.secure_client import Client, Group
from isthmus.wire.secure_server import Aggregator, GroupSum, Heard
from isthmus.wire.wire import Wire


class Turn(IntEnum):
    """What a client can have sent last when it drops out."""

    NOTHING = 0
    KEYS = 1
    SHARES = 2
    MASKED = 3


def secure_sum(
    wire: Wire,
    vectors: Mapping[int, Tensor],
    width: int,
    size: int = GROUP,
    threshold: float = 2 / 3,
    last: Mapping[int, Turn] | None = None,
) -> list[GroupSum] | None:
    """Add up vectors [width] of this host's silos in groups of ``size``; returns the sums at the server, else None.

    A sum can be opened by the part ``threshold`` of its group, or more. ``last`` names silos that drop out, and what
    they send last; every host makes the call all the same.
    """
    key_agreement.require()
    present = wire.members.present
    plan = [_group([present[i] for i in run], threshold, width) for run in groups(len(present), size).runs]
    of = {member: group for group in plan for member in group.members}
    clients = {silo: Client(silo, of[silo], vectors[silo], wire.party) for silo in wire.mine}
    servers = [Aggregator(group, wire.party) for group in plan] if wire.houses(SERVER) else []
    here = _Meeting(wire, clients, servers, last or {})
    said = {silo: client.public_keys() for silo, client in clients.items()}
    told = here.turn(Kind.KEYS, Turn.KEYS, said, Aggregator.list_keys)
    said = {silo: clients[silo].seal_shares(letter) for silo, letter in told.items()}
    told = here.turn(Kind.KEY_SHARES, Turn.SHARES, said, Aggregator.deal_shares)
    said = {silo: clients[silo].mask(letter) for silo, letter in told.items()}
    told = here.turn(Kind.MASKED, Turn.MASKED, said, Aggregator.add_up)
    said = {silo: clients[silo].open_shares(letter) for silo, letter in told.items()}
    heard = here.hear(Kind.KEY_SHARES, said)
    return [server.open_sum(_of(server, heard)) for server in servers] if wire.houses(SERVER) else None


def _group(members: list[int], threshold: float, width: int) -> Group:
    """A group whose threshold is a part of its members, rounded up."""
    needed = math.ceil(threshold * len(members) - 1e-9)
    if len(members) < 2 or not len(members) / 2 < needed <= len(members):
        raise IsthmusError(
            f"{needed} of {len(members)} clients ({threshold:g}) are to open their sum: a group has 2 clients or more, "
            "and more than half of them are needed, else two halves could open both secrets of a client."
        )
    return Group(tuple(members), needed, width)


def _of(server: Aggregator, heard: Heard) -> dict[int, Tensor]:
    """What clients of one group said."""
    return {client: heard[client] for client in server.group.members if client in heard}


@dataclass(frozen=True)
class _Meeting:
    """The clients and the aggregators of this host, as they talk over the wire."""

    wire: Wire
    clients: Mapping[int, Client]
    servers: list[Aggregator]
    last: Mapping[int, Turn]

    def turn(
        self, kind: Kind, stage: Turn, said: Heard, answer: Callable[[Aggregator, Heard], dict[int, Tensor]]
    ) -> dict[int, Tensor]:
        """Clients that are still there say something, and the server answers; returns answers to this host's clients.

        Who drops out after this stage hears no answer.
        """
        heard = self.hear(kind, {silo: x for silo, x in said.items() if self.last.get(silo, stage) >= stage})
        down = {(SERVER, silo): x for each in self.servers for silo, x in answer(each, _of(each, heard)).items()}
        got = self.wire.post(kind, down)
        return {silo: x for (_, silo), x in got.items() if self.last.get(silo, stage + 1) > stage}

    def hear(self, kind: Kind, said: Heard) -> dict[int, Tensor]:
        """Send clients' letters to the server; returns those that arrived, where it lives."""
        return {silo: x for (silo, _), x in self.wire.post(kind, {(s, SERVER): x for s, x in said.items()}).items()}
