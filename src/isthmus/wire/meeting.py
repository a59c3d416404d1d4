"""Parties meet by name, in any order of start: each claims its name at the door, and learns its number of host."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER_NAME
from isthmus.wire.doorkeeper import ALL, CHALLENGE, COUNT, HERE, Doorkeeper, answer_key, beat_key, claim_key
from isthmus.wire.rendezvous import (
    Rendezvous,
    interface_of,
    joined_store,
    listening_place,
    listening_store,
    sealed,
    use_interface,
)
from isthmus.wire.token import Token, fresh

_PAUSE = 0.05  # seconds between two looks at the store
_SECOND_LOOK = 1.0  # seconds in which an answer without a proof is replaced, if somebody but the door wrote it
_PATIENCE = 15.0  # seconds in which a door that is kept answers a claim


@dataclass(frozen=True)
class MeetingPlace:
    """Where and as whom a party meets the others: its name, where all meet, where it listens, and the shared secret."""

    name: str  # a silo's, or SERVER_NAME
    address: str
    port: int
    listen: str  # an address of this machine
    token: Token = field(default_factory=Token)

    @property
    def where(self) -> str:
        """The address and port at which all meet."""
        return f"{self.address}:{self.port}"


def place_of(name: str, meet: str, listen: str | None, token: Token) -> MeetingPlace:
    """The place of a party from ``HOST:PORT``; raises where it is none, or would be open to everybody."""
    host, _, port = meet.rpartition(":")
    try:
        address, number = socket.gethostbyname(host), int(port)
    except (OSError, ValueError) as error:
        raise IsthmusError(f"--meet {meet} is no HOST:PORT that can be reached, like 10.0.0.1:29500.") from error
    if not host or not 0 < number < 2**16 or address == "0.0.0.0":  # noqa: S104 - refused here
        raise IsthmusError(f"--meet {meet} is no HOST:PORT; name one address and a port, like 10.0.0.1:29500.")
    return MeetingPlace(name, address, number, listening_place(listen, address), token)


def meet(place: MeetingPlace, silos: Sequence[str], hosts: int, timeout: float) -> Rendezvous:
    """Find the other parties of a run, by name, and wait until all are there; else raise, naming who is missing.

    ``silos``: all names in order. ``hosts``: how many parties there are with the server, 0 where that was not said. The
    server, or else the first silo, listens at ``place`` and tells the others how many they are.
    """
    use_interface(interface_of(place.listen))
    alone = place.name == SERVER_NAME or hosts > len(silos)
    names = [SERVER_NAME, *silos] if alone else list(silos)
    if hosts not in (0, len(names)):
        raise IsthmusError(
            f"--hosts {hosts}, but there are {len(silos)} silos: with --silo each is a party of its own, so that there "
            f"are {len(silos)}, or {len(silos) + 1} with a party that carries the server alone."
        )
    if place.name == names[0]:
        store = _listen(place)
        if store is not None:
            return _hold(store, place, names, timeout)
    return _join(place, names[0], hosts, timeout)


def _listen(place: MeetingPlace) -> TCPStore | None:
    """The store of this run, listening; None where somebody listens there already, who will say who it is."""
    try:
        interface_of(place.address)
        return listening_store(place.address, place.port, _PATIENCE)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise IsthmusError(f"{place.name} cannot listen at {place.where} ({error}); choose another --meet.") from error
    except IsthmusError as error:
        raise IsthmusError(
            f"{place.name} carries the server, so that it listens where parties meet, but {error} Start the party at "
            f"{place.address} with --server and say --hosts to this one, or give an address of this machine as --meet."
        ) from error


def _hold(store: TCPStore, place: MeetingPlace, names: Sequence[str], timeout: float) -> Rendezvous:
    """Keep the door until all are there."""
    session = fresh()
    door = joined_store(place.address, place.port, timeout)  # a connection of the thread's own
    keeper = Doorkeeper(door, place.token, session, names)
    end = time.monotonic() + timeout
    while gone := keeper.missing:
        if time.monotonic() > end:
            keeper.close()
            raise IsthmusError(_too_few(gone, len(names) - len(gone), place, timeout, keeper.turned_away))
        time.sleep(_PAUSE)
    token = place.token.of_session(session)
    return Rendezvous(sealed(store, token, timeout), 0, len(names), token, keeper.close)


def _join(place: MeetingPlace, holder: str, hosts: int, timeout: float) -> Rendezvous:
    """Claim this party's name at the door, and wait until all are there."""
    who = f"the server's party ({SERVER_NAME}, or the first silo)" if holder != SERVER_NAME else "the server"
    try:
        store = joined_store(place.address, place.port, timeout)
        session = _awaited(store, CHALLENGE, _PATIENCE).decode()
    except (RuntimeError, ValueError) as error:
        raise IsthmusError(
            f"Nobody answered {place.name} at {place.where} for {timeout:g} s: {who} is missing, or cannot be reached. "
            "Start it, or raise system.timeout to wait longer."
        ) from error
    slot, answer = _claim(store, place, session, hosts)
    if answer["refused"]:
        raise IsthmusError(f"{place.name} was refused at {place.where}: {answer['refused']}.")
    token = place.token.of_session(session)
    _wait_for_all(store, token, slot, place, timeout)
    return Rendezvous(sealed(store, token, timeout), int(answer["host"]), int(answer["hosts"]), token)


def _claim(store: TCPStore, place: MeetingPlace, session: str, hosts: int) -> tuple[int, dict[str, Any]]:
    """Claim a name with a proof of the token; returns the number of the claim and the answer, whose proof was checked.

    The answer proves the token over a word that is new, so that nobody can give an old one.
    """
    slot, nonce = int(store.add(COUNT, 1)), fresh()
    words = json.dumps({"name": place.name, "hosts": hosts, "nonce": nonce}).encode()
    claim = place.token.seal(words, "claim", str(slot), session)
    store.set(claim_key(slot), claim)  # type: ignore[arg-type]  # takes bytes as well
    last, body = time.monotonic() + _PATIENCE, None
    while body is None and time.monotonic() < last:  # what somebody else wrote in its place is no answer
        if store.check([answer_key(slot)]):
            body = place.token.opened(store.get(answer_key(slot)), "answer", str(slot), session, nonce)
            last = min(last, time.monotonic() + _SECOND_LOOK)
        time.sleep(_PAUSE)
    if body is None:
        raise IsthmusError(
            f"{place.name} was not let in at {place.where}: who listens there has another token (--token), or none. "
            "Nothing was sent."
        )
    answer: dict[str, Any] = json.loads(body)
    return slot, answer


def _awaited(store: TCPStore, key: str, timeout: float) -> bytes:
    """The value of a key as soon as it is there; raises `RuntimeError` where it does not come."""
    end = time.monotonic() + timeout
    while not store.check([key]):
        if time.monotonic() > end:
            raise RuntimeError(f"no {key}")
        time.sleep(_PAUSE)
    return bytes(store.get(key))


def _wait_for_all(store: TCPStore, token: Token, slot: int, place: MeetingPlace, timeout: float) -> None:
    """Give signs of life until all parties are there; raise, naming who is missing, where they do not come."""
    end, here, missing = time.monotonic() + timeout, list[str](), list[str]()
    try:
        while not (store.check([ALL]) and token.opened(store.get(ALL), ALL) is not None):
            here, missing = json.loads(token.opened(_awaited(store, HERE, _PATIENCE), HERE) or b"[[], []]")
            if time.monotonic() > end:
                raise IsthmusError(_too_few(missing, len(here), place, timeout))
            store.add(beat_key(slot), 1)
            time.sleep(_PAUSE)
    except (RuntimeError, ValueError) as error:
        told = _too_few(missing, len(here), place, timeout)
        raise IsthmusError(f"The party at {place.where} has ended, before all were there. {told}") from error


def _too_few(missing: Sequence[str], came: int, place: MeetingPlace, timeout: float, away: int = 0) -> str:
    """The message that names who did not come."""
    told = f" {away} claims without the token were turned away." if away else ""
    return (
        f"{', '.join(missing) or 'Somebody'} {'is' if len(missing) == 1 else 'are'} missing: {came} of "
        f"{came + len(missing)} parties came to {place.where} within {timeout:g} s. Start each with its own --silo; to "
        f"wait longer, raise system.timeout.{told}"
    )
