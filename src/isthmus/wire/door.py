"""The one door: everything that leaves a party is checked, sealed, booked, delivered and opened here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Chain
from isthmus.protect.releases import Releases
from isthmus.protect.secrets import Noise
from isthmus.wire.ledger import Ledger
from isthmus.wire.membership import Membership
from isthmus.wire.policy import Policy
from isthmus.wire.route import Lot

_T = TypeVar("_T")


class Door(ABC):
    """What every wire stands on: who is here, the one way out, and the transport behind it.

    This process is the host ``host`` of the federation.

    The server is a party of its own (number ``SERVER``) with a home. Every host makes the same calls in the same
    order, also when it has nothing to send.
    """

    def __init__(self, members: Membership, host: int, hosts: int, protect: Chain | None = None) -> None:
        self.members, self.host, self.hosts = members, host, hosts
        self.mine = members.on(host)  # the present silos that live in this process
        self.protect = protect or Chain()
        self.policy = Policy()
        self.noise = Noise()
        self.ledger = Ledger()
        self.releases = Releases()
        self.seconds = 0.0  # spent in the transport between hosts, waiting for slower ones included
        self._token: Tensor | None = None

    # ---- who is here

    @property
    def silos(self) -> int:
        """How many silos the federation has, present or not."""
        return self.members.silos

    def houses(self, party: int) -> bool:
        """Whether a party lives in this process."""
        return self.members.home(party) == self.host

    def party(self, number: int) -> str:
        """The name of a party as people know it."""
        return self.ledger.party(number)

    def gather_members(self, members: Membership) -> None:
        """Run the collectives that follow over these members alone; all of their hosts call this, and no others."""
        self.members, self.mine = members, members.on(self.host)

    # ---- the one way out

    def leave(self, parcels: Sequence[Parcel], carry: Callable[[list[Tensor]], _T]) -> _T:
        """Let parcels leave together: ask the policy, seal, book releases, write the ledger, then ``carry`` them.

        Nothing else in this package calls a transport with anything that a party made, and nobody outside of it calls
        a transport at all. Nothing is sealed before every parcel is allowed. ``carry`` gets the sealed rows of each
        parcel and returns what arrived here, still sealed.
        """
        for parcel in parcels:
            self.policy.check(parcel)
        sealed = []
        for parcel in parcels:
            done = self.protect.seal(parcel, self.noise)
            self.releases.book(parcel, done, self.protect)
            self.ledger.record(parcel.kind, done.events, parcel.traffic, _row_size(done.rows))
            sealed.append(done.rows)
        return carry(sealed)

    def move(
        self, kind: Kind, rows: Tensor, leaving: Lot, arriving: Lot, layer: int = 0, parts: Tensor | None = None
    ) -> Tensor:
        """Send rows that are grouped by receiving host; those that arrive are grouped by sending host.

        ``parts``: the stack rows that these rows are sums of, each once for every sum that it is in (None: no sums).
        """
        origin = leaving.origin if parts is None else replace(leaving.origin, parts=parts)
        parcel = Parcel(kind, rows, origin, leaving.traffic, layer)
        self.ledger.leg()
        got = self.leave([parcel], lambda sealed: self._swap(kind, sealed[0], leaving.splits, arriving.splits))
        return self.protect.open(kind, got, rows)

    # ---- one order of collectives, also backwards

    def _thread(self, like: Tensor) -> Tensor:
        """The token that runs through all differentiable collectives of a pass, so that they have one order."""
        if self._token is None:
            self._token = torch.zeros((), dtype=like.dtype, device=like.device, requires_grad=True)
        return self._token

    def close(self, loss: Tensor) -> Tensor:
        """Tie every collective of this pass to the loss, so that all hosts run all of them backwards, in order."""
        token, self._token = self._token, None
        return loss if token is None else loss + 0.0 * token

    # ---- transport: what a kind of wire brings; only this package calls it

    @abstractmethod
    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        """Carry letters to the parties of every host; return those for mine."""

    @abstractmethod
    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        """Exchange rows with every host, so many with each; mine come back to me."""

    @abstractmethod
    def _swap_sized(self, kind: Kind, rows: Tensor, leaving: list[int]) -> tuple[Tensor, list[int]]:
        """Exchange rows with hosts that do not know how many to expect; also returns how many arrived from each."""

    @abstractmethod
    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        """Sum of the rows of ``x`` of all hosts, in host order: a row for each silo of a host, or one for the host."""

    def close_down(self) -> None:  # noqa: B027 - most wires have nothing to close
        """Leave the federation."""


def _row_size(x: Tensor) -> int:
    """Bytes of one row of a payload."""
    return x.shape[1:].numel() * x.element_size()
