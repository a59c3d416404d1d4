"""A courier over a network that may lose, repeat, reorder, change or forge what it carries: letters are sealed."""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Protocol

from isthmus.core.errors import HostLost, PeerError
from isthmus.wire.flare.seals import Seals
from isthmus.wire.letters import Courier

_HEAD = struct.Struct("<BQ")  # what a packet is, and its number
_WORD = struct.Struct("<BQ")  # what a control packet says, and of which number
_AGAIN = 2.0  # seconds after which a letter is asked for again; then twice as long, and so on
_AHEAD = 100_000  # letters by which a sender may be ahead of its receiver
_RECEIPT = 32, 2**24  # letters, or bytes of them, after which a sender is told that it may forget them
_SLOW = 2e6  # bytes a second; a letter that may still be on its way at this pace is not sent again
_QUIET = 10.0  # seconds without a sign of a host that was asked for a letter, after which it is called silent


class Post(Protocol):
    """Carries packets between the parties of a run, by name; nothing is promised of what arrives."""

    def put(self, receiver: str, packet: bytes) -> None:
        """Hand over a packet, without waiting."""

    def listen(self, arrived: Callable[[str, bytes], None]) -> None:
        """Call ``arrived(claimed sender, packet)`` for what arrives from now on, on any thread."""


class _What(IntEnum):
    LETTER = 1
    CONTROL = 2


class _Word(IntEnum):
    AGAIN = 1  # send a letter again
    PRESENT = 2  # the letter is not written yet, and this host is alive
    RECEIPT = 3  # all letters up to a number have arrived
    BYE = 4  # this host has ended; its reason follows


class SealedCourier(Courier):
    """Seals, numbers and keeps letters until they have arrived, and refuses what does not bear its sender's seal."""

    security = "authenticated by certificates and encrypted from end to end"

    def __init__(
        self,
        post: Post,
        names: Sequence[str],
        host: int,
        seals: Seals,
        timeout: float,
        aborted: Callable[[], bool] = lambda: False,
    ) -> None:
        """``names`` of all hosts, in host order; ``aborted`` says whether whoever started the run has ended it."""
        self.post, self.names, self.host, self.seals = post, list(names), host, seals
        self.timeout, self.aborted = timeout, aborted
        self.dropped: Counter[str] = Counter()  # packets that came twice, or from nobody who takes part
        hosts = range(len(names))
        self._changed = threading.Condition()
        self._box: dict[tuple[int, int], bytes] = {}  # (sender, number) -> letters that nobody has read yet
        self._next = dict.fromkeys(hosts, 0)  # the number of each sender that is read next
        self._unreceipted = {each: [0, 0] for each in hosts}  # letters and bytes since the last receipt
        self._kept: dict[tuple[int, int], tuple[bytes, float]] = {}  # (receiver, number) -> packet, when it was sent
        self._controls = dict.fromkeys(hosts, 0)
        self._heard = dict.fromkeys(hosts, time.monotonic())
        self._gone: dict[int, str] = {}
        self._refused: PeerError | None = None
        post.listen(self._arrived)

    # ---- letters

    def send(self, host: int, number: int, letter: bytes) -> int:
        """Seal a letter, keep it, and hand it over; returns its bytes with the seal."""
        packet = self._packed(host, _What.LETTER, number, letter)
        with self._changed:
            self._kept[host, number] = packet, time.monotonic()
        self.post.put(self.names[host], packet)
        return len(packet)

    def receive(self, host: int, number: int) -> bytes:
        """Wait for a letter, asking for it again from time to time; raises where it can no longer come."""
        began = time.monotonic()
        ask_at, pause = began + _AGAIN, _AGAIN
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready(host, number), timeout=min(0.1, pause))
                letter = self._taken(host, number)
            if letter is not None:
                self._receipt(host, number, len(letter))
                return letter
            now = time.monotonic()
            if now - began > self.timeout:
                raise HostLost(self._why_late(host, now))
            if now > ask_at:
                ask_at, pause = now + 2 * pause, 2 * pause
                self._say(host, _Word.AGAIN, number)

    def _ready(self, host: int, number: int) -> bool:
        return (host, number) in self._box or self._refused is not None or bool(self._gone) or self.aborted()

    def _taken(self, host: int, number: int) -> bytes | None:
        """The letter, if it is here; raises where something was refused, a host has ended or the run was aborted."""
        if self._refused is not None:
            raise self._refused
        if (host, number) in self._box:
            self._next[host] = number + 1
            return self._box.pop((host, number))
        for told in self._gone.values():
            raise HostLost(told)
        if self.aborted():
            raise HostLost(
                "The run was ended from outside: a party's process is gone, or somebody aborted the job. The last "
                "checkpoint is intact; submit the job again with --resume."
            )
        return None

    def _why_late(self, host: int, now: float) -> str:
        quiet = now - self._heard[host] > _QUIET
        what = "gives no sign of life" if quiet else "is alive, and did not send what was due"
        return (
            f"{self.names[host]} {what} within the timeout of {self.timeout:g} s. This run stops; the last checkpoint "
            "is intact, submit the job again with --resume."
        )

    def _receipt(self, host: int, number: int, size: int) -> None:
        """Count a letter; after some of them tell its sender that it may forget them."""
        since = self._unreceipted[host]
        since[0], since[1] = since[0] + 1, since[1] + size
        if since[0] >= _RECEIPT[0] or since[1] >= _RECEIPT[1]:
            self._unreceipted[host] = [0, 0]
            self._say(host, _Word.RECEIPT, number)

    # ---- packets

    def _packed(self, host: int, what: _What, number: int, content: bytes) -> bytes:
        return _HEAD.pack(what, number) + self.seals.seal(self.names[host], what, number, content)

    def _say(self, host: int, word: _Word, value: int, text: str = "") -> None:
        """Send a control packet, each under a number of its own."""
        with self._changed:
            number = self._controls[host]
            self._controls[host] += 1
        self.post.put(
            self.names[host], self._packed(host, _What.CONTROL, number, _WORD.pack(word, value) + text.encode())
        )

    def _arrived(self, claimed: str, packet: bytes) -> None:
        """Open a packet and file it; one that does not bear the seal of its claimed sender ends the run."""
        if claimed not in self.names or claimed == self.names[self.host]:
            with self._changed:
                self.dropped["of strangers"] += 1
            return
        host = self.names.index(claimed)
        try:
            what, number = _HEAD.unpack_from(packet)
            content = self.seals.open(claimed, what & 0x7F, number, packet[_HEAD.size :])
            if number > self._next[host] + _AHEAD and what == _What.LETTER:
                raise ValueError("a letter of a number that cannot be due")
        except (ValueError, struct.error) as error:
            reason = str(error) if isinstance(error, ValueError) else "a packet that is too short"
            self._refuse(claimed, reason)
            return
        self._heard[host] = time.monotonic()
        if what == _What.LETTER:
            self._file(host, number, content)
        else:
            self._hear(host, content)

    def _refuse(self, claimed: str, reason: str) -> None:
        with self._changed:
            self._refused = self._refused or PeerError(
                f"In the name of {claimed} came {reason}: somebody on the way has changed, kept or made it. It was "
                "not read, and this run stops."
            )
            self._changed.notify_all()

    def _file(self, host: int, number: int, content: bytes) -> None:
        with self._changed:
            if number < self._next[host] or (host, number) in self._box:
                self.dropped["twice"] += 1
                return
            self._box[host, number] = content
            self._changed.notify_all()

    def _hear(self, host: int, content: bytes) -> None:
        """Do what a control packet asks for."""
        if len(content) < _WORD.size:
            self._refuse(self.names[host], "a control packet that is too short")
            return
        word, value = _WORD.unpack_from(content)
        if word == _Word.AGAIN:
            self._send_again(host, value)
        elif word == _Word.RECEIPT:
            with self._changed:
                for key in [key for key in self._kept if key[0] == host and key[1] <= value]:
                    del self._kept[key]
        elif word == _Word.BYE:
            with self._changed:
                self._gone[host] = content[_WORD.size :].decode(errors="replace")
                self._changed.notify_all()

    def _send_again(self, host: int, number: int) -> None:
        """Send a kept letter again, unless it may still be on its way; say that this host is there if there is none."""
        now = time.monotonic()
        with self._changed:
            packet, sent = self._kept.get((host, number), (b"", now))
            due = bool(packet) and now - sent > len(packet) / _SLOW
            if due:
                self._kept[host, number] = packet, now
        if due:
            self.post.put(self.names[host], packet)
        else:
            self._say(host, _Word.PRESENT, number)

    # ---- the end

    def tell(self, problem: str) -> None:
        """Tell every other host why this one ends."""
        for host in range(len(self.names)):
            if host != self.host:
                self._say(host, _Word.BYE, 0, problem)
