"""Letters between organisations arrive once, in order and unread, or the run stops with the name they came in."""

import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from isthmus.core.errors import HostLost, IsthmusError, PeerError
from isthmus.protect.key_agreement import KeyPair
from isthmus.testing.wire_truths import TRUTHS
from isthmus.wire.flare import courier as couriers
from isthmus.wire.flare import seals as sealing
from isthmus.wire.flare.papers import checked, verify
from isthmus.wire.flare.seals import Hello, Seals
from isthmus.wire.letters import LetterWire
from isthmus.wire.membership import Membership
from tests.helpers.papers import BANKS, JOB, Network, certificate, hellos, papers, root, seals_of

A, B = 1, 2  # hosts of bank-a and bank-b


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters are asked for again soon."""
    monkeypatch.setattr(couriers, "_AGAIN", 0.05)


# ---- certificates


def test_papers_hold_the_name_and_sign_for_it() -> None:
    mine = papers("bank-a")
    mine.check()
    assert mine.name == "bank-a" and len(mine.fingerprint) == 102
    verify(mine.chain, root(), "bank-a", b"words", mine.sign(b"words"))
    with pytest.raises(PeerError, match="bank-a did not sign what came in its name"):
        verify(mine.chain, root(), "bank-a", b"other words", mine.sign(b"words"))


@pytest.mark.parametrize(
    ("days", "match"),
    [((-3, -1), "The certificate of bank-a has expired on .* UTC, and it is .* here: have it renewed"),
     ((1, 3), "The certificate of bank-a is valid from .* on UTC, and it is .* here: have it renewed")],
)  # fmt: skip
def test_dates_of_certificates_are_checked(days: tuple[float, float], match: str) -> None:
    with pytest.raises(IsthmusError, match=match):
        papers("bank-a", days=days).check()


def test_certificates_of_others_are_refused() -> None:
    with pytest.raises(PeerError, match="name of bank-b is made out to 'bank-a'"):
        checked(papers("bank-a").chain, root(), "bank-b")
    with pytest.raises(PeerError, match="bank-a was not issued by the authority that this party trusts"):
        checked(certificate("bank-a", "another authority"), root(), "bank-a")
    with pytest.raises(PeerError, match="bank-a was not issued"):  # a bank signs for another
        checked(certificate("bank-a", "bank-b") + papers("bank-b").chain, root(), "bank-a")
    with pytest.raises(PeerError, match="cannot be read"):
        checked(b"no certificate", root(), "bank-a")
    with pytest.raises(IsthmusError, match="private key of bank-a does not belong"):
        replace(papers("bank-a"), key=papers("bank-b").key).check()


def test_an_authority_below_the_root_may_issue() -> None:
    checked(certificate("bank-a", "lower") + root("lower", "authority"), root(), "bank-a")


# ---- hellos


def test_hellos_are_of_one_run_and_one_party() -> None:
    _, hello = hellos()["bank-a"]
    assert Hello.read(hello.as_dict(), "bank-a").checked(root(), JOB, "bank-a")["said"] == {"version": "1"}
    with pytest.raises(PeerError, match="bank-a said hello for another run"):
        hello.checked(root(), "job-2", "bank-a")
    with pytest.raises(PeerError, match="made out to 'bank-a'"):
        hello.checked(root(), JOB, "bank-b")
    with pytest.raises(PeerError, match="bank-a did not sign"):
        replace(hello, words=hello.words.replace('"1"', '"2"')).checked(root(), JOB, "bank-a")
    for nonsense in (None, {}, {**hello.as_dict(), "chain": 3}):
        with pytest.raises(PeerError, match="words that cannot be read"):
            Hello.read(nonsense, "bank-a")
    with pytest.raises(PeerError, match="words that cannot be read"):
        replace(hello, signature="no hex").checked(root(), JOB, "bank-a")
    signed = Hello.signed(papers("bank-a"), JOB, type("None", (), {"public": b"short"})(), {})
    with pytest.raises(PeerError, match="with a key that is none"):
        Seals(*hellos()["bank-b"], {"bank-a": signed}, root(), JOB, "bank-b")


# ---- seals


def test_only_the_receiver_opens_and_only_as_what_was_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "FRAME", 10)
    a, b, server = (seals_of(name) for name in ("bank-a", "bank-b", "server"))
    for content in (b"", b"short", b"exactly 10", b"more than one frame has"):
        letter = a.seal("bank-b", 1, 7, content)
        assert b.open("bank-a", 1, 7, letter) == content
        assert not content or content[:5] not in letter
        wrong = [("bank-a", 1, 8, letter), ("bank-a", 2, 7, letter), ("server", 1, 7, letter),
                 ("bank-a", 1, 7, letter[:-1]), ("bank-a", 1, 7, letter + b"0"), ("bank-a", 1, 7, content)]  # fmt: skip
        if len(content) > 10:
            wrong += [("bank-a", 1, 7, letter[: -26 + 16]), ("bank-a", 1, 7, letter[:26]),
                      ("bank-a", 1, 7, letter[26:52] + letter[:26] + letter[52:])]  # fmt: skip
        for given in wrong:
            with pytest.raises(ValueError, match="does not bear its seal"):
                b.open(*given)
        with pytest.raises(ValueError, match="seal"):
            server.open("bank-a", 1, 7, letter)
        with pytest.raises(ValueError, match="seal"):
            a.open("bank-b", 1, 7, letter)  # sent back to where it came from


def test_keys_are_those_of_one_run() -> None:
    again = {name: Hello.signed(papers(name), JOB, pair, {}) for name, (pair, _) in hellos().items()}
    pair = KeyPair()
    later = Seals(
        pair, Hello.signed(papers("bank-b"), JOB, pair, {}), {"bank-a": again["bank-a"]}, root(), JOB, "bank-b"
    )
    with pytest.raises(ValueError, match="seal"):
        later.open("bank-a", 1, 0, seals_of("bank-a").seal("bank-b", 1, 0, b"of the first run"))


# ---- couriers


def test_letters_arrive_in_order_over_a_network_that_loses_repeats_and_reorders(network: Network) -> None:
    seen: list[bytes] = []

    def bad_road(sender: str, receiver: str, packet: bytes) -> list[tuple[str, bytes]]:
        seen.append(packet)
        lost = len(seen) % 3 == 0 and seen.count(packet) == 1
        return [] if lost else [(sender, packet)] * 2

    a, b = network.courier("bank-a"), network.courier("bank-b")
    network.meddler = bad_road
    for number in reversed(range(100)):
        a.send(B, number, f"letter {number}".encode())
    assert [b.receive(A, number) for number in range(100)] == [f"letter {n}".encode() for n in range(100)]
    assert b.dropped["twice"] > 0 and not any(b"letter" in packet for packet in seen)
    deadline = time.monotonic() + 5
    while len(a._kept) > couriers._RECEIPT[0] and time.monotonic() < deadline:
        b._say(A, couriers._Word.RECEIPT, 95)  # receipts may be lost too
        time.sleep(0.01)
    assert len(a._kept) <= couriers._RECEIPT[0]  # the others are forgotten


Attack = Callable[[bytes, list[tuple[str, str, bytes]]], bytes]
HEAD = struct.calcsize("<BQ")
ATTACKS: dict[str, tuple[Attack, str]] = {
    "strips the seal": (lambda packet, old: packet[:HEAD] + b"plain words", "bank-a"),
    "changes a bit": (lambda packet, old: packet[:-1] + bytes([packet[-1] ^ 1]), "bank-a"),
    "cuts off the end": (lambda packet, old: packet[:-20], "bank-a"),
    "cuts off nearly all": (lambda packet, old: packet[:3], "bank-a"),
    "adds to it": (lambda packet, old: packet + b"1", "bank-a"),
    "replays an older letter as this": (lambda packet, old: packet[:HEAD] + old[0][2][HEAD:], "bank-a"),
    "renumbers it": (lambda packet, old: packet[:1] + (9).to_bytes(8, "little") + packet[HEAD:], "bank-a"),
    "numbers it far ahead": (lambda packet, old: packet[:1] + (2**63).to_bytes(8, "little") + packet[HEAD:], "bank-a"),
    "calls it another kind": (lambda packet, old: b"\x02" + packet[1:], "bank-a"),
    "says that it is from another": (lambda packet, old: packet, "server"),
}


@pytest.mark.parametrize(("attack", "claimed"), ATTACKS.values(), ids=ATTACKS.keys())
def test_what_was_meddled_with_is_refused_with_the_claimed_sender(
    network: Network, attack: Attack, claimed: str
) -> None:
    a, b = network.courier("bank-a"), network.courier("bank-b")
    a.send(B, 0, b"the first letter, which arrives")
    assert b.receive(A, 0) == b"the first letter, which arrives"
    network.meddler = lambda sender, receiver, packet: [(claimed, attack(packet, network.carried))]
    a.send(B, 1, b"the second")
    with pytest.raises(PeerError, match=f"In the name of {claimed} came a .*It was not read, and this run stops"):
        b.receive(A, 1)


def test_letters_of_strangers_are_counted_and_not_read(network: Network) -> None:
    a, b = network.courier("bank-a"), network.courier("bank-b")
    network.meddler = lambda sender, receiver, packet: [("bank-x", packet), ("bank-b", packet), (sender, packet)]
    a.send(B, 0, b"words")
    assert b.receive(A, 0) == b"words" and b.dropped["of strangers"] == 2


def test_who_ends_says_why_and_letters_that_came_before_are_still_read(network: Network) -> None:
    a, b = network.courier("bank-a"), network.courier("bank-b")
    a.send(B, 0, b"words")
    time.sleep(0.1)
    a.tell("the host of bank-a has ended")
    time.sleep(0.1)
    assert b.receive(A, 0) == b"words"
    with pytest.raises(HostLost, match="the host of bank-a has ended"):
        b.receive(0, 0)


def test_a_silent_party_is_named_after_the_timeout(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "_QUIET", 0.8)
    network.courier("bank-a")  # alive, and sends nothing
    b = network.courier("bank-b", timeout=1.0)
    with pytest.raises(HostLost, match="bank-a is alive, and did not send what was due within the timeout of 1 s"):
        b.receive(A, 0)
    network.meddler = lambda *_: []
    with pytest.raises(HostLost, match="bank-a gives no sign of life within the timeout"):
        b.receive(A, 0)


def test_an_aborted_run_ends_at_once(network: Network) -> None:
    with pytest.raises(HostLost, match="The run was ended from outside"):
        network.courier("bank-b", aborted=lambda: True).receive(A, 0)


def test_a_wire_over_sealed_letters_keeps_the_contract() -> None:
    network, members = Network(), Membership(2, (1, 2), 0, (0, 1))
    wires = [LetterWire(members, host, network.courier(name)) for host, name in enumerate(BANKS)]
    failures: list[Any] = []

    def live(wire: LetterWire) -> None:
        try:
            for truth in TRUTHS:
                truth(wire)
            wire.close_down()
        except BaseException as error:
            failures.append(error)
            wire.end("failed")

    threads = [threading.Thread(target=live, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and all(wire.ledger.transport for wire in wires)
