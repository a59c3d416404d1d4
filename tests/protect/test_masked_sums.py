"""Masks cancel within a group, groups have the size that was asked for, and sums that might wrap are refused."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.protect import shamir
from isthmus.protect.masked_sums import check_inputs, groups, largest_input, pair_masks, simulated_masks

SECRET = bytes(range(32))


@given(n=st.integers(0, 500), size=st.integers(2, 70))
def test_no_group_is_smaller_than_asked_unless_all_are_too_few(n: int, size: int) -> None:
    plan = groups(n, size)
    assert [client for run in plan.runs for client in run] == list(range(n))
    if n >= size:
        assert plan.smallest >= size and max(map(len, plan.runs)) < 2 * size and plan.shortfall == ""
    else:
        assert plan.smallest == n and f"There are {n} clients" in plan.shortfall


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(IsthmusError, match="5 clients in groups of 1: groups have 2 clients or more"):
        groups(5, 1)


@pytest.mark.parametrize("members", [2, 3, 64])
def test_what_might_wrap_is_refused(members: int) -> None:
    most = largest_input(members)
    check_inputs(torch.tensor([most, -most]), members)
    assert most * members < 2**63 <= (most + 1) * members
    for number in (most + 1, -most - 1, -(2**63)):
        with pytest.raises(IsthmusError, match=f"over {members} vectors .* coarser step of the fixed point"):
            check_inputs(torch.tensor([0, number]), members)
    with pytest.raises(IsthmusError, match="float64; make whole numbers"):
        check_inputs(torch.ones(2).double(), members)


def by_hand(round: int, members: list[int], width: int) -> Tensor:
    """Simulated masks pair by pair: +s_uv at u < v, -s_uv at v, and each member's own."""
    count = len(members) * (len(members) + 1) // 2
    name = b"isthmus masks" + SECRET + np.array([round, *members], dtype="<i8").tobytes()
    words = iter(np.frombuffer(hashlib.shake_256(name).digest(8 * width * count), "<i8").reshape(-1, width))
    pairs = {}
    for i, u in enumerate(members):
        for v in members[i + 1 :]:
            pairs[u, v] = pairs[v, u] = torch.from_numpy(next(words).copy())
    rows = [pair_masks(u, [(v, pairs[u, v]) for v in members if v != u], width) for u in members]
    return torch.stack([row + torch.from_numpy(next(words).copy()) for row in rows])


@pytest.mark.parametrize("members", [[0, 1], [7, 3, 5], [4, 2, 9, 0, 1]], ids=str)
def test_simulated_masks_are_pairs_that_cancel_and_masks_of_ones_own(members: list[int]) -> None:
    masks, total = simulated_masks(SECRET, 3, members, 4)
    assert torch.equal(masks, by_hand(3, members, 4)) and torch.equal(masks.sum(0), total)
    assert not torch.equal(masks, simulated_masks(SECRET, 4, members, 4)[0])  # fresh ones every round


def test_sums_under_masks_are_exact() -> None:
    x = torch.randint(-(2**56), 2**56, (64, 50), generator=torch.Generator().manual_seed(0))
    masks, total = simulated_masks(SECRET, 0, range(64), 50)
    assert torch.equal((x + masks).sum(0) - total, x.sum(0))
    assert not torch.equal((x + masks)[1:].sum(0) - total, x[1:].sum(0))  # a missing member's pairs are left


def evenly(words: Tensor) -> float:
    """The p-value of a chi-square test that all values of a byte are equally frequent."""
    return float(stats.chisquare(words.contiguous().view(torch.uint8).flatten().bincount(minlength=256)).pvalue)


def test_a_masked_vector_looks_uniform_and_a_plain_one_does_not() -> None:
    masks, _ = simulated_masks(SECRET, 0, range(5), 4000)
    plain = torch.arange(4000)
    assert all(evenly(plain + mask) > 1e-6 for mask in masks) and evenly(plain) < 1e-9


def test_members_differ() -> None:
    with pytest.raises(IsthmusError, match="must differ"):
        simulated_masks(SECRET, 0, [1, 2, 1], 4)


# ---- shares of keys


@given(data=st.data(), n=st.integers(1, 9))
def test_any_shares_up_to_the_threshold_give_the_secret(data: st.DataObject, n: int) -> None:
    threshold, secret = data.draw(st.integers(1, n)), data.draw(st.binary(min_size=32, max_size=32))
    shares = shamir.share(secret, threshold, range(1, n + 1))
    order = data.draw(st.permutations(list(shares)))
    assert shamir.reconstruct({point: shares[point] for point in order[:threshold]}) == secret
    if threshold > 1:  # one fewer gives something else
        assert shamir.reconstruct({point: shares[point] for point in order[: threshold - 1]}) != secret


def test_fewer_shares_than_the_threshold_say_nothing() -> None:
    """Two of three shares of two secrets are equally distributed: words fall evenly into 64 parts of the field."""
    for secret in (bytes(32), b"\xff" * 32):
        drawn = [shamir.share(secret, 3, [1, 2, 5]) for _ in range(400)]
        for point in (1, 5):
            words = np.concatenate([np.frombuffer(each[point], "<u4") for each in drawn])
            assert words.max() < shamir.PRIME
            assert stats.chisquare(np.bincount(words >> 25, minlength=64)).pvalue > 1e-6
        summed = [shamir.reconstruct({point: each[point] for point in (1, 2)}) for each in drawn]
        assert len(set(summed)) == len(summed) and secret not in summed


@pytest.mark.parametrize(
    ("secret", "threshold", "points"),
    [(bytes(31), 2, [1, 2]), (bytes(32), 3, [1, 2]), (bytes(32), 2, [0, 1]), (bytes(32), 2, [1, 1, 2])],
)
def test_shares_that_cannot_be_made(secret: bytes, threshold: int, points: list[int]) -> None:
    with pytest.raises(IsthmusError, match="secrets have 32 bytes, points are positive and differ"):
        shamir.share(secret, threshold, points)
