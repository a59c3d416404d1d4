"""Secret shares: fresh for every message, uniform to any T holders, and read by T + 1 of them."""

import itertools

import pytest
import torch
from scipy import stats
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.protect.base import Chain
from isthmus.protect.events import Shared
from isthmus.protect.field import PRIME, from_field, interpolate, reduce
from isthmus.protect.fixed_point import FixedPoint
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.protect.shares import Shares

DOUBTED = 1e-4  # p-values below this would be seen once in ten thousand honest runs; seeds are fixed


def noise() -> Noise:
    return Noise(secrets_from_seed(7, (0, 1)))


def shared(x: Tensor, given: Noise, threshold: int = 1) -> Tensor:
    """The shares [n, T + 1, w] of rows of one silo."""
    n, up = len(x), Traffic.up(torch.zeros(len(x), dtype=torch.int64))
    origin = Origin(torch.zeros(n, dtype=torch.int64), torch.arange(n))
    parcel = Parcel(Kind.EMBEDDINGS, x, origin, up, holders=(up,) * (threshold + 1))
    return Chain((FixedPoint(), Shares(threshold))).seal(parcel, given).rows


def embeddings(seed: int, n: int = 400, w: int = 5) -> Tensor:
    return torch.randn(n, w, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(x: Tensor) -> Tensor:
    return FixedPoint().rounded(x, Kind.EMBEDDINGS)


# ---- fresh for every message


def test_two_messages_of_one_row_differ() -> None:
    x, given = embeddings(1), noise()
    first, second = shared(x, given), shared(x, given)
    assert not bool((first == second).any())
    for each in (first, second):
        assert torch.equal(from_field(interpolate(each)), whole(x))


def difference_attack(before: Tensor, after: Tensor) -> Tensor:
    """What the holder of the second share guesses: with one z, shares 2z - h and 2z - h' differ by h' - h."""
    return from_field(reduce(before - after))


def test_the_difference_attack_works_on_fixed_z_and_fails_on_fresh_z() -> None:
    """The paper's z is a parameter of the silo: two messages of a device then subtract to how its row has moved."""
    old, new, given = embeddings(1), embeddings(2), noise()
    moved = whole(new) - whole(old)
    frozen = []
    for x in (old, new):
        given.draws = 0
        frozen.append(shared(x, given)[:, 1])
    assert torch.equal(difference_attack(*frozen), moved)
    fresh = difference_attack(*(shared(x, given)[:, 1] for x in (old, new)))
    assert not bool((fresh == moved).any())
    assert abs(float(torch.corrcoef(torch.stack([fresh.flatten(), moved.flatten()]).double())[0, 1])) < 0.1


def test_devices_of_two_silos_and_two_rows_of_one_have_z_of_their_own() -> None:
    """Equal rows, listed by different devices, have nothing in common as shares."""
    x = torch.ones(50, 4, dtype=torch.float64)
    z = shared(x, noise())[:, 0].flatten()
    assert len(z.unique()) == len(z)


# ---- T holders learn nothing, T + 1 read


def uniform(elements: Tensor) -> float:
    """The p-value of elements against the uniform distribution on the field (Kolmogorov-Smirnov)."""
    return float(stats.kstest(elements.double().numpy().ravel() / PRIME, "uniform").pvalue)


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_any_t_shares_of_two_embeddings_cannot_be_told_apart(threshold: int) -> None:
    """Of zeros and of large rows, each share that any T holders have (jointly: ``test_field.py``)."""
    small, large = torch.zeros(400, 5, dtype=torch.float64), 900 + 0 * embeddings(3)
    here, there = (shared(x, Noise(secrets_from_seed(s, (0,))), threshold) for s, x in ((1, small), (2, large)))
    for held in itertools.combinations(range(threshold + 1), threshold):
        a, b = (side[:, list(held)] for side in (here, there))
        for k in range(threshold):
            assert min(uniform(a[:, k]), uniform(b[:, k])) > DOUBTED
            assert stats.ks_2samp(a[:, k].numpy().ravel(), b[:, k].numpy().ravel()).pvalue > DOUBTED


def test_the_bits_of_a_share_say_nothing_of_the_row() -> None:
    """Chi-square over the upper three bits, beside the sign of the number that the share hides."""
    x = embeddings(4, 4000, 4)
    for k in (0, 1):
        upper = (shared(x, noise())[:, k] >> 58).flatten()
        table = torch.bincount(upper + 8 * (x.flatten() > 0), minlength=16).reshape(2, 8)
        assert stats.chi2_contingency(table.numpy()).pvalue > DOUBTED


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_t_plus_one_shares_decode(threshold: int) -> None:
    """The test above can fail: what all holders have together is far from uniform, it is the row."""
    x = embeddings(5)
    shares = shared(x, noise(), threshold)
    found = interpolate(shares)
    assert torch.equal(from_field(found), whole(x)) and uniform(found) < DOUBTED


def test_a_share_that_is_replaced_by_another_message_s_opens_nothing() -> None:
    x, given = embeddings(6), noise()
    first, second = shared(x, given), shared(x, given)
    assert not bool((interpolate(torch.stack([first[:, 0], second[:, 1]], 1)) == reduce(whole(x))).any())


# ---- sums, events, refusals


def test_sums_of_shares_open_to_sums_of_rows_bit_for_bit() -> None:
    x = embeddings(7)
    chain = Chain((FixedPoint(), Shares()))
    near, ptr = torch.arange(400).roll(3), torch.tensor([0, 0, 1, 150, 400])
    sums = chain.add(shared(x, noise()), near, ptr)
    opened = chain.open(Kind.EMBEDDINGS, sums, x)
    plain = Chain((FixedPoint(),))
    assert torch.equal(opened, plain.open(Kind.EMBEDDINGS, plain.add(whole(x), near, ptr), x))


def test_events_and_refusals() -> None:
    assert str(Shared(1)) == "shares, 2 of which open"
    with pytest.raises(IsthmusError, match=r"protect.threshold is 4; it must lie in 1..3"):
        Shares(4)
    with pytest.raises(IsthmusError, match="protect.secrets"):
        Shares(secrets="mine")
    with pytest.raises(IsthmusError, match="divides each row among 2 holders, but no parties"):
        rows = torch.zeros(1, 3, dtype=torch.int64)
        at = torch.zeros(1, dtype=torch.int64)
        Shares().seal(Parcel(Kind.EMBEDDINGS, rows, Origin(at, at), Traffic.up(at)), noise())
