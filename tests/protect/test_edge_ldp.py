"""The mathematics of edge-LDP: published figures, samples of tiny lists one by one, and what can never lower a loss."""

import math
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import IsthmusError
from isthmus.protect.accounting.edge_ldp import (
    SHARE,
    amplified,
    composed,
    edge_ldp,
    shortest_list,
    single_draw,
)

# ---- published figures


@pytest.mark.parametrize(("degree", "epsilon"), [(15, 0.3747), (10, 0.6061), (3, 1.4384)])
def test_one_draw_has_the_epsilon_of_the_paper(degree: int, epsilon: float) -> None:
    """FedDEP's figure 5 prints 0.4, 0.6 and 1.4 for draws of 5."""
    assert float(single_draw(degree, 5).epsilon) == pytest.approx(epsilon, abs=5e-5)
    assert edge_ldp(degree, 5, 1) == pytest.approx(tuple(map(float, single_draw(degree, 5))), rel=1e-15)


def test_one_draw_is_the_published_pair() -> None:
    assert tuple(single_draw(10, 4)) == pytest.approx((math.log(11 / 7), 0.4), rel=1e-14)
    assert tuple(single_draw(4, 6)) == pytest.approx((6 * math.log(5 / 4), 1 - 0.75**6), rel=1e-14)
    assert tuple(single_draw(1, 5)) == pytest.approx((5 * math.log(2), 1.0))  # the shortest list in most graphs


def test_draws_compose_as_the_theorem_says_with_the_term_that_the_paper_drops() -> None:
    eps, delta, k, slack = 0.3, 0.02, 40, 1e-3
    spread = min(math.sqrt(math.log(math.e + eps * math.sqrt(k) / slack)), math.sqrt(math.log(1 / slack)))
    mean = k * eps * (math.exp(eps) - 1) / (math.exp(eps) + 1)
    found = composed([eps], [delta], [k], slack)
    assert float(found.epsilon) == pytest.approx(min(k * eps, mean + eps * spread * math.sqrt(2 * k)), rel=1e-13)
    assert float(found.delta) == pytest.approx(1 - (1 - delta) ** k * (1 - slack), rel=1e-13)
    apart = composed([eps, eps], [delta, delta], [15, 25], slack)
    assert tuple(map(float, apart)) == pytest.approx(tuple(map(float, found)), rel=1e-13)


def test_ten_million_draws_of_a_long_list_lose_no_digits() -> None:
    """Of 1 - (1 - 5e-15)^1e7 = 5e-8 (1 - 2.5e-8 + ...) a plain difference keeps eight digits."""
    _, delta = edge_ldp(10**15, 5, 10**7, slack=0.0)
    assert delta == pytest.approx(5e-8 * (1 - 2.5e-8), rel=1e-14)
    worst = edge_ldp(1, 5, 10**7)
    assert math.isfinite(worst[0]) and worst[1] == 1.0
    assert edge_ldp(7, 5, 0) == (0.0, 0.0) == edge_ldp(1, 5, 0)


def test_a_slack_that_nobody_gives_is_a_hundredth_of_the_draws_and_spared_where_it_gains_nothing() -> None:
    one, many = (edge_ldp(10_000, 5, k) for k in (1, 400))
    assert one[1] == 5 / 10_000
    base = 1 - (1 - 5 / 10_000) ** 400
    assert many[1] == pytest.approx(1 - (1 - base) * (1 - SHARE * base), rel=1e-12)
    assert many[0] < 400 * one[0]


def test_amplification_as_claimed() -> None:
    assert amplified(0.8, 0.3, 1.0) == pytest.approx((0.8, 0.3), rel=1e-14)
    assert amplified(0.8, 0.3, 0.5) == pytest.approx((math.log(1 + 0.5 * (math.exp(0.8) - 1)), 0.15), rel=1e-14)
    assert amplified(3.0, 0.3, 0.5) == pytest.approx((math.log(1 + 0.5 * (math.exp(3.0) - 1)), 0.15), rel=1e-14)
    assert amplified(5000.0, 1.0, 0.5) == pytest.approx((5000 + math.log(0.5), 0.5))  # e^5000 is no number
    assert amplified(2.0, 0.3, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize(("fanout", "draws", "delta"), [(5, 1, 0.1), (5, 100, 0.01), (1, 7, 0.5), (3, 10_000, 1e-4)])
def test_the_shortest_list_keeps_a_delta_and_one_entry_less_does_not(fanout: int, draws: int, delta: float) -> None:
    floor = shortest_list(fanout, draws, delta)
    assert edge_ldp(floor, fanout, draws, 0.0)[1] <= delta * (1 + 1e-12) < edge_ldp(floor - 1, fanout, draws, 0.0)[1]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: single_draw(0, 5), "degree is 0; it must be at least 1"),
        (lambda: single_draw(5, 0), "fanout is 0; it must be at least 1"),
        (lambda: composed([0.1], [0.1], [-1]), "draws is -1; it must be at least 0"),
        (lambda: composed([0.1], [0.1], [1], 2.0), r"slack is 2; it must be in 0\.\.1"),
        (lambda: amplified(1.0, 0.1, 1.5), "rate is 1.5; .* lies in"),
        (lambda: shortest_list(5, 10, 1.0), "delta is 1.0; it must lie between 0 and 1"),
    ],
)
def test_numbers_out_of_range_are_refused(call, says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        call()


# ---- samples of tiny lists, one by one


def samples(neighbours: tuple[int, ...], fanout: int) -> Counter[tuple[int, ...]]:
    """The chance of every sample of a list: without replacement if the list is longer than the fanout, else with."""
    chances: Counter[tuple[int, ...]] = Counter()
    if fanout < len(neighbours):
        every = list(combinations(neighbours, fanout))
    else:
        every = [tuple(sorted(sample)) for sample in product(neighbours, repeat=fanout)]
    for sample in every:
        chances[sample] += 1 / len(every)
    return chances


def needed(one: tuple[int, ...], other: tuple[int, ...], fanout: int, epsilon: float) -> float:
    """The smallest delta for which the odds of no set of samples differ by more than e^epsilon, either way round."""
    p, q = samples(one, fanout), samples(other, fanout)
    return max(sum(max(0.0, a[each] - math.exp(epsilon) * b[each]) for each in {*p, *q}) for a, b in ((p, q), (q, p)))


LENGTHS = [(fanout, size) for fanout in (1, 2, 3, 4) for size in range(1, 8)] + [(5, 5), (5, 6)]


@pytest.mark.parametrize(("fanout", "size"), LENGTHS)
def test_the_pair_holds_for_an_entry_that_is_replaced(fanout: int, size: int) -> None:
    """At any length. It holds with epsilon 0 too; and below delta no epsilon helps: a drawn entry is seen."""
    here = tuple(range(size))
    there = (*here[:-1], 99)
    epsilon, delta = map(float, single_draw(size, fanout))
    for less in (epsilon, 0.0, 50.0):
        assert needed(here, there, fanout, less) == pytest.approx(delta, rel=1e-12)


@pytest.mark.parametrize(("fanout", "size"), LENGTHS)
def test_the_pair_holds_for_an_entry_more_or_less_except_where_the_way_of_drawing_changes(
    fanout: int, size: int
) -> None:
    """Between lists of ``fanout`` and ``fanout + 1`` entries repetitions give the shorter one away, from 3 on."""
    epsilon, delta = map(float, single_draw(size, fanout))
    for other in (size + 1, size - 1):
        if other == 0:
            continue  # a list of one entry has delta 1
        found = needed(tuple(range(size)), tuple(range(other)), fanout, epsilon)
        at_the_switch = {size, other} == {fanout, fanout + 1}
        assert (found <= delta + 1e-12) == (not at_the_switch or fanout < 3)
        if at_the_switch and fanout >= 3:
            assert found >= 1 - math.factorial(fanout) / fanout**fanout - 1e-12


def test_two_draws_of_a_tiny_list_compose_to_the_published_delta() -> None:
    """An entry among four is in one of two samples of two with chance 1 - 1/4."""
    here, there = samples((0, 1, 2, 3), 2), samples((0, 1, 2, 9), 2)
    twice = [{(a, b): x[a] * x[b] for a in x for b in x} for x in (here, there)]
    gap = sum(max(0.0, chance - math.exp(9) * twice[1].get(pair, 0.0)) for pair, chance in twice[0].items())
    assert gap == pytest.approx(edge_ldp(4, 2, 2, slack=0.0)[1], rel=1e-12) == 0.75


# ---- what can never lower a loss

degrees, fanouts, counts = st.integers(1, 5000), st.integers(1, 20), st.integers(0, 10_000)


def nowhere_lower(more: tuple[float, float], less: tuple[float, float]) -> bool:
    return all(a >= b * (1 - 1e-12) for a, b in zip(more, less, strict=True))


@settings(max_examples=200, deadline=None)
@given(degrees, fanouts, counts, st.integers(1, 1000))
def test_another_draw_never_lowers_a_loss(degree: int, fanout: int, draws: int, more: int) -> None:
    assert nowhere_lower(edge_ldp(degree, fanout, draws + more), edge_ldp(degree, fanout, draws))


@settings(max_examples=200, deadline=None)
@given(degrees, degrees, fanouts, counts)
def test_a_shorter_list_never_lowers_a_loss(degree: int, other: int, fanout: int, draws: int) -> None:
    """Of two lists that are drawn from in the same way: with replacement the pair begins again, lower."""
    short, long = sorted((degree, other))
    if (short <= fanout) == (long <= fanout):
        assert nowhere_lower(edge_ldp(short, fanout, draws), edge_ldp(long, fanout, draws))


@settings(max_examples=200, deadline=None)
@given(degrees, fanouts, fanouts, counts)
def test_a_larger_fanout_never_lowers_a_loss(degree: int, fanout: int, other: int, draws: int) -> None:
    small, large = sorted((fanout, other))
    if (degree <= small) == (degree <= large):
        assert nowhere_lower(edge_ldp(degree, large, draws), edge_ldp(degree, small, draws))


def test_the_published_pair_falls_where_the_way_of_drawing_changes() -> None:
    """Which is why lists are counted by the way in which they were drawn from."""
    assert not nowhere_lower(edge_ldp(5, 5, 1), edge_ldp(6, 5, 1))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(degrees, fanouts, counts), min_size=1, max_size=6))
def test_arrays_are_computed_as_numbers_are(lists: list[tuple[int, int, int]]) -> None:
    size, fanout, draws = np.array(lists).T
    pair = single_draw(size, fanout)
    found = composed(pair.epsilon[None], pair.delta[None], draws[None])
    for i, (d, f, k) in enumerate(lists):
        assert (float(found.epsilon[i]), float(found.delta[i])) == pytest.approx(edge_ldp(d, f, k), rel=1e-13)
