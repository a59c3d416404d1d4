"""Paired tests give what slow formulas give, written out by hand; marks follow from them."""

import math
import random
from itertools import product
from statistics import fmean, stdev

import pytest

from isthmus.report.paired_tests import holm, paired_test
from isthmus.report.score_table import ALIKE, BEST, UNTESTED, WORSE, ScoreEntry, ScoreTable


def slow_student(apart: list[float]) -> float:
    """Two-sided p of a mean of 0: the area of Student's density beyond |t|, by Simpson's rule on its angle.

    With x = sqrt(v) tan(a) the density of v degrees of freedom becomes cos(a)^(v - 1), up to a constant.
    """
    v = len(apart) - 1
    t = abs(fmean(apart)) / (stdev(apart) / math.sqrt(len(apart)))

    def area(start: float, end: float, parts: int = 20_000) -> float:
        at = [start + (end - start) * i / parts for i in range(parts + 1)]
        values = [math.cos(a) ** (v - 1) for a in at]
        return (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2])) * (end - start) / parts / 3

    return area(math.atan(t / math.sqrt(v)), math.pi / 2) / area(0.0, math.pi / 2)


def slow_wilcoxon(apart: list[float]) -> float:
    """Two-sided p: the share of all sign patterns whose sum of positive ranks is as far from the middle."""
    ranks = [1 + sum(abs(b) < abs(a) for b in apart) for a in apart]
    middle = sum(ranks) / 2
    found = abs(sum(rank for rank, a in zip(ranks, apart, strict=True) if a > 0) - middle)
    sums = [sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in product((0, 1), repeat=len(apart))]
    return sum(abs(each - middle) >= found - 1e-9 for each in sums) / len(sums)


def slow_holm(values: list[float]) -> list[float]:
    """Each p times the number of those not below it in order, and never less than one before it."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    scaled = [min(1.0, (len(values) - rank) * values[place]) for rank, place in enumerate(order)]
    return [max(scaled[: order.index(place) + 1]) for place in range(len(values))]


@pytest.mark.parametrize("seeds", [2, 3, 5, 6, 9, 12])
def test_p_values_are_those_of_slow_formulas(seeds: int) -> None:
    draw = random.Random(seeds)
    ours = {seed: draw.gauss(80.3, 1.0) for seed in range(seeds)}
    theirs = {seed: draw.gauss(80.0, 1.0) for seed in range(seeds)}
    apart = [ours[seed] - theirs[seed] for seed in range(seeds)]
    found = paired_test(ours, theirs)
    assert found is not None and found.seeds == seeds and found.mean == pytest.approx(fmean(apart), rel=1e-12)
    assert found.student == pytest.approx(slow_student(apart), rel=1e-7)
    assert found.wilcoxon == (None if seeds < 6 else pytest.approx(slow_wilcoxon(apart), rel=1e-10))


def test_tests_pair_by_seed_and_say_where_they_do_not_apply() -> None:
    ours = {0: 1.0, 1: 2.0, 2: 4.0, 7: 99.0}
    found = paired_test(ours, {2: 3.0, 1: 0.0, 0: 0.5, 8: -99.0})
    assert found is not None and found.seeds == 3
    assert found.student == pytest.approx(slow_student([0.5, 2.0, 1.0]), rel=1e-7)
    assert paired_test({0: 1.0}, {1: 1.0}) is None
    single = paired_test({0: 1.0}, {0: 2.0})
    assert single is not None and single.student is None and single.mean == -1.0
    equal = paired_test({0: 0.1 + 0.2, 1: 5.0}, {0: 0.3, 1: 5.0})
    assert equal is not None and equal.student == 1.0  # differences of rounding are none
    shifted = paired_test({0: 1.3, 1: 2.3, 2: 3.3}, {0: 1.0, 1: 2.0, 2: 3.0})
    assert shifted is not None and shifted.student is None  # no spread to measure the difference by
    tied = paired_test(dict(enumerate([1.0, 1, 1, 1, 1, -1, 2])), dict.fromkeys(range(7), 0.0))
    assert tied is not None and tied.wilcoxon is None and tied.student is not None


def test_holm_is_its_definition() -> None:
    draw = random.Random(3)
    for count in (1, 2, 5, 9):
        values = [draw.random() ** 3 for _ in range(count)]
        assert holm(values) == pytest.approx(slow_holm(values))
    assert holm([0.01, None, 0.04]) == [0.02, None, 0.04]  # who is not tested does not count
    assert holm([0.03, 0.02]) == [0.04, 0.04] and holm([]) == []


def entry(name: str, values: list[float], place: str = "a", **more: object) -> ScoreEntry:
    at = {"split": place, "method": name}
    return ScoreEntry(at, str(more.pop("measure", "across")), dict(enumerate(values)), **more)  # type: ignore[arg-type]


def marks(*entries: ScoreEntry) -> dict[tuple[str, str], str]:
    table = ScoreTable("T", "test accuracy, %", ("split", "method"), "method", entries)
    return {(each.entry.place["split"], each.entry.place["method"]): each.mark for each in table.judged}


TOP = [90.0, 91.0, 92.0, 90.5, 91.5]
NEAR = [90.2, 90.6, 92.1, 90.1, 91.6]
FAR = [80.0, 81.5, 82.0, 80.2, 81.7]


def test_the_best_and_what_cannot_be_told_from_it_are_marked() -> None:
    assert marks(entry("x", FAR), entry("y", TOP), entry("z", NEAR)) == {
        ("a", "x"): WORSE,
        ("a", "y"): BEST,
        ("a", "z"): ALIKE,
    }
    assert marks(entry("x", TOP), entry("y", TOP[::-1])) == {("a", "x"): BEST, ("a", "y"): BEST}  # equal means
    assert set(marks(entry("x", [80.0]), entry("y", [90.0])).values()) == {BEST, UNTESTED}
    assert set(marks(entry("x", TOP)).values()) == {UNTESTED}  # alone, it is best of nothing


def test_places_footings_and_grounds_are_compared_apart() -> None:
    assert marks(entry("x", TOP), entry("y", FAR), entry("x", FAR, "b"), entry("y", TOP, "b")) == {
        ("a", "x"): BEST,
        ("a", "y"): WORSE,
        ("b", "x"): WORSE,
        ("b", "y"): BEST,
    }
    for unlike in ({"measure": "own edges"}, {"ground": "other data"}, {"rival": False}, {"score": False}):
        assert set(marks(entry("x", TOP, **unlike), entry("y", FAR)).values()) == {UNTESTED}


def test_correction_counts_the_comparisons_of_one_place() -> None:
    """A difference that is told alone is not told among many: the same p, times their number."""
    near = [89.2, 90.0, 91.5, 89.6, 90.9]
    alone = marks(entry("top", TOP), entry("near", near))
    noise = [entry(f"m{i}", [89.0 + 3 * ((i + s) % 2) for s in range(5)]) for i in range(150)]
    assert alone["a", "near"] == WORSE and marks(entry("top", TOP), entry("near", near), *noise)["a", "near"] == ALIKE
