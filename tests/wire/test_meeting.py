"""Parties meet by name: in any order, each name once, and nobody is let in who does not know the token."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from isthmus.core.errors import IsthmusError
from isthmus.wire import meeting as module
from isthmus.wire.doorkeeper import ALL, COUNT, HERE, UNDER_WAY, answer_key, claim_key
from isthmus.wire.meeting import MeetingPlace, meet, place_of
from isthmus.wire.pulse import Pulse
from isthmus.wire.rendezvous import Rendezvous, joined_store, listening_place, listening_store
from isthmus.wire.sealed_store import SealedStore
from isthmus.wire.token import AUTHENTICATED, OPEN, SIZE, Token, read_token

BANKS = ["alpen", "bern", "chur"]
TOKEN = Token(b"a secret of sixteen letters or more")


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as found:
        yield found


def place(name: str, port: int, token: Token = TOKEN) -> MeetingPlace:
    return MeetingPlace(name, "127.0.0.1", port, "127.0.0.1", token)


def start(pool: ThreadPoolExecutor, name: str, port: int, **other: Any) -> "Future[Rendezvous]":
    token, hosts, timeout = other.get("token", TOKEN), other.get("hosts", 0), other.get("timeout", 20.0)
    return pool.submit(meet, place(name, port, token), BANKS, hosts, timeout)


def until_here(port: int, *names: str) -> None:
    """Wait until the door has let in all of these."""
    store = joined_store("127.0.0.1", port, 5)
    here: list[str] = []
    while not set(names) <= set(here):
        here = json.loads(module._awaited(store, HERE, 5)[SIZE:])[0]


@pytest.mark.parametrize("server", [False, True])
@pytest.mark.parametrize("token", [TOKEN, Token()])
def test_hosts_are_numbered_by_silo_whatever_the_order(
    server: bool, token: Token, pool: ThreadPoolExecutor, port: int
) -> None:
    names = ["chur", "bern", *(["server"] if server else []), "alpen"]
    found = {name: start(pool, name, port, token=token, hosts=4 if server and name == "alpen" else 0) for name in names}
    hosts = {name: each.result() for name, each in found.items()}
    order = ["server", *BANKS] if server else BANKS
    assert [hosts[name].host for name in order] == list(range(len(order)))
    assert {each.hosts for each in hosts.values()} == {len(order)}
    assert hosts["bern"].token.security == (AUTHENTICATED if token.secret else OPEN)
    hosts["bern"].store.set("word", "said")
    assert hosts["chur"].store.get("word") == b"said"
    hosts[order[0]].close()


def test_a_second_party_of_a_name_is_refused_and_the_first_goes_on(pool: ThreadPoolExecutor, port: int) -> None:
    waiting = [start(pool, name, port) for name in ("alpen", "bern")]
    until_here(port, "bern")
    with pytest.raises(IsthmusError, match=r"^bern was refused at .*: a party by the name 'bern' is already here"):
        start(pool, "bern", port).result()
    with pytest.raises(IsthmusError, match=r"'alpen' is already here"):
        start(pool, "alpen", port).result()
    last = start(pool, "chur", port)
    hosts = [each.result() for each in (*waiting, last)]
    assert [each.host for each in hosts] == [0, 1, 2]
    with pytest.raises(IsthmusError, match=r"'chur' is already here"):  # also once the run has begun
        start(pool, "chur", port).result()
    hosts[0].close()


def test_a_party_that_left_before_the_run_began_may_come_again(
    pool: ThreadPoolExecutor, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.wire.doorkeeper._SILENT", 0.3)
    first = start(pool, "alpen", port)
    store = joined_store("127.0.0.1", port, 5)
    session = module._awaited(store, "meet/challenge", 5).decode()
    module._claim(store, place("bern", port), session, 0)  # and gives no sign of life after that
    time.sleep(0.4)
    others = [start(pool, name, port) for name in ("bern", "chur")]
    assert [each.result().host for each in (first, *others)] == [0, 1, 2]
    first.result().close()


def test_a_name_is_free_again_once_its_member_gives_no_sign_of_life_and_the_run_lets_it_in(
    pool: ThreadPoolExecutor, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that beats keeps its name; one that is lost can come back, if the run goes on without its members."""
    monkeypatch.setattr("isthmus.wire.doorkeeper._SILENT", 0.4)
    hosts = [each.result() for each in [start(pool, name, port) for name in BANKS]]
    chur = Pulse(hosts[2].store, 2, 3)
    with pytest.raises(IsthmusError, match=r"'chur' is already here"):  # the run ends where somebody is lost
        start(pool, "chur", port).result()
    hosts[0].store.set(UNDER_WAY, "{}")
    monkeypatch.setattr("isthmus.wire.doorkeeper._SILENT", 2.0)  # of four signs of life
    with pytest.raises(IsthmusError, match=r"'chur' is already here"):
        start(pool, "chur", port).result()
    chur.stop()
    monkeypatch.setattr("isthmus.wire.doorkeeper._SILENT", 0.4)
    again = start(pool, "chur", port).result()
    assert (again.host, again.hosts) == (2, 3)
    hosts[0].store.set("word", "said")
    assert again.store.get("word") == b"said"
    with pytest.raises(IsthmusError, match=r"'alpen' is already here"):  # who keeps the door is never lost
        start(pool, "alpen", port).result()
    hosts[0].close()


def test_who_is_missing_is_named_on_all_sides(pool: ThreadPoolExecutor, port: int) -> None:
    waiting = [start(pool, "alpen", port, timeout=2.0), start(pool, "chur", port, timeout=1.0)]
    for each in waiting:
        with pytest.raises(IsthmusError, match=r"bern is missing: 2 of 3 parties came .* its own --silo"):
            each.result()
    with pytest.raises(IsthmusError, match=r"Nobody answered bern at 127\.0\.0\.1:\d+ for 1 s: the server's party"):
        start(pool, "bern", port + 1, timeout=1.0).result()


def test_names_and_numbers_that_do_not_fit_are_refused(pool: ThreadPoolExecutor, port: int) -> None:
    first = start(pool, "alpen", port, hosts=3)
    with pytest.raises(IsthmusError, match="started for 4 parties .* this run has 3"):
        start(pool, "bern", port, hosts=4).result()
    with pytest.raises(IsthmusError, match="'server' is no party of this run, whose parties are alpen, bern, chur"):
        start(pool, "server", port).result()
    with pytest.raises(IsthmusError, match="--hosts 2, but there are 3 silos"):
        start(pool, "chur", port, hosts=2).result()
    others = [start(pool, name, port) for name in ("bern", "chur")]
    assert [each.result().host for each in (first, *others)] == [0, 1, 2]
    first.result().close()


def test_nobody_is_let_in_without_the_token_and_nothing_that_they_write_is_read(
    pool: ThreadPoolExecutor, port: int
) -> None:
    first = start(pool, "alpen", port)
    for token in (Token(b"another secret of sixteen letters"), Token()):
        with pytest.raises(IsthmusError, match=r"bern was not let in at .* has another token \(--token\), or none"):
            start(pool, "bern", port, token=token).result()
    intruder = joined_store("127.0.0.1", port, 5)
    slot = intruder.add(COUNT, 1)
    intruder.set(claim_key(slot), json.dumps({"name": "bern", "nonce": "x", "hosts": 0}))
    intruder.set(ALL, "everybody is here")
    intruder.set(answer_key(slot + 1), json.dumps({"refused": "", "host": 2, "hosts": 3}))
    others = [start(pool, name, port) for name in ("bern", "chur")]
    hosts = [each.result() for each in (first, *others)]
    assert [each.host for each in hosts] == [0, 1, 2]
    intruder.set("roll/1/1", json.dumps({"device": "cpu", "settings": {}}))
    assert not hosts[2].store.check(["roll/1/1"])
    hosts[1].store.set("roll/1/1", "true words")
    assert hosts[2].store.get("roll/1/1") == b"true words"
    sealed = intruder.get("roll/1/1")
    intruder.set("roll/1/2", sealed)  # the words of one host in the place of another
    assert not hosts[0].store.check(["roll/1/2"])
    hosts[0].close()


def test_words_of_an_earlier_session_do_not_hold_in_a_later_one() -> None:
    store = listening_store("127.0.0.1", 0, 5)
    earlier, later = (SealedStore(store, TOKEN.of_session(session), 0.2) for session in ("one", "two"))
    earlier.set("key", "value")
    assert earlier.get("key") == b"value" and not later.check(["key"])
    with pytest.raises(RuntimeError, match="nobody has written key"):
        later.get("key")


def test_the_store_listens_on_one_address_alone() -> None:
    store = listening_store("127.0.0.1", 0, 5)
    mine = [each for each in psutil.Process().net_connections("inet") if each.status == "LISTEN"]
    assert [each.laddr.ip for each in mine if each.laddr.port == store.port] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("meet_at", "listen", "said"),
    [
        ("nonsense", None, "no HOST:PORT"),
        ("127.0.0.1:x", None, "no HOST:PORT"),
        ("0.0.0.0:29500", None, "name one address"),
        ("203.0.113.7:29500", None, "Give --listen the interface or address towards the others"),
        ("127.0.0.1:29500", "0.0.0.0", "would be all interfaces"),
        ("127.0.0.1:29500", "wg7", "no interface of this machine; it has .*lo"),
        ("127.0.0.1:29500", "203.0.113.9", "203.0.113.9 is no address of this machine"),
    ],
)
def test_places_that_are_none_or_open_to_all_are_refused(meet_at: str, listen: str | None, said: str) -> None:
    with pytest.raises(IsthmusError, match=said):
        place_of("alpen", meet_at, listen, TOKEN)


def test_an_interface_may_be_given_by_its_name() -> None:
    lo = next(n for n, ends in psutil.net_if_addrs().items() if any(e.address == "127.0.0.1" for e in ends))
    assert listening_place(lo, "127.0.0.1") == listening_place(None, "127.0.0.1") == "127.0.0.1"
    assert place_of("alpen", "localhost:29500", lo, TOKEN) == replace(place("alpen", 29500), token=TOKEN)


def test_a_token_is_read_from_a_file_of_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o640)
    with pytest.raises(IsthmusError, match="chmod 600"):
        read_token(str(path))
    path.chmod(0o600)
    assert read_token(str(path)).secret == b"0123456789abcdef"
    assert "0123" not in repr(read_token(str(path)))
    for text, said in (("short", "has 5 letters"), (" \n", "is empty")):
        path.write_text(text)
        with pytest.raises(IsthmusError, match=said):
            read_token(str(path))
    with pytest.raises(IsthmusError, match="cannot be read"):
        read_token(str(tmp_path / "none"))
    monkeypatch.delenv("ISTHMUS_TOKEN", raising=False)
    assert read_token(None).secret == b""
    monkeypatch.setenv("ISTHMUS_TOKEN", "0123456789abcdefgh")
    assert read_token(None).secret == b"0123456789abcdefgh"
