"""A grid's findings as tables: for each place the rows of the compared axis, and how far they are from one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from isthmus.report.compared_run import SAW, by_count
from isthmus.report.fitting import FittingTable
from isthmus.runs.text import count_text
from isthmus.studies.paired import Difference, base_of, gain, groups, paired
from isthmus.studies.results import Findings, RowResult
from isthmus.studies.study import Study
from isthmus.studies.text import difference_text, mean_text, value_text


def difference_of(findings: Findings, line: RowResult, column: str) -> Difference | None:
    """A row minus the row that it is compared with, seed by seed; None for that row itself."""
    base = base_of(findings, line.row)
    return None if base is None or base is line or saw_more(line, column) else paired(line, base, column)


def saw_more(line: RowResult, column: str) -> bool:
    """Whether a row saw all edges in a column of scores along own edges, because its data lies in one place."""
    return column == SAW["own"] and any(metrics.get("merged") for metrics in line.runs)


def difference_cell(found: Difference | None) -> str:
    """A paired difference as text, with half the width of its interval: ``+1.2 ± 0.4``."""
    if found is None:
        return "–"
    half = "" if found.half is None else f" ± {found.half:.2f}"
    return f"{found.mean:+.2f}{half}".replace("-", "−")


def gain_cell(found: float | None) -> str:
    """A gain in per cent as text."""
    return "–" if found is None else f"{round(found, 1) or 0.0:.1f}".replace("-", "−")


def published(study: Study) -> list[str]:
    """The labels of columns that the paper has values for."""
    return [column.label for column in study.columns if any(column.label in row.paper for row in study.rows)]


def heads(findings: Findings) -> list[str]:
    """The titles of a place's table: the compared axis, every column, the paper's values, and differences of scores."""
    study, names = findings.study, published(findings.study)
    before = [f"{name}, " if len(names) > 1 else "" for name in names]  # one column needs no name
    paper = [f"{each}{end}" for each in before for end in ("paper", "− paper")]
    apart = [f"{name} − {study.against}" for name in study.scores] if study.against else []
    gained = ["gain, %"] if study.gain_from else []
    return [study.axes[-1], *(column.label for column in study.columns), *paper, *apart, *gained]


def cells(findings: Findings, line: RowResult) -> list[str]:
    """The texts of one row of a place's table."""
    study, name = findings.study, line.row.at[findings.study.axes[-1]]
    values = [
        value_text(None if saw_more(line, column.label) else line.cells[column.label].ours)
        if column.scores
        else mean_text(line.cells[column.label])
        for column in study.columns
    ]
    known = [line.cells[label] for label in published(study)]
    paper = [text for cell in known for text in (value_text(cell.paper), difference_text(cell.difference))]
    apart = [difference_cell(difference_of(findings, line, column)) for column in study.scores] if study.against else []
    gained = [gain_cell(gain(findings, line.row))] if study.gain_from else []
    return [name, *values, *paper, *apart, *gained]


def grid_tables(findings: Findings) -> list[FittingTable]:
    """For each place of the grid with runs a table for the terminal; the last one says what the numbers are."""
    tables, places = [], groups(findings)
    begun = {place: lines for place, lines in places.items() if any(line.seeds or line.error for line in lines)}
    for place, lines in (begun or places).items():
        title, shown = " / ".join(place) or findings.study.title, [cells(findings, line) for line in lines]
        tables.append(FittingTable(title, heads(findings), shown, heads(findings)[:1], left_out(findings, lines)))
    waiting = [" / ".join(place) for place in places if begun and place not in begun]
    missing = f"No runs yet: {', '.join(waiting)}." if waiting else ""
    last = " ".join(filter(None, (tables[-1].caption, missing, caption(findings))))
    return [*tables[:-1], replace(tables[-1], caption=last)]


def left_out(findings: Findings, lines: Sequence[RowResult]) -> str:
    """Which rows of a place are not run, and why; and how many nodes or edges each scored, where they differ."""
    axis, reasons = findings.study.axes[-1], [line.row.left_out for line in lines if line.row.left_out]
    named = {why: [line.row.at[axis] for line in lines if line.row.left_out == why] for why in dict.fromkeys(reasons)}
    reasons_told = [f"{', '.join(names)}: {why}." for why, names in named.items()]
    return " ".join(filter(None, (*reasons_told, unlike_counts(lines, axis))))


def unlike_counts(lines: Sequence[RowResult], axis: str) -> str:
    """A sentence where rows of one place scored different numbers of nodes or edges; empty where all scored as many."""
    counts = {
        f"{line.row.at[axis]} ({SAW[way['sees']]})": sum(way["seeds_scored"])
        for line in lines
        for metrics in line.runs[:1]
        for way in (metrics.get("scored") or {}).values()
    }
    return "" if len(set(counts.values())) < 2 else f"Nodes or edges scored: {by_count(counts)}."


def caption(findings: Findings) -> str:
    """The caption of a grid's tables: what their numbers are."""
    study = findings.study
    seeds = count_text(findings.facts["seeds"], "seed")
    apart = f" Differences to {study.against} are paired by seed, ± half a 95 % interval." if study.against else ""
    paper = f" Paper: {study.source}." if published(study) else ""
    paper += "".join(f" {sentence}" for sentence in findings.unlike)
    return f"{study.measure}: mean over {seeds} ± deviation. MB: megabytes that cross, of all parties.{apart}{paper}"
