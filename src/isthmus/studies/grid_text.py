"""A grid's findings as tables: for each place the rows of the compared axis, and how far they are from one of them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from isthmus.runs.text import count_text
from isthmus.studies.paired import Difference, base_of, groups, paired
from isthmus.studies.results import Findings, RowResult
from isthmus.studies.study import Study
from isthmus.studies.text import difference_text, mean_text, value_text


def difference_of(findings: Findings, line: RowResult, column: str) -> Difference | None:
    """A row minus the row that it is compared with, seed by seed; None for that row itself."""
    base = base_of(findings, line.row)
    return None if base is None or base is line else paired(line, base, column)


def difference_cell(found: Difference | None) -> str:
    """A paired difference as text, with half the width of its interval: ``+1.2 ± 0.4``."""
    if found is None:
        return "–"
    half = "" if found.half is None else f" ± {found.half:.2f}"
    return f"{found.mean:+.2f}{half}".replace("-", "−")


def published(study: Study) -> list[str]:
    """The labels of columns that the paper has values for."""
    return [column.label for column in study.columns if any(column.label in row.paper for row in study.rows)]


def heads(findings: Findings) -> list[str]:
    """The titles of a place's table: the compared axis, every column, the paper's values, and differences of scores."""
    study = findings.study
    paper = [title for name in published(study) for title in (f"{name}, paper", f"{name} − paper")]
    apart = [f"{name} − {study.against}" for name in study.scores] if study.against else []
    return [study.axes[-1], *(column.label for column in study.columns), *paper, *apart]


def cells(findings: Findings, line: RowResult) -> list[str]:
    """The texts of one row of a place's table."""
    study, name = findings.study, line.row.at[findings.study.axes[-1]]
    values = [
        value_text(line.cells[column.label].ours) if column.scores else mean_text(line.cells[column.label])
        for column in study.columns
    ]
    known = [line.cells[label] for label in published(study)]
    paper = [text for cell in known for text in (value_text(cell.paper), difference_text(cell.difference))]
    apart = [difference_cell(difference_of(findings, line, column)) for column in study.scores] if study.against else []
    return [name, *values, *paper, *apart]


def grid_tables(findings: Findings) -> list[Table]:
    """A table for the terminal for each place of the grid."""
    tables = []
    for place, lines in groups(findings).items():
        title = " / ".join(place) or findings.study.title
        table = Table(title=Text(title), title_justify="left", caption_justify="left")
        for number, head in enumerate(heads(findings)):
            table.add_column(head, justify="right" if number else "left", overflow="fold", no_wrap=not number)
        for line in lines:
            table.add_row(*map(Text, cells(findings, line)))
        table.caption = Text(left_out(findings, lines))
        tables.append(table)
    if tables:
        tables[-1].caption = Text(f"{tables[-1].caption} {caption(findings)}".strip())
    return tables


def left_out(findings: Findings, lines: Sequence[RowResult]) -> str:
    """Which rows of a place are not run, and why; empty where all are."""
    axis = findings.study.axes[-1]
    return " ".join(f"{line.row.at[axis]}: {line.row.left_out}." for line in lines if line.row.left_out)


def caption(findings: Findings) -> str:
    """The caption of a grid's tables: what their numbers are."""
    study = findings.study
    seeds = count_text(findings.facts["seeds"], "seed")
    apart = f" Differences to {study.against} are paired by seed, ± half a 95 % interval." if study.against else ""
    paper = f" Paper: {study.source}." if published(study) else ""
    return f"{study.measure}: mean over {seeds} ± deviation. MB: megabytes that cross, of all parties.{apart}{paper}"
