"""The wire of hosts that exchange letters: numbered bytes from one host to another, carried by a courier."""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import KINDS, SERVER, Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Chain
from isthmus.wire.arrival_checks import check_finite, check_sizes
from isthmus.wire.door import row_size
from isthmus.wire.membership import Membership
from isthmus.wire.packing import pack, unpack
from isthmus.wire.wire import Wire

_HEAD = struct.Struct("<BBq")  # what a letter is, its kind, and how many rows it has


class Courier(ABC):
    """Carries letters from this host to others; those from one host to another are numbered 0, 1, 2, ... in order."""

    security = ""  # how what it carries is secured, in words

    @abstractmethod
    def send(self, host: int, number: int, letter: bytes) -> int:
        """Send a letter without waiting for its receiver; returns how many bytes travel."""

    @abstractmethod
    def receive(self, host: int, number: int) -> bytes:
        """Wait for a letter of a host; raises `HostLost` where that host has ended or stays silent for too long."""

    def tell(self, problem: str) -> None:  # noqa: B027 - a courier may have nobody to tell
        """Tell all hosts why this one ends, so that nobody waits for its letters."""

    def close(self) -> None:  # noqa: B027 - a courier may have nothing to close
        """Stop carrying; every host has received what it waited for."""


class _Act(IntEnum):
    """What a letter is for: hosts that are not at the same call are found out by it."""

    LETTERS = 1
    ROWS = 2
    COUNT = 3
    PART = 4
    SUM = 5
    FAREWELL = 6


class LetterWire(Wire):
    """Every transport of a wire as letters between hosts; sums are added in host order at the server's host."""

    def __init__(self, members: Membership, host: int, courier: Courier, protect: Chain | None = None) -> None:
        super().__init__(members, host, 1 + max(members.server, *members.homes), protect)
        self.courier = courier
        self.security = courier.security
        self._lanes: Callable[[int, int], bool] = lambda sender, receiver: True  # hosts between which letters may go
        self._sent = [0] * self.hosts
        self._received = [0] * self.hosts

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        home = self.members.home
        stay = {key: x for key, x in letters.items() if home(key[1]) == self.host}
        for host in (host for host in self._others if self._lanes(self.host, host)):
            buffer = pack({key: x for key, x in letters.items() if home(key[1]) == host})
            self._send(host, _Act.LETTERS, kind, buffer)
        for host in (host for host in self._others if self._lanes(host, self.host)):
            buffer = self._receive(host, _Act.LETTERS, kind, torch.empty(0, dtype=torch.uint8))
            try:
                stay.update(unpack(buffer, self._parties(host), self._parties(self.host)))
            except ValueError as error:
                raise PeerError(f"{self.who[host]} sent {error} where {kind} were due.") from error
        return stay

    def gather(self, kind: Kind, said: Mapping[int, Tensor]) -> dict[int, Tensor] | None:
        """Send a tensor of each silo to the server; no letter goes to other hosts than the server's."""
        with self._along(lambda sender, receiver: receiver == self.members.server):
            return super().gather(kind, said)

    def answer(self, kind: Kind, verdict: Tensor | None) -> Tensor:
        """Send ``verdict`` of the server to every silo; no letter comes from other hosts than the server's."""
        with self._along(lambda sender, receiver: sender == self.members.server):
            return super().answer(kind, verdict)

    @contextmanager
    def _along(self, lanes: Callable[[int, int], bool]) -> Iterator[None]:
        """Let letters of a ``with`` block go between some hosts only; all hosts name the same ones."""
        before, self._lanes = self._lanes, lanes
        try:
            yield
        finally:
            self._lanes = before

    def _parties(self, host: int) -> set[int]:
        """The parties that live on a host: its present silos, and the server where it is at home."""
        return {*self.members.on(host), *([SERVER] if self.members.home(SERVER) == host else [])}

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        parts = rows.cpu().split(leaving)
        for host in self._others:
            if leaving[host]:  # no letter without rows: its receiver does not wait for it either
                self._send(host, _Act.ROWS, kind, parts[host])
        got = [self._receive(host, _Act.ROWS, kind, rows, arriving[host]) for host in self._others if arriving[host]]
        return self._in_order(got, [host for host in self._others if arriving[host]], parts[self.host], rows)

    def _in_order(self, got: list[Tensor], hosts: list[int], own: Tensor, like: Tensor) -> Tensor:
        """Rows of some hosts and this host's own, in host order, on the device of ``like``."""
        by_host = {**dict(zip(hosts, got, strict=True)), self.host: own}
        return torch.cat([by_host[host] for host in sorted(by_host)]).to(like.device)

    def leave_sized(
        self, parcel: Parcel, leaving: list[int], most: list[int] | None = None
    ) -> tuple[Tensor, list[int]]:
        """Let a parcel leave for hosts that do not know how many rows to expect: a letter says so itself."""
        arriving = [0] * self.hosts

        def carry(sealed: Tensor) -> Tensor:
            parts = sealed.cpu().split(leaving)
            for host in self._others:
                self._send(host, _Act.ROWS, parcel.kind, parts[host])
            got = [self._receive(host, _Act.ROWS, parcel.kind, sealed) for host in self._others]
            for host, rows in [*zip(self._others, got, strict=True), (self.host, parts[self.host])]:
                arriving[host] = len(rows)
            check_sizes(parcel.kind, arriving, most, row_size(sealed), self.who)
            return self._in_order(got, self._others, parts[self.host], sealed)

        return self.leave_alone(parcel, carry), arriving

    def _sizes(self, kind: Kind, leaving: list[int]) -> list[int]:
        arriving = [0] * self.hosts
        arriving[self.host] = leaving[self.host]
        for host in self._others:
            self._send(host, _Act.COUNT, kind, torch.tensor([leaving[host]]))
        for host in self._others:
            arriving[host] = int(self._receive(host, _Act.COUNT, kind, torch.zeros(1, dtype=torch.int64), 1))
        return arriving

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        server, payload = self.members.server, x.detach().cpu()
        if self.host != server:
            self._send(server, _Act.PART, kind, payload)
            return self._receive(server, _Act.SUM, kind, payload, 1)[0].to(x.device)
        parts = [
            payload if host == server else self._part(kind, host, payload, per_silo) for host in self.members.hosts
        ]
        result = torch.cat(parts).sum(0)
        for host in self._others:
            self._send(host, _Act.SUM, kind, result[None])
        return result.to(x.device)

    def _part(self, kind: Kind, host: int, like: Tensor, per_silo: bool) -> Tensor:
        """Receive another host's part of a sum, at the server's host: [silos of that host or 1, ...]."""
        silos = [self.party(silo) for silo in self.members.on(host)] if per_silo else [self.who[host]]
        part = self._receive(host, _Act.PART, kind, like, len(silos))
        check_finite(kind, part, [1] * len(silos), silos)
        return part

    # ---- letters

    @property
    def _others(self) -> list[int]:
        """Other hosts that carry a present silo or the server, ascending."""
        return [host for host in self.members.hosts if host != self.host]

    def _send(self, host: int, act: _Act, kind: Kind, rows: Tensor) -> None:
        """Send rows to a host, under the next number."""
        started = time.perf_counter()
        head = _HEAD.pack(act, KINDS.index(kind), len(rows))
        body = rows.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        size = self.courier.send(host, self._sent[host], b"".join((head, body)))  # type: ignore[arg-type]
        self._sent[host] += 1
        self.ledger.carry(kind, size)
        self.seconds += time.perf_counter() - started

    def _receive(self, host: int, act: _Act, kind: Kind, like: Tensor, due: int | None = None) -> Tensor:
        """Wait for the next letter of a host; its rows, with the width and number format of ``like``.

        ``due`` is how many rows must come (None: any number). A letter that is not the one that is due is refused, with
        the name of its sender.
        """
        started = time.perf_counter()
        letter = self.courier.receive(host, self._received[host])
        self._received[host] += 1
        self.seconds += time.perf_counter() - started
        count = self._checked(host, letter, act, kind)
        size = row_size(like)
        if count < 0 or len(letter) != _HEAD.size + count * size or due not in (None, count):
            wanted = "rows" if due is None else f"{due:,} rows"
            raise PeerError(
                f"{self.who[host]} sent {count:,} rows of {kind} in {len(letter):,} bytes, where {wanted} of {size:,} "
                "bytes were due."
            )
        body = bytearray(memoryview(letter)[_HEAD.size :])
        flat = torch.frombuffer(body, dtype=like.dtype) if body else torch.empty(0, dtype=like.dtype)
        return flat.reshape(count, *like.shape[1:])

    def _checked(self, host: int, letter: bytes, act: _Act, kind: Kind) -> int:
        """How many rows a letter says that it has; raises where it is not of the call at which this host is."""
        if len(letter) < _HEAD.size:
            raise PeerError(f"{self.who[host]} sent a letter of {len(letter)} bytes where {kind} were due.")
        found, place, count = _HEAD.unpack_from(letter)
        if (found, place) != (act, KINDS.index(kind)):
            named = KINDS[place].value if place < len(KINDS) else f"kind {place}"
            what = _Act(found).name.lower() if found in _Act.__members__.values() else f"act {found}"
            raise PeerError(
                f"{self.who[host]} sent {named} ({what}) where {kind} ({act.name.lower()}) were due: it is not at the "
                "step of the others."
            )
        return int(count)

    # ---- the end

    def end(self, problem: str) -> None:
        """Tell the other hosts why this one ends."""
        self.courier.tell(problem)

    def close_down(self) -> None:
        """Wait for all hosts, then stop: a host that left early would look lost to the others."""
        with self.ledger.unrecorded():
            nothing = torch.empty(0, dtype=torch.uint8)
            for host in self._others:
                self._send(host, _Act.FAREWELL, Kind.LEDGER, nothing)
            for host in self._others:
                self._receive(host, _Act.FAREWELL, Kind.LEDGER, nothing, 0)
        self.courier.close()
