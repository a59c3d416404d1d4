"""Whether two methods differ, by paired tests on the seeds that both have, corrected for several comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEVEL = 0.05  # a difference with a corrected p-value below this is told
FEWEST_SIGNED = 6  # differences with which Wilcoxon's two-sided p-value can fall below LEVEL: 2 / 2**6
_FEWEST_TIED = 10  # differences from which its normal approximation serves, where sizes tie
_ROUNDING = 1e-12  # a spread below this share of the largest value is rounding


@dataclass(frozen=True)
class PairedTest:
    """The mean of paired differences, and the two-sided p-values of Student's t-test and of Wilcoxon's signed ranks.

    A p-value is None where its test does not apply: Student's needs two seeds and differences that are not all alike,
    Wilcoxon's six differences that are not 0 (ten, if sizes tie).
    """

    mean: float
    seeds: int
    student: float | None
    wilcoxon: float | None


def paired_test(ours: Mapping[int, float], theirs: Mapping[int, float]) -> PairedTest | None:
    """The tests of ``ours`` minus ``theirs``, values by seed, over common seeds; None where there are none."""
    common = [seed for seed in ours if seed in theirs]
    if not common:
        return None
    apart = [ours[seed] - theirs[seed] for seed in common]
    rounding = _ROUNDING * max(1.0, *(abs(side[seed]) for seed in common for side in (ours, theirs)))
    apart = [0.0 if abs(each) <= rounding else each for each in apart]
    return PairedTest(fmean(apart), len(apart), _student(apart, rounding), _wilcoxon(apart))


def _student(apart: Sequence[float], rounding: float) -> float | None:
    """The p-value of Student's t-test of a mean of 0; 1 where all differences are 0."""
    from scipy.stats import ttest_1samp

    if len(apart) < 2:
        return None
    if not any(apart):
        return 1.0
    return None if stdev(apart) <= rounding else float(ttest_1samp(apart, 0.0).pvalue)


def _wilcoxon(apart: Sequence[float]) -> float | None:
    """The p-value of Wilcoxon's signed-rank test of the differences that are not 0."""
    from scipy.stats import wilcoxon

    signed = [each for each in apart if each]
    tied = len({abs(each) for each in signed}) < len(signed)
    if len(signed) < (_FEWEST_TIED if tied else FEWEST_SIGNED):
        return None
    return float(wilcoxon(signed, method="approx" if tied else "exact").pvalue)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P-values of one family after Holm's correction; None stays None, and does not count as a comparison."""
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    so_far = 0.0
    for rank, (value, place) in enumerate(known):
        so_far = max(so_far, min(1.0, (len(known) - rank) * value))
        corrected[place] = so_far
    return corrected
