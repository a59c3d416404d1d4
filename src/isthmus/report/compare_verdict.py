"""A comparison in one or two sentences: which run is best, which cannot be told from it, and at what price."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.report.compared_run import ComparedRun
from isthmus.report.score_table import ALIKE, BEST, UNTESTED, WORSE, JudgedEntry, ScoreTable
from isthmus.runs.text import bytes_text, list_names, score_text


def common_footing(table: ScoreTable, names: Sequence[str]) -> str:
    """What scores of all the runs named have seen: of several footings the one that saw most; else empty."""
    found: dict[str, set[str]] = {footing: set() for footing in table.measures}
    for entry in table.entries:
        if entry.judged:
            found[entry.measure].add(entry.at(table.compared))
    return next((footing for footing in reversed(found) if found[footing] == set(names)), "")


def verdict(table: ScoreTable, rows: Sequence[ComparedRun]) -> str:
    """What the table of runs says; why it says nothing, where runs do not compare."""
    rivals = [row for row in rows if not row.merged]
    if len(rivals) < 2:
        return "There is nothing to choose between: compare two runs or more that keep data apart."
    footing = common_footing(table, [row.name for row in rivals])
    judged = [each for each in table.judged if each.entry.judged and each.entry.measure == footing]
    if not footing or len({each.entry.ground for each in judged}) > 1:
        why = "they saw or scored different things, or read different data" if footing else "no column has all of them"
        return f"No run is called best, since {why}."
    best = [each for each in judged if each.mark == BEST]
    return " ".join(filter(None, [_best(table, best, footing, rows), _others(table, judged, rows), _merged(rows)]))


def _best(table: ScoreTable, best: Sequence[JudgedEntry], footing: str, rows: Sequence[ComparedRun]) -> str:
    """The sentence on the best runs."""
    names = [each.entry.at(table.compared) for each in best]
    each = " each" if len(names) > 1 else ""
    text = _score(rows[0].metric, best[0].entry.mean)
    return f"By scores {_seen(footing)}, {list_names(names)} {'are' if each else 'is'} best: {text}{each}."


def _seen(footing: str) -> str:
    """A footing in a sentence."""
    return f"along {footing}" if footing.startswith("own") else footing


def _others(table: ScoreTable, judged: Sequence[JudgedEntry], rows: Sequence[ComparedRun]) -> str:
    """The sentences on runs that are not the best: what tests tell of them, and which were not tested."""
    untested = _marked(table, judged, UNTESTED)
    if not untested:
        return _tested(table, judged, rows)
    if not any(each.mark in (ALIKE, WORSE) for each in judged):
        return "Whether others differ by more than chance is not told without several seeds (--seeds 5)."
    are = "is" if len(untested) == 1 else "are"
    lacking = f"{list_names(untested)} {are} not tested, which takes two seeds in common and differences that vary."
    return f"{_tested(table, judged, rows)} {lacking}"


def _tested(table: ScoreTable, judged: Sequence[JudgedEntry], rows: Sequence[ComparedRun]) -> str:
    """The sentence on runs that cannot be told from the best, and on the cheapest of them."""
    alike, marks = _marked(table, judged, ALIKE), {each.mark for each in judged}
    if not alike:
        whom = "others that were tested" if UNTESTED in marks else "others"
        return f"All {whom} are worse, by tests paired by seed." if len(marks) > 1 else ""
    worst = [each.student for each in judged if each.mark == ALIKE and each.student is not None]
    said = f"{list_names(alike)} cannot be told from the best (p = {min(worst):.2g} or more)."
    best = _marked(table, judged, BEST)
    sent = {row.name: row.training_bytes for row in rows if row.training_bytes is not None}
    costs = {name: sent[name] for name in [*best, *alike] if name in sent}
    cheap = min(costs, key=lambda name: costs[name], default="")
    if cheap in alike and costs.get(best[0], 0) > costs[cheap]:
        said += f" Of these {cheap} sends least: {bytes_text(costs[cheap])}, {best[0]} {bytes_text(costs[best[0]])}."
    return said


def _marked(table: ScoreTable, judged: Sequence[JudgedEntry], mark: str) -> list[str]:
    """The names of runs with a mark."""
    return [each.entry.at(table.compared) for each in judged if each.mark == mark]


def _merged(rows: Sequence[ComparedRun]) -> str:
    """The sentence on runs that had all data in one place."""
    known = [f"{row.name} {score_text(row.metric, row.test)}" for row in rows if row.merged and row.test is not None]
    return f"With all data in one place: {', '.join(known)}." if known else ""


def _score(metric: str, value: float | None) -> str:
    """A score of the table, whose shares are in per cent."""
    text = score_text(metric, value)
    return score_text(metric, None if value is None else value / 100.0) if text.endswith("%") else text
