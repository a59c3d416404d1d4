"""A peer is not a friend: what it sends is checked before it is used, and who sent it is named, on every host."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.engine.layout import lay_out
from isthmus.federation.boundary import build_boundary, make_route
from isthmus.federation.federation import open_federation
from isthmus.federation.schema_agreement import agree_schema
from isthmus.graph.cut import split_graph
from isthmus.graph.stack import build_stack
from isthmus.protect.base import Chain, Mechanism
from isthmus.protect.number_format import NumberFormat
from isthmus.sample.order import rule_of
from isthmus.testing.runs import small_silos
from isthmus.train.metrics import check_scores
from isthmus.wire import distributed
from isthmus.wire.arrival_checks import check_finite, check_places, check_sizes
from isthmus.wire.local import LocalWire
from isthmus.wire.membership import Membership
from isthmus.wire.packing import pack, unpack
from isthmus.wire.route import Lot, Route
from isthmus.wire.server_legs import Ends, hand_out, lift
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts
from tests.helpers.small import losses, owners, run_method, small_graph

LETTERS = {(2, 0): torch.arange(6.0).reshape(2, 3), (2, SERVER): torch.ones(4, dtype=torch.int64)}
WHO = ["silo-0", "silo-1", "silo-2"]
INT8 = {"name": "int8"}  # which cannot write an infinity


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


def test_no_kind_of_rows_may_be_infinite() -> None:
    for kind in Kind:
        with pytest.raises(PeerError, match=f"silo-0 sent {kind} that are not finite"):
            check_finite(kind, torch.tensor([[torch.inf]]), [1], WHO[:1])
        check_finite(kind, torch.tensor([[2**40]]), [1], WHO[:1])


class Watched(LocalWire):
    """Keeps the real numbers that travelled, by kind, in the order in which they did."""

    def __init__(self, silos: int) -> None:
        super().__init__(silos)
        self.rows: dict[Kind, list[Tensor]] = {}

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        if rows.is_floating_point():
            self.rows.setdefault(kind, []).append(rows)
        return super()._swap(kind, rows, leaving, arriving)


@pytest.mark.parametrize("fewest", [1, 2, 1000])
@pytest.mark.parametrize(("model", "options"), [("pna", {}), ("sage", {"aggregate": "max"}), ("sage", {})], ids=str)
def test_what_is_not_handed_out_travels_as_zeros(model: str, options: dict[str, Any], fewest: int) -> None:
    """Down as nobody's aggregate, up as nobody's derivative; so whatever is infinite was somebody's."""
    wire, graph = Watched(3), small_graph(30, 140)
    given: dict[str, Any] = {"model_options": {"norm": "none", "options": options}}
    shut = {"options": {"exchange": {"fewest": fewest}}}
    result = run_method("fedgnn-g", graph, owners(3), 3, model, wire=wire, **shut, **given)
    assert set(wire.rows) == {Kind.PARTIALS, Kind.ADJOINTS}
    assert all(bool(rows.isfinite().all()) for each in wire.rows.values() for rows in each)
    handed, returned = wire.rows[Kind.PARTIALS][1::2], wire.rows[Kind.ADJOINTS][::2]  # every second trip is up
    zeros = [sum(int((rows == 0).all(1).sum()) for rows in each) for each in (handed, returned)]
    if fewest == 1000:
        assert zeros == [sum(map(len, each)) for each in (handed, returned)]
        alone = run_method("fedsage", graph, owners(3), 3, model, **given)
        assert losses(result) == pytest.approx(losses(alone), rel=1e-12)
    rounded = run_method("fedgnn-g", graph, owners(3), 3, model, options={**shut["options"], "protect": INT8}, **given)
    assert losses(rounded)[0] == pytest.approx(losses(result)[0], rel=0.05)


class Elsewhere(LocalWire):
    """One of three hosts as it looks from the inside: of two rows that come from each, those of host 2 are none."""

    def __init__(self, hosts: int = 3) -> None:
        super().__init__(3)
        self.hosts, self.members = hosts, Membership.dealt(3, hosts)
        self.releases.open(6)

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        bad = 255 if rows.dtype == torch.uint8 else torch.nan  # four bytes of 255 are no number either
        return torch.cat([rows[:-2], rows.new_full((2, *rows.shape[1:]), bad)])


ENDS = Ends(torch.arange(3).repeat_interleave(2), torch.arange(6), [2, 2, 2])


@pytest.mark.parametrize("chain", [(), (NumberFormat("int8"),), (NumberFormat("bfloat16"),)], ids=str)
@pytest.mark.parametrize("kind", [Kind.PARTIALS, Kind.ADJOINTS])
def test_aggregates_and_derivatives_that_are_no_numbers_have_a_sender(kind: Kind, chain: tuple[Mechanism, ...]) -> None:
    """Also where they travel as bytes."""
    wire = Elsewhere()
    wire.protect = Chain(chain)
    with pytest.raises(PeerError, match=f"silo-2 sent {kind} that are not finite"):
        lift(wire, kind, torch.ones(6, 2), ENDS, 0)
    with pytest.raises(PeerError, match=f"the server sent {kind} that are not finite"):
        hand_out(wire, kind, torch.ones(6, 2), ENDS)
    row = Lot(torch.arange(6), torch.arange(6), torch.arange(6), [2, 2, 2], 3)
    with pytest.raises(PeerError, match=f"silo-2 sent {kind} that are not finite"):
        wire.move(kind, torch.ones(6, 2), row, row)


def test_letters_of_numbers_have_them() -> None:
    """Parameters, gradients and features; a score may be undefined."""
    wire, words = Elsewhere(), {silo: torch.tensor([torch.nan if silo == 1 else 0.5]) for silo in range(3)}
    for kind in (Kind.PARAMETERS, Kind.GRADIENTS, Kind.FEATURES):
        with pytest.raises(PeerError, match=f"silo-1 sent {kind} that are not finite"):
            wire.post(kind, {(silo, SERVER): each for silo, each in words.items()})
        with pytest.raises(PeerError, match=f"server sent {kind} that are not finite"):
            wire.post(kind, {(SERVER, 0): words[1]})
    assert wire.post(Kind.METRICS, {(1, SERVER): words[1]})[1, SERVER].isnan()


def test_in_one_process_nobody_is_blamed_for_numbers_that_are_none() -> None:
    """A simulation that diverges goes on, and its report says so."""
    told = lift(Elsewhere(hosts=1), Kind.ADJOINTS, torch.ones(6, 2), ENDS, 0)
    assert told[:4].eq(1).all() and told[4:].isnan().all()


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
    no_words, no_schema = torch.ones(2), torch.tensor(list(b'{"name": 1}'), dtype=torch.uint8)
    for garbage, said in (
        (Garbled.garbage, "Silo 2 sent something else than its schema"),
        (no_words, "silo-2 sent schema of the form torch.float32"),
        (no_schema, "Silo 2 sent something else than its schema"),
    ):
        wire = Garbled(3)
        wire.garbage = garbage
        with pytest.raises(IsthmusError, match=said):
            agree_schema(wire, silos)
    with pytest.raises(PeerError, match="silo-2 sent metrics of the form torch.uint8"):
        Garbled(3).share(Kind.METRICS, torch.ones(3, 2))


# What one host of three does wrong, in the middle of a run that all take part in.


def not_a_number(wire: Wire, patch: pytest.MonkeyPatch) -> None:
    value = torch.nan if wire.host == 2 else 1.0
    wire.total(Kind.PARAMETERS, torch.full((len(wire.mine), 4), value))


def routed(wire: Wire) -> tuple[Tensor, Route]:
    """Rows of this host's nodes, which others hold, and their route."""
    silos = small_silos(3, 18)
    federation = open_federation(wire, [silos[i] for i in wire.mine])
    layout = lay_out(federation, "halo", rule_of("local"), False, torch.device("cpu"), torch.float64)
    wire.releases.open(layout.stack.rows)
    asked = wire.ask(layout.boundary, layout.boundary.halo)
    own = layout.stack.owned.nonzero().flatten()
    return torch.ones(len(own), 2, dtype=torch.float64), make_route([asked], own, torch.arange(layout.stack.rows), wire)


def no_number_back(wire: Wire, patch: pytest.MonkeyPatch) -> None:
    """The derivative that one host sends back is none."""
    rows, route = routed(wire)
    loss = wire.linear(rows.requires_grad_(), route, Kind.EMBEDDINGS, adjoint=True).sum()
    wire.close(loss * (torch.nan if wire.host == 2 else 1.0)).backward()
    wire.total(Kind.METRICS, rows.detach()[: len(wire.mine)])  # the next step, in which host 2 hears of it


def another_sender(wire: Wire, patch: pytest.MonkeyPatch) -> None:
    if wire.host == 2:
        forged = lambda letters: pack({(1, to): x for (_, to), x in letters.items()})  # noqa: E731
        patch.setattr(distributed, "pack", forged)
    wire.gather(Kind.METRICS, {silo: torch.ones(1) for silo in wire.mine})
    wire.answer(Kind.METRICS, torch.ones(1) if wire.houses(SERVER) else None)


WRONG: dict[str, Callable[[Wire, pytest.MonkeyPatch], None]] = {
    "silo-2 sent parameters that are not finite": not_a_number,
    "silo-2 sent a letter from party 1": another_sender,
    "silo-2 sent adjoints that are not finite": no_number_back,
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
