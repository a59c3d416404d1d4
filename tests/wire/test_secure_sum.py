"""Secure sums are exact with and without drop-outs, and nobody who lacks shares can take a mask off."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.protect import shamir
from isthmus.protect.key_agreement import KeyPair, stream
from isthmus.wire import labelled_rows
from isthmus.wire.local import LocalWire
from isthmus.wire.secure_client import KEYS, SEALED, SHARE, Client, Group, masks_with, thirds
from isthmus.wire.secure_sum import GroupSum, Turn, secure_sum
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire

WIDTH = 6


def vectors(n: int, width: int = WIDTH) -> Tensor:
    return torch.randint(-(2**50), 2**50, (n, width), generator=torch.Generator().manual_seed(n))


def summed(wire: Wire, x: Tensor, **options: Any) -> list[GroupSum]:
    found = secure_sum(wire, {silo: x[silo] for silo in wire.mine}, x.shape[1], **options)
    assert found is not None
    return found


class Watched(LocalWire):
    """Keeps the letters that travelled, in order; ``garble`` may replace those of one kind before they arrive."""

    def __init__(self, silos: int) -> None:
        super().__init__(silos)
        self.letters: list[tuple[Kind, dict[tuple[int, int], Tensor]]] = []
        self.garble: Callable[[int, dict[tuple[int, int], Tensor]], None] = lambda trip, letters: None

    def _deliver(self, kind: Kind, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        self.garble(len(self.letters), letters)
        self.letters.append((kind, letters))
        return letters

    def heard(self, trip: int) -> dict[int, Tensor]:
        """What the server heard on one trip: 0 keys, 2 sealed shares, 4 masked vectors, 6 shares that open."""
        return {sender: x for (sender, receiver), x in self.letters[trip][1].items() if receiver == SERVER}


@pytest.mark.parametrize(("n", "size"), [(2, 2), (5, 64), (9, 3), (11, 4)])
def test_sums_of_groups_are_exact(n: int, size: int) -> None:
    wire, x = LocalWire(n), vectors(n)
    found = summed(wire, x, size=size)
    assert [client for each in found for client in each.clients] == list(range(n))
    for each in found:
        assert torch.equal(each.total, x[list(each.clients)].sum(0)) and not each.dropped
        assert len(each.clients) >= min(n, size)


@settings(max_examples=25)
@given(data=st.data(), n=st.integers(3, 8))
def test_who_drops_out_is_missed_and_no_more(data: st.DataObject, n: int) -> None:
    needed = -(-2 * n // 3)
    leaving = data.draw(st.lists(st.integers(0, n - 1), max_size=n - needed, unique=True))
    last = {client: data.draw(st.sampled_from(Turn)) for client in leaving}
    x = vectors(n)
    [found] = summed(LocalWire(n), x, last=last)
    gone = {client for client, stage in last.items() if stage < Turn.MASKED}
    assert set(found.clients) == set(range(n)) - gone and set(found.dropped) == gone
    assert torch.equal(found.total, x[list(found.clients)].sum(0))


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        (Turn.NOTHING, "2 have sent keys"),
        (Turn.KEYS, "2 have sent shares of their keys"),
        (Turn.SHARES, "2 have sent masked vectors"),
        (Turn.MASKED, "2 have sent shares that open the sum"),
    ],
)
def test_below_the_threshold_nothing_is_opened(stage: Turn, what: str) -> None:
    x = vectors(4)
    with pytest.raises(IsthmusError, match=f"{what}, and 3 must. Missing: silo-1, silo-3."):
        summed(LocalWire(4), x, last={1: stage, 3: stage})
    summed(LocalWire(4), x, last={3: stage})  # three are enough


@pytest.mark.parametrize("threshold", [0.5, 0.1, 1.3])
def test_half_of_a_group_must_not_open_it(threshold: float) -> None:
    with pytest.raises(IsthmusError, match="more than half of them are needed"):
        summed(LocalWire(4), vectors(4), threshold=threshold)


def test_a_sum_of_one_client_is_refused() -> None:
    with pytest.raises(IsthmusError, match="a group has 2 clients or more"):
        summed(LocalWire(1), vectors(1))


def test_what_might_wrap_does_not_leave() -> None:
    wire, x = LocalWire(3), vectors(3)
    x[1, 0] = 2**62
    with pytest.raises(IsthmusError, match="over 3 vectors .* a sum can wrap"):
        summed(wire, x)
    assert wire.ledger.by_kind() == {}


def evenly(words: Tensor) -> float:
    """The p-value of a chi-square test that all values of a byte are equally frequent."""
    return float(stats.chisquare(words.contiguous().view(torch.uint8).flatten().bincount(minlength=256)).pvalue)


def test_one_masked_vector_is_random_and_another_the_next_time() -> None:
    x = torch.arange(4000).repeat(3, 1)
    seen = []
    for _ in range(2):
        wire = Watched(3)
        assert torch.equal(summed(wire, x)[0].total, 3 * x[0])
        seen.append(torch.cat(list(wire.heard(4).values())))
    assert evenly(x[0]) < 1e-9
    assert all(evenly(vector) > 1e-7 for each in seen for vector in each)
    assert evenly(seen[0][0] - seen[1][0]) > 1e-7 and evenly(seen[0][0] - seen[0][1]) > 1e-7


def test_the_ledger_has_keys_shares_and_masked_vectors_and_nothing_else() -> None:
    n, wire, x = 5, Watched(5), vectors(5)
    summed(wire, x, last={4: Turn.SHARES})
    assert [kind for kind, _ in wire.letters] == [Kind.KEYS] * 2 + [Kind.KEY_SHARES] * 2 + [Kind.MASKED] * 2 + [
        Kind.KEY_SHARES
    ]
    assert wire.ledger.by_kind() == {
        Kind.KEYS: (n + n * n) * (8 + KEYS),
        Kind.KEY_SHARES: 2 * n * (n - 1) * (8 + SEALED) + 4 * n * (8 + SHARE),
        Kind.MASKED: 4 * 8 * WIDTH + 4 * 4 * 8,
    }


def test_the_server_gets_one_kind_of_share_of_each_client() -> None:
    """Shares of the mask key of who dropped out, of others those of their own mask, as clients keep them."""
    made: list[Client] = []
    n, x, last = 6, vectors(6), {1: Turn.SHARES, 4: Turn.KEYS}
    with pytest.MonkeyPatch.context() as patch:
        begin = Client.__init__

        def remember(self: Client, *given: Any) -> None:
            begin(self, *given)
            made.append(self)

        patch.setattr(Client, "__init__", remember)
        wire = Watched(n)
        summed(wire, x, last=last)
    opened = wire.heard(6)
    assert set(opened) == {0, 2, 3, 5}
    for sender, letter in opened.items():
        rows = labelled_rows.read(Kind.KEY_SHARES, letter, SHARE, {0, 1, 2, 3, 5}, "")
        for member, told in rows.items():
            of_key, of_own = made[sender]._kept[member]
            assert told == (of_key if member == 1 else of_own) != (of_own if member == 1 else of_key)
    survivors = wire.letters[5][1][SERVER, 0]
    fewer = survivors[:-1]  # as if one more had dropped out, whose other share is then asked for
    with pytest.raises(PeerError, match="asked twice for shares"):
        made[0].open_shares(survivors)
    with pytest.raises(IsthmusError, match="3 have sent masked vectors, and 4 must"):
        made[0].open_shares(fewer)


# ---- who can take a mask off


def through_masking(n: int, threshold: int) -> tuple[list[Client], Tensor, dict[int, bytes]]:
    """Clients after the masked vectors, these vectors [n, width], and public mask keys."""
    group = Group(tuple(range(n)), threshold, WIDTH)
    clients = [Client(i, group, row, str) for i, row in enumerate(vectors(n))]
    listed = torch.cat([client.public_keys() for client in clients])
    sealed = [labelled_rows.read(Kind.KEY_SHARES, c.seal_shares(listed), SEALED, range(n), "", False) for c in clients]
    dealt = [{sender: rows[i] for sender, rows in enumerate(sealed) if sender != i} for i in range(n)]
    masked = [client.mask(labelled_rows.write(rows, SEALED)) for client, rows in zip(clients, dealt, strict=True)]
    public = {i: thirds(row)[1] for i, row in labelled_rows.read(Kind.KEYS, listed, KEYS, range(n), "").items()}
    return clients, torch.cat(masked), public


def stripped(victim: int, helpers: list[Client], masked: Tensor, public: dict[int, bytes]) -> Tensor:
    """What a server makes of one masked vector with all the shares that some clients keep."""
    of_key, of_own = (
        shamir.reconstruct({helper.number + 1: helper._kept[victim][which] for helper in helpers}) for which in (0, 1)
    )
    others = {number: key for number, key in public.items() if number != victim}
    return masked[victim] - stream(of_own, WIDTH) - masks_with(victim, KeyPair(of_key), others, WIDTH, str)


def test_a_coalition_below_the_threshold_takes_no_mask_off() -> None:
    n, threshold, victim = 6, 4, 2
    clients, masked, public = through_masking(n, threshold)
    helpers = [client for client in clients if client.number != victim]
    plain = vectors(n)[victim]
    assert torch.equal(stripped(victim, helpers[:threshold], masked, public), plain)  # the coalition that breaks it
    assert not (stripped(victim, helpers[: threshold - 1], masked, public) == plain).any()


def test_all_but_one_other_are_left_with_a_sum_of_two() -> None:
    """The server's sum less the vectors of those who tell theirs: the sum of the two who do not."""
    x = vectors(6)
    [found] = summed(LocalWire(6), x)
    assert torch.equal(found.total - x[2:].sum(0), x[0] + x[1])


# ---- what arrives is checked


def replaced(trip: int, key: tuple[int, int], change: Callable[[Tensor], Tensor]) -> Watched:
    """A wire on which one letter arrives changed."""
    wire = Watched(4)

    def garble(now: int, letters: dict[tuple[int, int], Tensor]) -> None:
        if now == trip:
            letters[key] = change(letters[key])

    wire.garble = garble
    return wire


def no_key(letter: Tensor) -> Tensor:
    letter[0, 8:] = 0
    return letter


def flipped(letter: Tensor) -> Tensor:
    letter[0, -1] ^= 1
    return letter


@pytest.mark.parametrize(
    ("trip", "key", "change", "said"),
    [
        (0, (2, SERVER), lambda x: x[:, :-1], "silo-2 sent keys of the form .* rows of 104 bytes are due"),
        (0, (2, SERVER), lambda x: x.long(), "silo-2 sent keys of the form torch.int64"),
        (0, (2, SERVER), lambda x: x.repeat(2, 1), r"silo-2 sent keys of members \[2\], twice \[2\]"),
        (0, (2, SERVER), lambda x: x[:0], r"silo-2 sent keys of members \[\], and left these out: \[2\]"),
        (0, (2, SERVER), no_key, "silo-2 sent a key with which no secret can be agreed on"),
        (1, (SERVER, 0), lambda x: x[1:], "server left silo-0 out of the list"),
        (1, (SERVER, 0), lambda x: x[:2], "2 have sent keys, and 3 must"),
        (1, (SERVER, 0), lambda x: x.repeat(2, 1), "server sent keys .* twice"),
        (2, (2, SERVER), lambda x: x[1:], r"silo-2 sent key-shares .* left these out: \[0\]"),
        (3, (SERVER, 1), flipped, "silo-0 sent silo-1 a letter that was sealed with another key, or changed"),
        (3, (SERVER, 1), lambda x: x[:1], "2 have sent shares of their keys, and 3 must"),
        (4, (2, SERVER), lambda x: x[:, 1:], r"silo-2 sent masked of the form torch.int64 \[1, 5\]"),
        (4, (2, SERVER), lambda x: x.double(), "silo-2 sent masked of the form torch.float64"),
        (5, (SERVER, 0), lambda x: x[1:], "server left silo-0 out of the list"),
        (6, (2, SERVER), lambda x: x[:, :20], "silo-2 sent key-shares of the form"),
        (6, (2, SERVER), lambda x: x[:2], r"silo-2 sent key-shares .* left these out: \[2, 3\]"),
    ],
)
def test_who_sends_what_is_not_due_is_named(
    trip: int, key: tuple[int, int], change: Callable[[Tensor], Tensor], said: str
) -> None:
    with pytest.raises(IsthmusError, match=said):
        summed(replaced(trip, key, change), vectors(4))


@pytest.mark.parametrize("member", [0, 3])  # of its own mask; of its mask key
def test_a_wrong_share_does_not_pass(member: int) -> None:
    """What it gives is compared with what the client said first."""

    def wrong(letter: Tensor) -> Tensor:
        letter[member, 9] ^= 1
        return letter

    match = f"a secret of silo-{member} do not give it; they are from silo-0, silo-1, silo-2"
    with pytest.raises(PeerError, match=match):
        summed(replaced(6, (1, SERVER), wrong), vectors(4), last={3: Turn.SHARES})


def test_a_sum_that_bounded_vectors_cannot_have_is_refused() -> None:
    with pytest.raises(PeerError, match="vectors of silo-0, silo-1, silo-2 is outside of .*: a vector or a share is"):
        summed(replaced(4, (1, SERVER), lambda x: x + (2**63 - 2**52)), vectors(4), last={3: Turn.SHARES})


def test_who_has_missed_a_stage_is_refused() -> None:
    wire = Watched(4)

    def garble(trip: int, letters: dict[tuple[int, int], Tensor]) -> None:
        if trip == 4:
            letters[3, SERVER] = letters[2, SERVER]

    wire.garble = garble
    with pytest.raises(PeerError, match="silo-3 sent masked vectors, though what is due before them has not come"):
        summed(wire, vectors(4), last={3: Turn.KEYS})


# ---- several hosts


def told(wire: Wire) -> list[tuple[tuple[int, ...], list[int]]] | None:
    x = vectors(5)
    last = {1: Turn.SHARES}
    found = secure_sum(wire, {silo: x[silo] for silo in wire.mine}, WIDTH, last=last)
    return None if found is None else [(each.clients, each.total.tolist()) for each in found]


@pytest.mark.hosts
def test_several_hosts_give_the_sum_of_one() -> None:
    x = vectors(5)
    here = told(LocalWire(5))
    assert here == [((0, 2, 3, 4), x[[0, 2, 3, 4]].sum(0).tolist())]
    assert on_hosts(2, on_wire, 5, told) == [here, None]
