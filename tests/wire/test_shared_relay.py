"""Sealed partials: both ends know the way past the server, which holds uniform numbers, and with a silo reads all."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.core.parcel import Parcel
from isthmus.graph.graph import Graph
from isthmus.protect.field import PRIME, from_field, interpolate
from isthmus.wire.arrival_checks import check_elements
from isthmus.wire.door import Door
from isthmus.wire.local import LocalWire
from isthmus.wire.membership import Membership
from isthmus.wire.policy import Policy, Refused
from isthmus.wire.shared_relay import lay_straight
from tests.helpers.small import owners, run_method, small_graph

SHARES, WHOLE = {"protect": {"name": "fixed-point,shares"}}, {"protect": {"name": "fixed-point"}}
BINS = 16
UNLIKELY = 44.3  # chi-square of 15 degrees of freedom: uniform numbers exceed it once in 10,000 times


@pytest.mark.parametrize("hosts", [1, 3, 5, 6])
def test_both_ends_list_second_shares_in_one_order(hosts: int) -> None:
    """Five silos: what one host sends to another is, entry by entry, what that one waits for."""
    silos, members = 5, Membership.dealt(5, hosts)
    wire: Any = SimpleNamespace(silos=silos, hosts=hosts, members=members)
    drawn = torch.randint(0, 2**31, (3, 90), generator=torch.Generator().manual_seed(1))
    adds, waits, slot = drawn[0] % silos, drawn[1] % silos, drawn[2] % 7
    known = torch.stack([adds, waits, slot], 1)[adds != waits].unique(dim=0)
    home = torch.tensor(members.homes)
    sent, due = {}, {}
    for host in range(hosts):
        made, wanted = (known[home[known[:, column]] == host] for column in (0, 1))
        made = made[torch.randperm(len(made), generator=torch.Generator().manual_seed(host))]
        edges = wanted.repeat(2, 1)  # two edges of a silo into one target make one partial
        target = torch.arange(7 * silos)  # slots of this host's silos
        partials = made[:, 0] * silos + made[:, 1], made[:, 2], torch.arange(len(made))
        way = lay_straight(wire, partials, edges[:, 1] * silos + edges[:, 0], edges[:, 1] * 7 + edges[:, 2], target)
        sent[host] = [each.tolist() for each in made[way.sent.at].split(way.sent.splits)]
        back = torch.stack([way.due.pairs % silos, way.due.at // 7, way.due.at % 7], 1)
        due[host] = [each.tolist() for each in back.split(way.due.splits)]
        assert torch.equal(way.sent.pairs, made[way.sent.at, 0] * silos + made[way.sent.at, 1])
    assert all(sent[a][b] == due[b][a] for a in range(hosts) for b in range(hosts))
    assert sum(len(each) for lists in sent.values() for each in lists) == len(known)


def heard(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], graph: Graph) -> list[tuple[Parcel, list[Tensor]]]:
    """Parcels of rows of nodes in a step of training, and what arrives of each: at the server, and at other silos."""
    letters, leave = list[tuple[Parcel, list[Tensor]]](), Door.leave

    def listening(self: Door, kind: Kind, parcels: Any, carry: Callable[..., Any], *rest: Any, **named: Any) -> Any:
        def overheard(sealed: dict[int, Tensor]) -> dict[int, Tensor]:
            arrived: dict[int, Tensor] = carry(sealed)
            if kind in (Kind.PARTIALS, Kind.ADJOINTS) and not parcels[0].by_server:
                letters.append((parcels[0], [arrived[i] for i in sorted(arrived)]))
            return arrived

        return leave(self, kind, parcels, overheard, *rest, **named)

    monkeypatch.setattr(Door, "leave", listening)
    run_method("fedgnn-g", graph, owners(4, 60), 4, "gcn", options, epochs=1)
    monkeypatch.setattr(Door, "leave", leave)
    return letters


def chi_square(numbers: Tensor) -> float:
    """How far the numbers are from filling equal parts of the field alike."""
    counts = torch.bincount((numbers.flatten() % PRIME) // (PRIME // BINS + 1), minlength=BINS).double()
    mean = counts.sum() / BINS
    return float(((counts - mean) ** 2 / mean).sum())


def test_what_the_server_gets_is_uniform_and_the_same_for_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the same numbers where all features are others; so does each receiver get uniform ones."""
    graph = small_graph(60, 400)
    letters = heard(monkeypatch, SHARES, graph)
    assert {parcel.kind for parcel, _ in letters} == {Kind.PARTIALS, Kind.ADJOINTS}
    for holder in (0, 1):
        numbers = torch.cat([arrived[holder].flatten() for _, arrived in letters])
        assert len(numbers) > 5000 and chi_square(numbers) < UNLIKELY
    graph.x.mul_(-3.0).add_(1.0)
    others = heard(monkeypatch, SHARES, graph)
    pairs = list(zip(letters, others, strict=True))
    assert all(torch.equal(one[1][0], other[1][0]) for one, other in pairs)
    assert not any(torch.equal(one[1][1], other[1][1]) for one, other in pairs if len(one[0].rows))


def test_whole_numbers_are_not_uniform_and_tell_rows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    letters = heard(monkeypatch, WHOLE, small_graph(60, 400))
    assert chi_square(torch.cat([arrived[0].flatten() for _, arrived in letters])) > 100 * UNLIKELY


def test_server_and_receiver_together_read_every_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coalition that breaks it: both shares of a row are its row."""
    for parcel, (first, second) in heard(monkeypatch, SHARES, small_graph(60, 400)):
        if parcel.kind != Kind.PARTIALS:
            continue
        opened = {tuple(row) for row in _opened_by_all(first, second)}
        made = {tuple(row) for row in (parcel.rows * 2.0**36).round().long().tolist()}
        assert made and made <= opened


def _opened_by_all(first: Tensor, second: Tensor) -> list[list[int]]:
    """Every first share put together with every second one."""
    pairs = torch.cartesian_prod(torch.arange(len(first)), torch.arange(len(second)))
    both = torch.stack([first[pairs[:, 0]], second[pairs[:, 1]]], 1)
    rows: list[list[int]] = from_field(interpolate(both)).tolist()
    return rows


@pytest.mark.parametrize("fewest", [1, 99])
def test_the_server_hands_out_zeros_for_sums_that_stay_shut(fewest: int) -> None:
    """Without the sum of first shares a receiver that holds the second ones opens nothing."""
    handed: list[Tensor] = []

    class Watching(Policy):
        def refusal(self, parcel: Parcel) -> str:
            handed.extend([parcel.rows] if parcel.kind == Kind.SHARE_SUMS else [])
            return ""

    wire = LocalWire(3)
    wire.policy = Watching()
    options = {**SHARES, "exchange": {"adjoint": False, "fewest": fewest}}
    run_method("fedgnn-g", small_graph(30, 140), owners(3), 3, "gcn", options, epochs=1, wire=wire)
    assert handed and all(bool((rows == 0).all()) == (fewest > 1) for rows in handed)


def test_a_policy_is_asked_for_every_parcel_and_told_of_all_holders() -> None:
    asked: set[tuple[Kind, bool, bool]] = set()

    class Watching(Policy):
        def refusal(self, parcel: Parcel) -> str:
            ends = zip(parcel.traffic.sender.tolist(), parcel.traffic.receiver.tolist(), strict=True)
            asked.update((parcel.kind, a == SERVER, b == SERVER) for a, b in ends)
            return ""

    wire = LocalWire(3)
    wire.policy = Watching()
    run_method("fedgnn-g", small_graph(30, 140), owners(3), 3, "gcn", SHARES, epochs=1, wire=wire)
    table = wire.ledger.table().to_pydict()
    lines = zip(table["kind"], table["sender"], table["receiver"], strict=True)
    assert asked >= {(Kind(kind), a == "server", b == "server") for kind, a, b in lines if kind != "ledger"}
    assert {(Kind.PARTIALS, False, True), (Kind.PARTIALS, False, False), (Kind.SHARE_SUMS, True, False)} <= asked


@pytest.mark.parametrize("kind", [Kind.PARTIALS, Kind.SHARE_SUMS, Kind.ADJOINTS])
def test_a_policy_that_refuses_keeps_shares_at_home(kind: Kind) -> None:
    class Without(Policy):
        def refusal(self, parcel: Parcel) -> str:
            return f"{kind} stay here" if parcel.kind == kind else ""

    wire = LocalWire(3)
    wire.policy = Without()
    with pytest.raises(Refused, match=f"{kind} stay here"):
        run_method("fedgnn-g", small_graph(30, 140), owners(3), 3, "gcn", SHARES, wire=wire)
    assert kind.value not in wire.ledger.by_kind()


def test_shares_outside_of_the_field_are_refused_by_name() -> None:
    good = torch.tensor([[0, PRIME - 1], [5, 6], [7, 8]])
    check_elements(Kind.PARTIALS, good, [1, 2], ["silo-0", "silo-1"])
    for bad in (-1, PRIME):
        spoilt = good.clone()
        spoilt[2, 1] = bad
        with pytest.raises(PeerError, match="silo-1 sent shares of partials that lie outside of the field"):
            check_elements(Kind.PARTIALS, spoilt, [1, 2], ["silo-0", "silo-1"])
