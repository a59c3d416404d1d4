"""What parties of HiFGL hold, taken from the letters of real runs, and what they can make of it.

The threat model has three attackers: a node against a neighbour, a silo against a node, and a silo against another
silo. All of them follow the protocol and keep what they get.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from isthmus.core.kinds import SERVER, Kind, silo_of_devices
from isthmus.methods.exchange.hifgl import LiveSecretMessages
from isthmus.protect.field import PRIME, interpolate, reduce
from isthmus.protect.fixed_point import FixedPoint
from isthmus.wire.door import Door
from isthmus.wire.neighbour_sums import Lanes
from tests.helpers.small import run_method, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3
DOUBTED = 1e-4


@dataclass(frozen=True)
class Letter:
    """One parcel as it left: the rows that its senders know, and what travelled."""

    kind: Kind
    layer: int
    plain: Tensor
    sealed: Tensor
    by_devices: bool


@dataclass(frozen=True)
class Overheard:
    """All letters of a run, and along which lanes rows were added up."""

    letters: list[Letter]
    inward: Lanes

    def of(self, kind: Kind, layer: int = 0) -> list[Letter]:
        return [letter for letter in self.letters if letter.kind == kind and letter.layer == layer]

    @property
    def first(self) -> Letter:
        """The rows of the first layer, as they left first."""
        return self.of(Kind.EMBEDDINGS)[0]

    def messages(self) -> Iterator[tuple[int, int, int]]:
        """Target and source of every message, as places among owned rows, and its place among messages."""
        ptr, near, place = (x.tolist() for x in (self.inward.ptr, self.inward.rows.near, self.inward.messages.near))
        for target, (begin, end) in enumerate(pairwise(ptr)):
            yield from ((target, near[i], place[i]) for i in range(begin, end))

    def silo(self, row: int) -> int:
        return int(self.inward.origin.silo[row])


@pytest.fixture
def overheard(monkeypatch: pytest.MonkeyPatch) -> Overheard:
    """A run of three steps, of which every letter is kept."""
    letters: list[Letter] = []
    leave = Door.leave

    def noted(self: Door, kind: Kind, parcels: Any, carry: Any, *given: Any, **named: Any) -> Any:
        def carried(sealed: Any) -> Any:
            for key, parcel in parcels.items():
                below = any(silo_of_devices(party) is not None for party in parcel.traffic.sender.tolist())
                letters.append(Letter(kind, parcel.layer, parcel.rows.clone(), sealed[key].clone(), below))
            return carry(sealed)

        return leave(self, kind, parcels, carried, *given, **named)

    monkeypatch.setattr(Door, "leave", noted)
    live = run_method("hifgl", GRAPH, THREE, 3, "gcn").training.stage.exchange
    assert isinstance(live, LiveSecretMessages)
    return Overheard(letters, live._around.inward)


def whole(rows: Tensor) -> Tensor:
    """Rows as elements of the field."""
    return reduce(FixedPoint().rounded(rows, Kind.EMBEDDINGS))


def looks_uniform(shares: Tensor) -> bool:
    return float(stats.kstest(shares.double().numpy().ravel() / PRIME, "uniform").pvalue) > DOUBTED


# ---- who holds what


def test_no_party_holds_both_shares_of_a_row_and_a_device_with_its_silo_does(overheard: Overheard) -> None:
    """First shares go to devices, second ones to silos, and the server gets none: a coalition must have one of each."""
    held: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for target, _, place in overheard.messages():
        held.setdefault(("device", target), set()).add((place, 0))
        held.setdefault(("silo", overheard.silo(target)), set()).add((place, 1))
    for party, shares in held.items():
        assert len({place for place, _ in shares}) == len(shares), party
    receivers = [set(each.receiver.tolist()) for each in overheard.inward.holders]
    assert all(silo_of_devices(party) is not None for party in receivers[0])
    assert receivers[1] == {0, 1, 2} and SERVER not in receivers[0] | receivers[1]
    sealed, rows = overheard.first.sealed, whole(overheard.first.plain)
    for target, source, place in overheard.messages():  # the coalition that reads a row
        both = held["device", target] | held["silo", overheard.silo(target)]
        assert {(place, 0), (place, 1)} <= both
        assert torch.equal(interpolate(sealed[place][None])[0], rows[source])


def test_a_device_and_the_silo_of_another_neighbour_open_nothing(overheard: Overheard) -> None:
    """Shares of two messages of one row do not fit together."""
    sealed, rows = overheard.first.sealed, whole(overheard.first.plain)
    by_source: dict[int, list[int]] = {}
    for _, source, place in overheard.messages():
        by_source.setdefault(source, []).append(place)
    pairs = [(source, *pair) for source, places in by_source.items() for pair in permutations(places, 2)]
    source, first, second = (list(each) for each in zip(*pairs, strict=True))
    opened = interpolate(torch.stack([sealed[first, 0], sealed[second, 1]], 1))
    assert len(pairs) > 100 and not bool((opened == rows[source]).any())


def test_all_shares_that_travel_are_uniform_and_what_they_hide_is_not(overheard: Overheard) -> None:
    for kind in (Kind.EMBEDDINGS, Kind.ADJOINTS):
        for letter in overheard.of(kind):
            assert letter.sealed.shape[1] == 2 and letter.by_devices
            assert looks_uniform(letter.sealed[:, 0]) and looks_uniform(letter.sealed[:, 1])
            assert not looks_uniform(whole(letter.plain))


def test_letters_of_two_steps_do_not_subtract_to_how_a_row_has_moved(overheard: Overheard) -> None:
    before, after = overheard.of(Kind.EMBEDDINGS)[:2]
    moved = reduce(whole(after.plain) - whole(before.plain))[overheard.inward.copies]
    for share in (0, 1):
        for sign in (1, -1):
            guess = reduce(sign * (after.sealed[:, share] - before.sealed[:, share]))
            assert not bool((guess == moved).any())


# ---- node against node


def test_a_device_reads_no_neighbour_s_row(overheard: Overheard) -> None:
    """It has one share of each neighbour's row, its own row, and its sum; no two of the shares open anything."""
    sealed, rows = overheard.first.sealed, whole(overheard.first.plain)
    near: dict[int, list[tuple[int, int]]] = {}
    for target, *message in overheard.messages():
        near.setdefault(target, []).append((message[0], message[1]))
    for messages in near.values():
        sources, places = (list(each) for each in zip(*messages, strict=True))
        mine = sealed[places, 0]
        assert not bool((mine == rows[sources]).any())
        for one, other in permutations(range(len(sources)), 2):
            guess = interpolate(torch.stack([mine[one], mine[other]])[None])[0]
            assert not bool((guess[None] == rows[sources]).any())


def test_a_device_with_one_neighbour_reads_its_row(overheard: Overheard) -> None:
    """The weakness that reports count: the sum over one is that one's row; of two, who is one of them has the other."""
    opened = overheard.of(Kind.NEIGHBOUR_SUMS)[0]
    ptr, near = overheard.inward.ptr.tolist(), overheard.inward.rows.near.tolist()
    rows = FixedPoint().rounded(overheard.first.plain, Kind.EMBEDDINGS)
    found = FixedPoint().rounded(opened.plain, Kind.EMBEDDINGS)
    for target, (begin, end) in enumerate(pairwise(ptr)):
        assert torch.equal(found[target], rows[near[begin:end]].sum(0))
        alone = [source for source in near[begin:end] if source != target]
        if len(alone) == 1 and end - begin == 2:  # itself and one other
            assert torch.equal(found[target] - rows[target], rows[alone[0]])


# ---- silo against node


def test_a_silo_reads_no_row_and_no_gradient_of_its_devices(overheard: Overheard) -> None:
    """It has second shares, sums of first shares, and one sum of gradients for all of its devices."""
    sealed, rows = overheard.first.sealed, whole(overheard.first.plain)
    sums = overheard.of(Kind.SHARE_SUMS)[0].sealed
    assert looks_uniform(sums[overheard.inward.ptr.diff() > 0])
    degree = overheard.inward.ptr.diff()
    for target, source, place in overheard.messages():
        opened = interpolate(torch.stack([sums[target], sealed[place, 1]])[None])[0]
        if int(degree[target]) > 1:
            assert not bool((opened == rows[source]).any())
    gradients = [letter for letter in overheard.letters if letter.kind == Kind.GRADIENTS and letter.by_devices]
    assert len(gradients) == 3 and all(len(letter.sealed) == 3 for letter in gradients)  # one row a silo and step
    sent = {letter.kind for letter in overheard.letters if letter.by_devices}
    assert sent == {Kind.EMBEDDINGS, Kind.ADJOINTS, Kind.SHARE_SUMS, Kind.GRADIENTS}


# ---- silo against silo


def test_a_silo_reads_nothing_of_another_silo_s_devices(overheard: Overheard) -> None:
    """Of other silos' nodes it has second shares alone, and sums in which theirs are mixed with others."""
    sealed, rows = overheard.first.sealed, whole(overheard.first.plain)
    for silo in range(3):
        foreign = [(s, place) for t, s, place in overheard.messages() if overheard.silo(t) == silo != overheard.silo(s)]
        assert len(foreign) > 10
        sources, places = (list(each) for each in zip(*foreign, strict=True))
        held = sealed[places, 1]
        assert looks_uniform(held) and not bool((held == rows[sources]).any())
        assert not bool((reduce(-held) == rows[sources]).any())
    letters = [letter.kind for letter in overheard.letters if letter.kind in (Kind.FEATURES, Kind.LABELS, Kind.EDGES)]
    assert letters == []


def linked(second: dict[int, list[Tensor]]) -> dict[bytes, set[int]]:
    """Targets that got one and the same second share, by that share: who compares them finds common neighbours."""
    found: dict[bytes, set[int]] = {}
    for target, shares in second.items():
        for share in shares:
            found.setdefault(share.numpy().tobytes(), set()).add(target)
    return found


def test_shares_of_their_own_hide_from_a_silo_which_devices_have_a_neighbour_in_common(overheard: Overheard) -> None:
    """Were one pair of shares sent to all, a silo would see it again at other targets: edges, and sums to solve."""
    sealed = overheard.first.sealed
    own: dict[int, list[Tensor]] = {}
    same: dict[int, list[Tensor]] = {}
    seen: dict[int, int] = {}
    for target, source, place in overheard.messages():
        if overheard.silo(target) == 0:
            own.setdefault(target, []).append(sealed[place, 1])
            same.setdefault(target, []).append(sealed[seen.setdefault(source, place), 1])
    assert all(len(targets) == 1 for targets in linked(own).values())
    assert len(linked(own)) == sum(map(len, own.values()))  # also along parallel edges
    assert max(map(len, linked(same).values())) > 1
