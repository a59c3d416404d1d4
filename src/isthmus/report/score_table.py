"""Scores of several runs, what each has seen, and which of them are best or cannot be told from the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev

from isthmus.report.paired_tests import LEVEL, PairedTest, holm, paired_test
from isthmus.runs.text import count_text

SCORE = "score"  # the key of what a value measures, beside the keys of its place
SEEN = ("own edges", "as trained", "across", "merged graph", "all nodes, merged graph")  # from less to more
BEST, ALIKE, WORSE, UNTESTED = "best", "not worse", "worse", ""
_TESTED = (
    "{}: cannot be told from the best (Student's t-test, paired by seed, with Holm's correction over all "
    f"comparisons with one best, at {100 * LEVEL:.0f} %)."
)


@dataclass(frozen=True)
class ScoreEntry:
    """The values by seed of one place; ``measure`` says of what, with its footing: ``across, pooled``.

    Of a ``score`` more is better; ``rival`` scores are compared, where they have one ``ground`` besides their measure.
    ``given``: a published mean and deviation, where the values of seeds are not known.
    """

    place: Mapping[str, str]
    measure: str
    values: Mapping[int, float]
    score: bool = True
    rival: bool = True
    ground: str = ""
    given: tuple[float, float | None] | None = None

    @cached_property
    def mean(self) -> float | None:
        """The mean over seeds."""
        known = list(self.values.values())
        return fmean(known) if known else self.given[0] if self.given else None

    @cached_property
    def deviation(self) -> float | None:
        """The deviation over seeds; None of a single one."""
        known = list(self.values.values())
        return stdev(known) if len(known) > 1 else self.given[1] if self.given and not known else None

    def at(self, key: str) -> str:
        """The value of a key of the table: of the place, or what was measured."""
        return self.measure if key == SCORE else self.place[key]

    @property
    def judged(self) -> bool:
        """Whether the entry is compared with others."""
        return self.score and self.rival and bool(self.values)


@dataclass(frozen=True)
class JudgedEntry:
    """An entry beside the best one that it is compared with: mark, test, and p-values after Holm's correction."""

    entry: ScoreEntry
    mark: str = UNTESTED
    best: str = ""  # the name of the best one
    test: PairedTest | None = None
    student: float | None = None
    wilcoxon: float | None = None


@dataclass(frozen=True)
class ScoreTable:
    """All entries of a table, by the names of its keys; ``compared`` is the key along which entries are compared."""

    title: str
    measure: str  # what scores are: test accuracy, %
    keys: tuple[str, ...]
    compared: str
    entries: tuple[ScoreEntry, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def measures(self) -> list[str]:
        """What is measured, in the order of columns: scores by what they saw, then all else."""
        found = {entry.measure: not entry.score for entry in self.entries}
        known = list(found)
        return sorted(found, key=lambda name: (found[name], seen_order(name), known.index(name)))

    @cached_property
    def judged(self) -> tuple[JudgedEntry, ...]:
        """All entries with their marks, in their order."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for number, entry in enumerate(self.entries):
            others = tuple(entry.place[key] for key in self.keys if key != self.compared)
            groups.setdefault((entry.measure, entry.ground, *others), []).append(number)
        found = [JudgedEntry(entry) for entry in self.entries]
        for numbers in groups.values():
            for number, each in zip(numbers, self._judge([self.entries[n] for n in numbers]), strict=True):
                found[number] = each
        return tuple(found)

    def _judge(self, group: Sequence[ScoreEntry]) -> list[JudgedEntry]:
        """Entries that differ in the compared key alone, each against the one with the highest mean."""
        known = [entry for entry in group if entry.judged]
        if len(known) < 2:
            return [JudgedEntry(entry) for entry in group]
        top = max(known, key=lambda entry: entry.mean or 0.0)
        tests = [
            paired_test(entry.values, top.values) if entry.judged and entry is not top else None for entry in group
        ]
        student = holm([test.student if test else None for test in tests])
        wilcoxon = holm([test.wilcoxon if test else None for test in tests])
        found = [
            JudgedEntry(entry, best=top.at(self.compared), test=test, student=one, wilcoxon=other)
            if entry.judged
            else JudgedEntry(entry)
            for entry, test, one, other in zip(group, tests, student, wilcoxon, strict=True)
        ]
        return [replace(each, mark=_mark(each, top)) for each in found]

    def caption(self, shown: Sequence[JudgedEntry], best: str = "Bold", alike: str = "Underlined") -> str:
        """What the numbers of some entries are, which stand in one printed table; and how it marks them."""
        several = any(each.entry.deviation is not None for each in shown if each.entry.values)
        scores = any(each.entry.score for each in shown)
        said = [
            f"{self.measure if scores else 'Mean'}{': mean' * scores}{' ± deviation' * several} over {_seeds(shown)}."
        ]
        if any(each.mark == BEST for each in shown):
            said.append(f"{best}: the best {self.compared}, by its mean.")
            tested = any(each.student is not None for each in shown)
            said.append(
                _TESTED.format(alike) if tested else "Differences are not tested: that takes two seeds that both have."
            )
        apart = dict.fromkeys(
            each.entry.at(self.compared) for each in shown if each.entry.score and not each.entry.rival
        )
        said += [f"All data in one place, and so not compared: {', '.join(apart)}."] if apart else []
        return " ".join([*said, *self.notes])


def seen_order(measure: str) -> int:
    """The place of a score among others by what it saw; a score that does not say stands before all."""
    return next((place for place, saw in enumerate(SEEN, 1) if measure.split(", ")[0] == saw.split(", ")[0]), 0)


def _seeds(shown: Sequence[JudgedEntry]) -> str:
    """Over how many seeds means are, in words."""
    counts = sorted({len(each.entry.values) for each in shown if each.entry.values})
    if not counts:
        return "seeds"
    return ("" if counts[0] == counts[-1] else f"{counts[0]} to ") + count_text(counts[-1], "seed")


def _mark(each: JudgedEntry, top: ScoreEntry) -> str:
    """Best, not worse, worse, or nothing where no test applies."""
    if each.entry is top or (
        each.entry.judged and math.isclose(each.entry.mean or 0.0, top.mean or 0.0, rel_tol=1e-12)
    ):
        return BEST
    if each.student is None:
        return UNTESTED
    return ALIKE if each.student >= LEVEL else WORSE
