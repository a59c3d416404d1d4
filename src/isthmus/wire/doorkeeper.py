"""Who holds the store of a run keeps its door: it hears claims to names, checks them, and answers each."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from isthmus.wire.pulse import pulse_key
from isthmus.wire.rendezvous import sealed
from isthmus.wire.token import Token

CHALLENGE, COUNT, ALL, HERE = "meet/challenge", "meet/count", "meet/all", "meet/here"
_PAUSE = 0.05  # seconds between two looks at who came
_PATIENCE = 5.0  # seconds in which the store answers
_SILENT = 3.0  # seconds without a sign of life after which a party that waited, or was a member, is taken as gone
UNDER_WAY = "under way"  # where the server's host writes that a run has begun which lets lost parties in again
MOST_CLAIMS = 1_000  # after so many the door stays shut: nobody who belongs here knocks that often


def claim_key(slot: int) -> str:
    """Where the newcomer with a number puts its claim."""
    return f"meet/claim/{slot}"


def answer_key(slot: int) -> str:
    """Where it finds the answer."""
    return f"meet/answer/{slot}"


def beat_key(slot: int) -> str:
    """The counter by which it gives signs of life while it waits."""
    return f"meet/beat/{slot}"


class Doorkeeper:
    """A thread that gives parties their host numbers, by name, and refuses names that are taken or unknown.

    ``names``: of all parties, in host order; the first is this one's own. A claim counts only with a proof that the
    claimant holds the token, over this session's challenge: what others write is never read. Once the run has begun a
    name is free again where the run lets lost parties return and the one that had it gives no sign of life.
    """

    def __init__(self, store: TCPStore, token: Token, session: str, names: Sequence[str]) -> None:
        self.store, self.token, self.session, self.names = store, token, session, tuple(names)
        self.here: dict[str, int] = {self.names[0]: -1}  # slot by name; this party has none
        self.turned_away = 0  # claims without a proof
        self._answered: set[int] = set()
        self._signs: dict[str, tuple[int, float]] = {}  # by name, the last sign of life, and when it came
        self._all = False  # all were here once, so that the run has begun
        self._members = sealed(store, token.of_session(session), _PATIENCE)
        self._doubted: dict[int, tuple[bytes, float]] = {}  # by slot: its member's last sign, and when
        self._stop = threading.Event()
        self._tell_who_is_here()
        store.set(CHALLENGE, session)
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    @property
    def missing(self) -> list[str]:
        """Names of the parties that have not come, or have left again before the run began."""
        return [] if self._all else [name for name in self.names if not self._is_here(name)]

    def _is_here(self, name: str) -> bool:
        if self._all or self.here.get(name) == -1:
            return True
        return name in self.here and time.monotonic() - self._signs[name][1] < _SILENT

    def close(self) -> None:
        """Stop answering."""
        self._stop.set()
        self._thread.join(timeout=2)

    def _keep(self) -> None:
        with suppress(RuntimeError):  # the store is gone: so is the run
            while not self._stop.wait(_PAUSE):
                came = min(int(self.store.add(COUNT, 0)), MOST_CLAIMS)
                for slot in range(1, came + 1):
                    self._hear(slot)
                self._look_for_signs()

    def _hear(self, slot: int) -> None:
        """Answer the newcomer of a slot, once it has written its claim."""
        if slot in self._answered or not self.store.check([claim_key(slot)]):
            return
        said = _claimed(self.token.opened(self.store.get(claim_key(slot)), "claim", str(slot), self.session))
        if said is not None and self._undecided(slot, said["name"]):
            return
        self._answered.add(slot)
        if said is None:
            self.turned_away += 1
            self.store.set(answer_key(slot), "")
            return
        name, nonce, refusal = said["name"], said["nonce"], self._refusal(slot, said)
        if not refusal:
            self.here[name], self._signs[name] = slot, (0, time.monotonic())
        host = self.names.index(name) if name in self.names else -1
        words = json.dumps({"refused": refusal, "host": host, "hosts": len(self.names)}).encode()
        self._write(answer_key(slot), self.token.seal(words, "answer", str(slot), self.session, nonce))
        self._tell_who_is_here()

    def _write(self, key: str, words: bytes) -> None:
        self.store.set(key, words)  # type: ignore[arg-type]  # takes bytes as well

    def _undecided(self, slot: int, name: str) -> bool:
        """Whether it cannot be told yet if the member whose name is claimed anew is still there."""
        if not self._all or name not in self.names[1:] or not self._members.check([UNDER_WAY]):
            return False
        sign = self._sign_of(name)
        first, since = self._doubted.setdefault(slot, (sign, time.monotonic()))
        return sign == first and time.monotonic() - since < _SILENT

    def _sign_of(self, name: str) -> bytes:
        """The last sign of life that a member has given in the run."""
        key = pulse_key(self.names.index(name))
        return bytes(self._members.get(key)) if self._members.check([key]) else b""

    def _is_lost(self, slot: int, name: str) -> bool:
        """Whether the member of a name has given no sign of life since its name was claimed anew."""
        return slot in self._doubted and self._doubted[slot][0] == self._sign_of(name)

    def _refusal(self, slot: int, said: dict[str, Any]) -> str:
        """Why a claim is refused; empty where it is not."""
        name, hosts = said["name"], said["hosts"]
        if name not in self.names:
            return f"'{name}' is no party of this run, whose parties are {', '.join(self.names)}"
        if hosts not in (0, len(self.names)):
            return f"it was started for {hosts} parties (--hosts), and this run has {len(self.names)}"
        if self._is_here(name) and not self._is_lost(slot, name):
            return f"a party by the name '{name}' is already here, and goes on undisturbed"
        return ""

    def _look_for_signs(self) -> None:
        """Take note of who has given a sign of life, and tell where that has changed who is here."""
        before = self.missing
        for name, slot in self.here.items():
            sign = 0 if slot < 0 else int(self.store.add(beat_key(slot), 0))
            if slot >= 0 and sign != self._signs[name][0]:
                self._signs[name] = sign, time.monotonic()
        if self.missing != before:
            self._tell_who_is_here()

    def _tell_who_is_here(self) -> None:
        """Write for those who wait who is here and who is missing and, once nobody is, that all are here."""
        missing = self.missing
        self._all = not missing
        words = json.dumps([[name for name in self.names if name not in missing], missing]).encode()
        key = HERE if missing else ALL
        self._write(key, self.token.of_session(self.session).seal(words, key))


def _claimed(body: bytes | None) -> dict[str, Any] | None:
    """What a newcomer claims; None where it has no proof, or makes no sense."""
    try:
        said = json.loads(body or b"")
    except ValueError:
        return None
    wanted = {"name": str, "nonce": str, "hosts": int}
    fits = isinstance(said, dict) and all(isinstance(said.get(key), kind) for key, kind in wanted.items())
    return said if fits else None
