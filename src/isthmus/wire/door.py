"""The one door: everything that leaves a party is checked, sealed, booked, delivered and opened here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from isthmus.core.errors import HostLost
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Level, Parcel
from isthmus.protect.base import Chain
from isthmus.protect.releases import Releases
from isthmus.protect.secrets import Noise
from isthmus.wire.arrival_checks import check_finite, check_sizes
from isthmus.wire.ledger import Ledger
from isthmus.wire.membership import Membership
from isthmus.wire.policy import Policy
from isthmus.wire.route import Lot

_Out = TypeVar("_Out")
_In = TypeVar("_In")
Carry = Callable[[dict[_Out, Tensor]], Mapping[_In, Tensor]]  # sealed rows that leave -> sealed rows that arrive


class Door(ABC):
    """Base of every wire: who is on this host, the one function by which data leaves, and the transport behind it.

    This process is the host ``host`` of the federation.

    The server is a party of its own (number ``SERVER``) that lives on one of the hosts. Every host must make the same
    calls in the same order, also when it has nothing to send.
    """

    def __init__(self, members: Membership, host: int, hosts: int, protect: Chain | None = None) -> None:
        self.members, self.host, self.hosts = members, host, hosts
        self.mine = members.carried(host)  # the silos that live in this process, present or not
        self.protect = protect or Chain()
        self.policy: Policy = Policy()
        self.level = Level()
        self.noise = Noise()
        self.ledger = Ledger(alone=hosts == 1)
        self.releases = Releases()
        self.security = ""  # of the wire between hosts, in words; in one process there is none
        self.introduced: dict[str, dict[str, str]] = {}  # what each party has told of itself, by its name
        self.returned = False  # this host comes back to a run that the others are in the middle of
        self.recovers = False  # whether those who are left go on when somebody is lost now
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
        """The name of a party, as reports and errors print it."""
        return self.ledger.party(number)

    @property
    def who(self) -> list[str]:
        """Names of the silos on each host, for errors that name the sender: [hosts]."""
        return [", ".join(map(self.party, self.members.carried(host))) or "the server" for host in range(self.hosts)]

    def end(self, problem: str) -> None:  # noqa: B027 - in one process there is nobody to tell
        """Tell the other hosts why this one ends, so that they can say it too."""

    def waiting_for(self) -> list[str]:
        """The hosts that this one is ahead of at this moment, by the silos on them; in one process nobody waits."""
        return []

    def come_back(self) -> None:  # noqa: B027 - in one process nobody was away
        """Wait until the others let this host in, which has ``returned`` to a run that they are in the middle of."""

    def muster(self, planned: Membership) -> Membership:
        """Who takes part in the round that begins; every host calls this, and none returns before all have called.

        ``planned``: whom a simulation lets take part.
        """
        return planned

    def survivors(self, rounds: Sequence[int]) -> tuple[Membership, int]:
        """After somebody was lost: who is left, and from which of the ``rounds`` that this host can go back to.

        All who are left call this, get one answer, and can talk to each other again afterwards.
        """
        raise HostLost("Nobody can be lost in one process.")

    @property
    def here(self) -> tuple[int, ...]:
        """The silos of this process that are present, ascending."""
        return self.members.on(self.host)

    def regroup(self, members: Membership) -> None:
        """Let all that follows run over ``members`` only. Every host that has one of them calls this, and no other.

        Calls stay as they are: a host passes rows for all of its silos, and those of absent ones do not leave.
        """
        self.members = members

    # ---- the one function by which data leaves

    def leave(
        self,
        kind: Kind,
        parcels: Mapping[_Out, Parcel],
        carry: Carry[_Out, _In],
        like: Tensor | None = None,
        opened: bool = True,
    ) -> dict[_In, Tensor]:
        """Let parcels of one kind leave together, and return what arrived here in exchange.

        In this order: ask the policy, seal, book releases, write the ledger, ``carry``, open. Nothing is sealed before
        every parcel is allowed. ``carry`` gets sealed rows and returns those that arrived; they are opened in the
        number format and width of ``like`` (None: as they came), unless ``opened`` is false, where nobody here may read
        them yet. A row that is divided into shares is one message to each of its holders. No other function hands data
        of a party to a transport, so whoever wants to know what a silo discloses reads this function and its callers.
        """
        self.policy.admit(self, parcels.values())
        sealed = {}
        for key, parcel in parcels.items():
            done = self.protect.seal(parcel, self.noise)
            self.releases.book(parcel, done, self.protect)
            for traffic in parcel.holders if done.shares > 1 else (parcel.traffic,):
                self.ledger.record(kind, done.events, self.level.named(kind, traffic), row_size(done.rows, done.shares))
            self._record_below(parcel)
            sealed[key] = done.rows
        arrived = carry(sealed)
        if not opened:
            return dict(arrived)
        return {key: self.protect.open(kind, rows, rows if like is None else like) for key, rows in arrived.items()}

    def _record_below(self, parcel: Parcel) -> None:
        """Write into the ledger what devices handed in so that their silo could send this parcel, where it has any."""
        below = self.level.below(parcel.kind, parcel.traffic)
        if below is not None and len(below.rows):
            handed_in = replace(parcel, rows=parcel.rows[:0], traffic=below, added=())
            events = self.protect.seal(handed_in, self.noise).events
            self.ledger.record(parcel.kind, events, below, row_size(parcel.rows))

    def leave_alone(
        self, parcel: Parcel, carry: Callable[[Tensor], Tensor], legs: int = 1, opened: bool = True
    ) -> Tensor:
        """Let one parcel leave and return the rows that arrive here in exchange, sealed still where not ``opened``.

        ``carry`` takes the sealed rows and returns those that arrived; it takes ``legs`` one-way trips.
        """
        self.ledger.leg(legs)
        return self.leave(parcel.kind, {0: parcel}, lambda sealed: {0: carry(sealed[0])}, parcel.rows, opened)[0]

    def leave_sized(
        self, parcel: Parcel, leaving: list[int], most: list[int] | None = None
    ) -> tuple[Tensor, list[int]]:
        """Let a parcel leave for hosts that do not know how many rows to expect of it.

        ``leaving`` rows go to each host; each may send up to ``most`` (None: what memory holds). Returns the rows that
        arrived here, and how many each host sent.
        """
        arriving: list[int] = []

        def carry(sealed: Tensor) -> Tensor:
            arriving.extend(self._sizes(parcel.kind, leaving))
            check_sizes(parcel.kind, arriving, most, row_size(sealed), self.who)
            return self._swap(parcel.kind, sealed, leaving, arriving)

        return self.leave_alone(parcel, carry), arriving

    def move(
        self, kind: Kind, rows: Tensor, leaving: Lot, arriving: Lot, layer: int = 0, parts: Tensor | None = None
    ) -> Tensor:
        """Send rows, grouped by receiving host as ``leaving`` says; returns those that arrive, grouped by sending host.

        ``parts``: the stack rows that these rows are sums of, each once for every sum that it is in (None: no sums).
        """
        origin = leaving.origin if parts is None else replace(leaving.origin, parts=parts)
        return self.swap(Parcel(kind, rows, origin, leaving.traffic, layer), leaving.splits, arriving.splits)

    def swap(self, parcel: Parcel, leaving: list[int], arriving: list[int], opened: bool = True) -> Tensor:
        """Let a parcel leave, ``leaving`` rows to each host; returns what arrives, ``arriving`` rows from each host.

        Rows that are no finite numbers are refused, with the name of who sent them.
        """
        kind = parcel.kind
        rows = self.leave_alone(parcel, lambda sealed: self._swap(kind, sealed, leaving, arriving), opened=opened)
        if self.hosts > 1:  # in one process nobody else is to blame
            check_finite(kind, rows, arriving, ["the server"] * self.hosts if parcel.by_server else self.who)
        return rows

    def carry_rows(self, kind: Kind, sealed: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        """Carry sealed rows to other hosts, within a call of :meth:`leave`; returns those that arrive, sealed still."""
        return self._swap(kind, sealed, leaving, arriving)

    # ---- collectives run in one order on all hosts, in the backward pass too

    def _thread(self, like: Tensor) -> Tensor:
        """A scalar that every differentiable collective of a pass takes and returns, which fixes their order."""
        if self._token is None:
            self._token = torch.zeros((), dtype=like.dtype, device=like.device, requires_grad=True)
        return self._token

    def close(self, loss: Tensor) -> Tensor:
        """The loss plus 0 times the token of this pass: all hosts then run every collective backwards, in one order."""
        token, self._token = self._token, None
        return loss if token is None else loss + 0.0 * token

    # ---- transport: what a subclass implements; only this package calls it

    @abstractmethod
    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        """Carry letters {(sender, receiver): payload} to their hosts; returns those for parties of this host."""

    @abstractmethod
    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        """Send ``leaving`` rows to each host; returns the ``arriving`` rows of each host, in host order."""

    @abstractmethod
    def _sizes(self, kind: Kind, leaving: list[int]) -> list[int]:
        """Tell every host how many rows this one has for it; returns how many each has for this one."""

    @abstractmethod
    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        """Sum of all hosts' rows of ``x``, in host order; a host has one row, or ``per_silo`` one for each silo."""

    def close_down(self) -> None:  # noqa: B027 - most wires have nothing to close
        """Leave the federation."""


def row_size(x: Tensor, shares: int = 1) -> int:
    """Bytes of one row of a payload, or of one of the ``shares`` that it is divided into."""
    return x.shape[1:].numel() * x.element_size() // shares
