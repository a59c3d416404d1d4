"""A peer is not a friend: what it sends is checked before it is used, and who sent it is named, on every host."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.federation.boundary import build_boundary
from isthmus.federation.federation import open_federation
from isthmus.federation.handshake import agree_schema
from isthmus.graph.silo import split_graph
from isthmus.graph.stack import build_stack
from isthmus.train.metrics import check_scores
from isthmus.wire import distributed
from isthmus.wire.local import LocalWire
from isthmus.wire.packing import pack, unpack
from isthmus.wire.received import check_finite, check_places, check_sizes
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts
from tests.helpers.small import owners, small_graph

LETTERS = {(2, 0): torch.arange(6.0).reshape(2, 3), (2, SERVER): torch.ones(4, dtype=torch.int64)}
WHO = ["silo-0", "silo-1", "silo-2"]


def changed(place: int, value: int) -> Tensor:
    """Packed letters in whose header one number is another."""
    packed = pack(LETTERS)
    packed[8 * place : 8 * place + 8] = torch.tensor([value]).view(torch.uint8)
    return packed


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (changed(1, 1), "a letter from party 1 to party 0"),  # a forged sender
        (changed(2, 1), "a letter from party 2 to party 1"),  # for somebody who does not live here
        (changed(9, 0), "a letter from party 2 to party 0"),  # a second one
        (changed(3, 99), "unknown form"),
        (changed(4, 7), "unknown form"),
        (changed(5, -2), "unknown form"),
        (changed(5, 2**50), "is said to have"),
        (changed(5, 1), "belong to no letter"),
        (changed(0, 2**40), "letters in"),
        (changed(0, -1), "letters in"),
        (torch.ones(5, dtype=torch.uint8), "letters in"),
    ],
)
def test_letters_that_no_honest_host_packs_are_refused(packed: Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        unpack(packed, {2}, {0, SERVER})


def test_a_claimed_size_is_bounded_before_room_is_made() -> None:
    check_sizes(Kind.IDS, [0, 5, 7], [0, 5, 9], 8, WHO)
    for sizes, most in (([0, 6, 0], [0, 5, 9]), ([0, -1, 0], None), ([0, 2**50, 0], None)):
        with pytest.raises(PeerError, match="silo-1 said that .* rows of ids would come"):
            check_sizes(Kind.IDS, sizes, most, 8, WHO)


@pytest.mark.parametrize("places", [[-1, 2], [0, 4], [2, 1], [1, 1], [2**40, 2**41]], ids=str)
def test_places_outside_of_a_list_get_nothing(places: list[int]) -> None:
    check_places(torch.tensor([0, 3, 0, 1, 2, 3]), [2, 4, 0], [4, 4, 0], WHO)
    with pytest.raises(PeerError, match="silo-1 asked for rows .* of a list of 4"):
        check_places(torch.tensor([0, *places]), [1, 2, 0], [4, 4, 0], WHO)


def test_a_wire_looks_at_every_place_that_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = LocalWire(3)
    federation = open_federation(wire, split_graph(small_graph(24, 120), owners(3, 24), 3))
    stack = build_stack(federation.silos, "halo", torch.float64, federation.schema)
    boundary, before = build_boundary(wire, federation.plan, stack), wire.ledger.by_kind()
    wire.ask(boundary, boundary.halo)
    monkeypatch.setattr(LocalWire, "_swap", lambda self, kind, rows, leaving, arriving: rows - 1)
    with pytest.raises(PeerError, match="silo-0, silo-1, silo-2 asked for rows -1 to"):
        wire.ask(boundary, boundary.halo)
    assert set(wire.ledger.by_kind()) == set(before)  # no row left


def test_rows_that_are_no_numbers_have_a_sender() -> None:
    rows = torch.ones(5, 2)
    check_finite(Kind.EMBEDDINGS, rows, [2, 2, 1], WHO)
    for bad in (torch.nan, torch.inf):
        rows[3, 1] = bad
        with pytest.raises(PeerError, match="silo-1 sent embeddings that are not finite.*smaller train.lr"):
            check_finite(Kind.EMBEDDINGS, rows, [2, 2, 1], WHO)


@pytest.mark.parametrize("score", [1e9, -0.1, torch.inf])
def test_scores_outside_of_their_range_are_refused(score: float) -> None:
    check_scores(torch.tensor([[0.0, 1.0], [torch.nan, 0.5]]), WHO)
    with pytest.raises(PeerError, match="silo-1 says that its scores are 0.5, .* between 0 and 1"):
        check_scores(torch.tensor([[0.5, 1.0], [0.5, score]]), WHO)


class Garbled(LocalWire):
    """Replaces what the last silo says to the server."""

    garbage: Tensor = torch.tensor([7, 7, 7], dtype=torch.uint8)

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        return {key: self.garbage if key == (2, SERVER) else x for key, x in letters.items()}


def test_words_that_make_no_sense_have_a_sender() -> None:
    silos = split_graph(small_graph(24, 60), owners(3, 24), 3)
    for garbage in (Garbled.garbage, torch.ones(2), torch.tensor(list(b'{"name": 1}'), dtype=torch.uint8)):
        wire = Garbled(3)
        wire.garbage = garbage
        with pytest.raises(IsthmusError, match="Silo 2 sent something else than its schema"):
            agree_schema(wire, silos)
    with pytest.raises(PeerError, match="silo-2 sent metrics of the form torch.uint8"):
        Garbled(3).share(Kind.METRICS, torch.ones(3, 2))


# What one host of three does wrong, in the middle of a run that all take part in.


def not_a_number(wire: Wire, patch: pytest.MonkeyPatch) -> None:
    value = torch.nan if wire.host == 2 else 1.0
    wire.total(Kind.PARAMETERS, torch.full((len(wire.mine), 4), value))


def another_sender(wire: Wire, patch: pytest.MonkeyPatch) -> None:
    if wire.host == 2:
        forged = lambda letters: pack({(1, to): x for (_, to), x in letters.items()})  # noqa: E731
        patch.setattr(distributed, "pack", forged)
    wire.gather(Kind.METRICS, {silo: torch.ones(1) for silo in wire.mine})
    wire.answer(Kind.METRICS, torch.ones(1) if wire.houses(SERVER) else None)


WRONG: dict[str, Callable[[Wire, pytest.MonkeyPatch], None]] = {
    "silo-2 sent parameters that are not finite": not_a_number,
    "silo-2 sent a letter from party 1": another_sender,
}


def misbehave(host: int, name: str) -> str:
    """What a host says in the end; it tells the others, as hosts of a run do."""
    wire = distributed.DistributedWire(3, timeout=30)
    with pytest.MonkeyPatch.context() as patch:
        try:
            WRONG[name](wire, patch)
        except IsthmusError as error:
            wire.end(str(error))
            return str(error)
    return ""


@pytest.mark.hosts
@pytest.mark.parametrize("name", WRONG)
def test_every_host_says_who_it_was(name: str) -> None:
    said = on_hosts(3, misbehave, name)
    assert all(name in each for each in said) and len(set(said)) == 1
