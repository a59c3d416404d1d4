"""A wire of letters keeps the contract of wires, equals the other wires, and refuses letters that are not due."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from isthmus.core.errors import HostLost, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.testing import WireContract
from isthmus.wire.letters import LetterWire
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.letters import Courier, in_threads
from tests.helpers.small import losses, numbers, run_method, small_graph

PLACES = {
    "two": Membership.dealt(4, 2),
    "one each": Membership.dealt(4, 4),
    "server alone": Membership.dealt(4, 5),
    "server on the last": Membership(4, (0, 1, 2, 3), 3, (0, 1, 2, 3)),
}
METHODS = ("sync-sgd+fwd-bwd-le", "swift-fedgnn", "fedavg", "hifgl")


class TestLetterWire(WireContract):
    @pytest.fixture(autouse=True, params=PLACES)
    def make(self, request: pytest.FixtureRequest) -> None:
        self.members = PLACES[request.param]

    def everywhere(self, truth: Callable[[Wire], Any]) -> list[Any]:
        return in_threads(self.members, truth)


def run_methods(wire: Wire | None = None) -> list[list[float]]:
    """The losses of a few steps of some methods."""
    graph, owner, done = small_graph(18, 72), torch.arange(18) % 3, []
    for method in METHODS:
        if wire is not None:
            wire.ledger.__init__()  # type: ignore[misc]
        done.append(losses(run_method(method, graph, owner, 3, "gcn", wire=wire, epochs=2)))
    return done


def test_losses_are_those_of_one_process() -> None:
    for found in in_threads(Membership.dealt(3, 4), run_methods):
        for method, each, expected in zip(METHODS, found, run_methods(), strict=True):
            torch.testing.assert_close(numbers(each), numbers(expected), rtol=1e-11, atol=0, msg=method)


@pytest.mark.hosts
def test_losses_are_those_of_gloo_to_the_last_bit() -> None:
    assert in_threads(Membership.dealt(3, 3), run_methods) == on_hosts(3, on_wire, 3, run_methods)


def test_some_silos_may_meet_without_the_others() -> None:
    everybody = Membership.dealt(4, 4)

    def meet(wire: Wire) -> list[float]:
        if wire.host != 2:
            wire.regroup(everybody.only((0, 1, 3)))
            found = wire.total(Kind.METRICS, torch.ones(len(wire.mine), 2) * wire.host)
            wire.regroup(everybody)
        else:
            found = torch.zeros(2)
        return [*found.tolist(), *wire.total(Kind.METRICS, torch.ones(1, 1)).tolist()]

    assert in_threads(everybody, meet) == [[4, 4, 4], [4, 4, 4], [0, 0, 4], [4, 4, 4]]


# ---- what is not due


class Scripted(Courier):
    """Delivers letters that the test has written."""

    def __init__(self, *letters: bytes) -> None:
        self.letters = list(letters)

    def send(self, host: int, number: int, letter: bytes) -> int:
        return len(letter)

    def receive(self, host: int, number: int) -> bytes:
        return self.letters.pop(0)


def letter_of(work: Callable[[LetterWire], Any]) -> bytes:
    """The first letter that a wire of host 1 sends to host 0 while it does ``work``."""
    sent: list[bytes] = []

    class Keeping(Scripted):
        def send(self, host: int, number: int, letter: bytes) -> int:
            sent.append(letter)
            return len(letter)

        def receive(self, host: int, number: int) -> bytes:
            raise HostLost("enough")

    with pytest.raises(HostLost):
        work(LetterWire(Membership.dealt(2, 2), 1, Keeping()))
    return sent[0]


def total(wire: LetterWire) -> Any:
    return wire.total(Kind.METRICS, torch.ones(1, 3))


GOOD = letter_of(total)


@pytest.mark.parametrize(
    ("letter", "match"),
    [
        (b"", "silo-1 sent a letter of 0 bytes where metrics were due"),
        (GOOD[:-1], "silo-1 sent 1 rows of metrics in 21 bytes, where 1 rows of 12 bytes were due"),
        (GOOD + b"1", "silo-1 sent 1 rows of metrics in 23 bytes"),
        (GOOD[:2] + (2).to_bytes(8, "little") + GOOD[10:] * 2, "silo-1 sent 2 rows of metrics in 34 bytes"),
        (GOOD[:2] + (-1).to_bytes(8, "little", signed=True), "silo-1 sent -1 rows of metrics"),
        (GOOD[:2] + (2**62).to_bytes(8, "little"), "silo-1 sent 4,611,686,018,427,387,904 rows of metrics"),
        (letter_of(lambda wire: wire.total(Kind.GRADIENTS, torch.ones(1, 3))), r"silo-1 sent gradients \(part\)"),
        (
            letter_of(lambda wire: wire.post(Kind.METRICS, {})),
            r"silo-1 sent metrics \(letters\) where metrics \(part\)",
        ),
        (b"\xff\xff" + GOOD[2:], r"silo-1 sent kind 255 \(act 255\)"),
        (letter_of(lambda wire: wire.total(Kind.METRICS, torch.ones(1, 3) / 0)), "silo-1 sent metrics that are not"),
    ],
    ids=["empty", "short", "long", "two rows", "negative", "huge", "kind", "act", "unknown", "infinite"],
)
def test_a_letter_that_is_not_due_is_refused_with_its_sender(letter: bytes, match: str) -> None:
    with pytest.raises(PeerError, match=match):
        total(LetterWire(Membership.dealt(2, 2), 0, Scripted(letter)))


def test_the_letter_that_is_due_is_added_up() -> None:
    wire = LetterWire(Membership.dealt(2, 2), 0, Scripted(GOOD))
    assert total(wire).tolist() == [2, 2, 2] and wire.ledger.transport == {"metrics": 22}


def test_more_rows_than_can_be_are_refused() -> None:
    def asks(wire: LetterWire) -> Any:
        rows = torch.arange(4)
        parcel = Parcel(Kind.IDS, rows, Origin(rows, rows), Traffic.between(torch.tensor([1] * 4), 2))
        return wire.leave_sized(parcel, [4, 0] if wire.host else [0, 4], [3, 3])

    with pytest.raises(PeerError, match="silo-1 said that 4 rows of ids would come, where 3 can"):
        asks(LetterWire(Membership.dealt(2, 2), 0, Scripted(letter_of(asks))))


def test_a_letter_for_a_party_of_another_host_is_refused() -> None:
    sent = letter_of(lambda wire: wire.post(Kind.METRICS, {(1, SERVER): torch.ones(2)}))
    forged = sent[:18] + (0).to_bytes(8, "little") + sent[26:]  # in the name of silo-0
    with pytest.raises(PeerError, match="silo-1 sent a letter from party 0 to party -1 where metrics were due"):
        LetterWire(Membership.dealt(2, 2), 0, Scripted(forged)).post(Kind.METRICS, {})
