"""The findings of a study as a table of scores, which is written as CSV, LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from isthmus.report.page import Cell, CellRow, table
from isthmus.report.pivot import TableLayout, blocks, read_layout, usual_layout
from isthmus.report.run_scores import scores_by_footing
from isthmus.report.score_table import ALIKE, BEST, JudgedEntry, ScoreEntry, ScoreTable
from isthmus.report.table_files import cell_text, table_files
from isthmus.studies.results import Findings, RowResult
from isthmus.studies.study import Study, StudyColumn

_ROW = "row"  # the one key of a table that is no grid


def keys_of(study: Study) -> tuple[str, ...]:
    """The keys of a study's table: the axes of a grid, or its rows."""
    return study.axes or (_ROW,)


def layout_of(study: Study) -> TableLayout | None:
    """The layout that was asked for; None where none was. Raises for a key that the study does not have."""
    return read_layout(study.pivot, keys_of(study)) if study.pivot else None


def score_table(findings: Findings) -> ScoreTable:
    """The table of a study: every score by its footing, and every other column as it is."""
    study = findings.study
    entries = [entry for line in findings.lines for entry in _entries(study, line)]
    return ScoreTable(study.title, study.measure, keys_of(study), keys_of(study)[-1], tuple(entries))


def _merged(line: RowResult) -> bool:
    """Whether the runs of a row had all data in one place."""
    return any(metrics.get("merged") for metrics in line.runs)


def _entries(study: Study, line: RowResult) -> Iterator[ScoreEntry]:
    """The entries of a row: scores, other columns, and what the paper has."""
    place = dict(line.row.at) or {_ROW: line.row.label}
    grid = {column.metric: column for column in study.columns if column.metric and study.axes}
    for column in study.columns:
        if not column.scores or not grid:
            yield _plain(line, column, place)
        if (paper := line.row.paper.get(column.label)) is not None:
            yield ScoreEntry(place, f"{column.label}, paper", {}, score=False, given=(paper.mean, paper.std))
    for metric, column in grid.items():
        yield from _by_footing(line, place, metric, column.scale)


def _plain(line: RowResult, column: StudyColumn, place: dict[str, str]) -> ScoreEntry:
    """A column that is shown as it is read."""
    read = zip(line.seeds, line.cells[column.label].runs, strict=True)
    values = {seed: value for seed, value in read if value is not None}
    return ScoreEntry(place, column.label, values, column.scores, rival=not _merged(line))


def _by_footing(line: RowResult, place: dict[str, str], metric: str, scale: float) -> Iterator[ScoreEntry]:
    """The scores of a row in a grid, an entry for each footing."""
    found: dict[str, dict[int, float]] = {}
    for seed, metrics in zip(line.seeds, line.runs, strict=True):
        for footing, value in scores_by_footing(metrics, metric).items():
            found.setdefault(footing, {})[seed] = scale * value
    for footing, values in found.items():
        yield ScoreEntry(place, footing, values, rival=not _merged(line))


def paper_files(findings: Findings) -> dict[str, bytes]:
    """The contents of ``table.csv``, ``table.tex`` and ``table.md``."""
    found = score_table(findings)
    return table_files(found, layout_of(findings.study) or usual_layout(found))


def paper_section(findings: Findings) -> str:
    """The section of the study's page that shows these tables, with their marks."""
    found = score_table(findings)
    parts = []
    for block in blocks(found, layout_of(findings.study) or usual_layout(found)):
        rows: list[CellRow] = [
            [*names, *(_cell(block.cells.get((names, column))) for column in block.columns)] for names in block.rows
        ]
        title = f"<h3>{escape(block.title)}</h3>" if block.title else ""
        parts.append(title + table(block.column_titles, rows, found.caption(block.judged), len(block.heads)))
    where = "<p>As table.csv, table.tex (booktabs) and table.md beside this page.</p>"
    return f"<h2>Table for a paper</h2>{where}{''.join(parts)}" if parts else ""


def _cell(each: JudgedEntry | None) -> Cell:
    """A cell with its mark, and its test on hover."""
    if each is None:
        return Cell("–")
    tone = {BEST: "best", ALIKE: "alike"}.get(each.mark, "")
    told = f"{each.mark}; p = {each.student:.3g} after Holm, against {each.best}" if each.student is not None else ""
    return Cell(cell_text(each), told, tone)
