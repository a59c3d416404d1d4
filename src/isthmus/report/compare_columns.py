"""The columns of a comparison: what each run scored by footing, sent, waited for and disclosed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from isthmus.audit.findings import attack_text
from isthmus.report.compared_run import SAW, ComparedRun
from isthmus.report.page import Cell
from isthmus.report.run_scores import by_footing
from isthmus.report.score_table import ALIKE, BEST, ScoreTable
from isthmus.runs.text import bytes_text, duration, epsilon_text, metric_label, spread_text

ShownColumn = tuple[str, Callable[[ComparedRun], Cell]]  # title, and a run's cell
WORDS = ("Run", "Data", "Metric")  # titles of columns that hold words
_TONES = {BEST: "best", ALIKE: "alike"}
_FOOTINGS = [words + mean for words in SAW.values() for mean in ("", ", mean over silos", ", pooled")]


def shown_columns(rows: Sequence[ComparedRun], table: ScoreTable, links: dict[str, str]) -> list[ShownColumn]:
    """The columns of the table; data, metric and silos are columns only where runs differ in them.

    Scores of different footing are in different columns. ``links``: where each run's report lies, by name.
    """
    one_metric, one_data = (len({getattr(row, key) for row in rows}) == 1 for key in ("metric", "data"))
    data: list[ShownColumn] = [] if one_data else [("Data", lambda row: Cell(row.data))]
    silos: list[ShownColumn] = [("Silos", lambda row: Cell("merged" if row.merged else str(row.silos)))]
    attack: list[ShownColumn] = [("Attack error", lambda row: Cell(attack_text(row.attack)))]
    metric: list[ShownColumn] = [] if one_metric else [("Metric", lambda row: Cell(metric_label(row.metric)))]
    return [
        ("Run", partial(_name_cell, best=_best_of(table), links=links)),
        *data,
        *metric,
        *([] if _same_silos(rows) else silos),
        *_score_columns(rows, table),
        ("Training", lambda row: _bytes_cell(row.training_bytes)),
        ("Per step", lambda row: _bytes_cell(row.bytes_per_step)),
        *_scoring_columns(rows),
        ("Time", lambda row: Cell(duration(row.seconds))),
        ("Worst ε", lambda row: Cell(epsilon_text(row.epsilon))),
        *(attack if any(row.attack is not None for row in rows) else []),
    ]


def _best_of(table: ScoreTable) -> set[str]:
    """The names of runs that are best in every column that they are compared in."""
    marks: dict[str, set[str]] = {}
    for each in table.judged:
        if each.entry.judged and each.best:
            marks.setdefault(each.entry.at(table.compared), set()).add(each.mark)
    return {name for name, found in marks.items() if found == {BEST}}


def _name_cell(row: ComparedRun, best: set[str], links: dict[str, str]) -> Cell:
    """The name of a run, with a link to its report."""
    return Cell(row.name, tone="best" if row.name in best else "", link=links.get(row.name, ""))


def _same_silos(rows: Sequence[ComparedRun]) -> bool:
    """Whether all runs that are not merged have as many silos."""
    return len({row.silos for row in rows if not row.merged}) <= 1


def _row_scores(row: ComparedRun) -> dict[str, tuple[float, float | None]]:
    """The test scores of a run by footing, each with its deviation over seeds."""
    ways = [
        (
            saw,
            None if each.test is None else (each.test, each.deviation),
            None if each.pooled is None else (each.pooled, None),
        )
        for saw, each in row.tests.items()
    ]
    return by_footing(ways, row.metric, row.average, row.merged)


def _score_columns(rows: Sequence[ComparedRun], table: ScoreTable) -> list[ShownColumn]:
    """A column of test scores for each footing; of runs of older versions, which tell none, one of all."""
    each = {row.name: _row_scores(row) for row in rows}
    seen = [footing for footing in _FOOTINGS if any(footing in scores for scores in each.values())]
    if not seen:
        return [("Test", lambda row: Cell(spread_text(row.metric, row.test, row.deviation)))]
    marks = {(e.entry.measure, e.entry.at(table.compared)): e.mark for e in table.judged}
    return [
        (footing[0].upper() + footing[1:], partial(_score_cell, scores=each, marks=marks, footing=footing))
        for footing in seen
    ]


def _score_cell(
    row: ComparedRun,
    scores: dict[str, dict[str, tuple[float, float | None]]],
    marks: dict[tuple[str, str], str],
    footing: str,
) -> Cell:
    """A run's score of a footing, as far as it has one, with its mark."""
    found = scores[row.name].get(footing)
    if found is None:
        return Cell("–")
    mark = marks.get((footing, row.name), "")
    return Cell(spread_text(row.metric, *found), mark, _TONES.get(mark, ""))


def _scoring_columns(rows: Sequence[ComparedRun]) -> list[ShownColumn]:
    """Columns of what crosses when the test split is scored once, for ways of scoring that send rows."""
    return [
        (f"Scoring {SAW[saw]}", partial(_scoring_cell, saw=saw))
        for saw in ("trained", "across")
        if any(saw in row.tests for row in rows)
    ]


def _scoring_cell(row: ComparedRun, saw: str) -> Cell:
    """What crosses in one scoring."""
    return _bytes_cell(row.tests[saw].bytes if saw in row.tests and not row.merged else None)


def _bytes_cell(size: float | None) -> Cell:
    """A number of bytes; a dash where nothing is counted."""
    return Cell("–" if size is None else bytes_text(size))
