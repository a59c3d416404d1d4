"""The findings of a study as a table of scores, which is written as CSV, LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from isthmus.report.fitting import FittingTable
from isthmus.report.page import Cell, CellRow, table
from isthmus.report.pivot import TableLayout, blocks, read_layout, usual_layout
from isthmus.report.run_scores import mean_is_pooled, scores_by_footing
from isthmus.report.score_table import ALIKE, BEST, JudgedEntry, ScoreEntry, ScoreTable
from isthmus.report.table_files import cell_text, marked_text, table_files
from isthmus.runs.text import metric_label
from isthmus.studies.choice import chosen_lines, kept_axes, validation_table
from isthmus.studies.results import Findings, RowResult
from isthmus.studies.study import Study, StudyColumn

_ROW = "row"  # the one key of a table that is no grid


def keys_of(study: Study) -> tuple[str, ...]:
    """The keys of a study's table: the axes of a grid whose values are not chosen, or the rows of a paper's table."""
    return kept_axes(study) or (_ROW,)


def layout_of(study: Study) -> TableLayout | None:
    """The layout that was asked for; None where none was. Raises for a key that the study does not have."""
    return read_layout(study.pivot, keys_of(study)) if study.pivot else None


def score_table(findings: Findings) -> ScoreTable:
    """The table of a study: every score by its footing, and every other column as it is; of rows that were chosen."""
    study, keys = findings.study, keys_of(findings.study)
    lines, notes = chosen_lines(findings) if study.chosen else (list(findings.lines), [])
    entries = [entry for line in lines for entry in _entries(study, line)]
    metrics = {str(metrics["metric"]) for line in lines for metrics in line.runs if "metric" in metrics}
    named = [column.metric for column in study.columns if column.scores]
    own = study.axes and not any(named) and len(metrics) == 1  # scores are those that the runs are known by
    measure = f"test {metric_label(metrics.pop())}, %" if own else study.measure
    return ScoreTable(study.title, measure, keys, keys[-1], tuple(entries), tuple(notes))


def _merged(line: RowResult) -> bool:
    """Whether the runs of a row had all data in one place."""
    return any(metrics.get("merged") for metrics in line.runs)


def _entries(study: Study, line: RowResult) -> Iterator[ScoreEntry]:
    """The entries of a row: scores, other columns, and what the paper has."""
    place = {axis: line.row.at[axis] for axis in kept_axes(study)} or {_ROW: line.row.label}
    grid = {column.metric: column for column in study.columns if column.scores and study.axes}
    for column in study.columns:
        if not column.scores or not grid:
            yield from _plain(line, column, place)
        if (paper := line.row.paper.get(column.label)) is not None:
            yield ScoreEntry(place, f"{column.label}, paper", {}, score=False, given=(paper.mean, paper.std))
    for metric, column in grid.items():
        yield from _by_footing(line, place, metric, column.scale)


def _plain(line: RowResult, column: StudyColumn, place: dict[str, str]) -> Iterator[ScoreEntry]:
    """A column as it is read; pooled scores, such as those of merged runs, have a column of their own."""
    means, pooled = dict[int, float](), dict[int, float]()
    for seed, value, metrics in zip(line.seeds, line.cells[column.label].runs, line.runs, strict=True):
        metric = column.metric or str(metrics.get("metric", ""))
        alike = not column.scores or mean_is_pooled(metric, str(metrics.get("average", "")))
        merged = bool(metrics.get("merged"))
        together = None if alike else value if merged else column.pooled(metrics)
        means |= {seed: value} if value is not None and (alike or not merged) else {}
        pooled |= {seed: together} if together is not None else {}
    yield ScoreEntry(place, column.label, means, column.scores, rival=not _merged(line))
    if pooled:
        yield ScoreEntry(place, f"{column.label}, pooled", pooled, column.scores, rival=not _merged(line))


def _by_footing(line: RowResult, place: dict[str, str], metric: str, scale: float) -> Iterator[ScoreEntry]:
    """The scores of a row in a grid, an entry for each footing."""
    found: dict[str, dict[int, float]] = {}
    for seed, metrics in zip(line.seeds, line.runs, strict=True):
        for footing, value in scores_by_footing(metrics, metric or str(metrics["metric"])).items():
            found.setdefault(footing, {})[seed] = scale * value
    for footing, values in found.items():
        yield ScoreEntry(place, footing, values, rival=not _merged(line))


def paper_files(findings: Findings) -> dict[str, bytes]:
    """The contents of ``table.csv``, ``.tex`` and ``.md``, and of ``validation.*`` where validation chose settings."""
    found = score_table(findings)
    files = table_files(found, layout_of(findings.study) or usual_layout(found))
    if findings.study.chosen:
        tried = validation_table(findings)
        files |= table_files(tried, usual_layout(tried), "validation")
    return files


def paper_section(findings: Findings) -> str:
    """The section of the study's page that shows these tables, with their marks."""
    found = score_table(findings)
    shown = _section("Table for a paper", found, layout_of(findings.study) or usual_layout(found), "table")
    if not findings.study.chosen:
        return shown
    tried = validation_table(findings)
    return shown + _section("What validation chose from", tried, usual_layout(tried), "validation")


def chosen_tables(findings: Findings) -> list[FittingTable]:
    """For the terminal: validation scores of all settings, and the test scores of those that were chosen."""
    told = []
    for found in (validation_table(findings), score_table(findings)):
        for block in blocks(found, usual_layout(found)):
            lines = [
                [*names, *(marked_text(block.cells.get((names, at))) for at in block.columns)] for names in block.rows
            ]
            title = ", ".join(filter(None, (found.title, block.title)))
            told.append(
                FittingTable(title, block.column_titles, lines, block.heads, found.caption(block.judged, "*", "="))
            )
    return told


def _section(title: str, found: ScoreTable, layout: TableLayout, name: str) -> str:
    """A section of the page: the tables of a layout, and the files that have them."""
    parts = []
    for block in blocks(found, layout):
        rows: list[CellRow] = [
            [*names, *(_cell(block.cells.get((names, column))) for column in block.columns)] for names in block.rows
        ]
        head = f"<h3>{escape(block.title)}</h3>" if block.title else ""
        parts.append(head + table(block.column_titles, rows, found.caption(block.judged), len(block.heads)))
    where = f"<p>As {name}.csv, {name}.tex (booktabs) and {name}.md beside this page.</p>"
    return f"<h2>{escape(title)}</h2>{where}{''.join(parts)}" if parts else ""


def _cell(each: JudgedEntry | None) -> Cell:
    """A cell with its mark, and its test on hover."""
    if each is None:
        return Cell("–")
    tone = {BEST: "best", ALIKE: "alike"}.get(each.mark, "")
    told = f"{each.mark}; p = {each.student:.3g} after Holm, against {each.best}" if each.student is not None else ""
    return Cell(cell_text(each), told, tone)
