"""The numbers of a study as text, and its tables for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from isthmus.report.fitting import FittingTable
from isthmus.runs.text import count_text, duration
from isthmus.studies.results import ComparedValue, Findings
from isthmus.studies.study import Value
from isthmus.studies.tuning import Tuned, settings_text

_COLOURS = {"bad": "red", "good": "green", "": ""}
_FAR = 3.0  # points; a value farther from the paper's is coloured


def value_text(value: Value | None) -> str:
    """A value as ``92.24 ± 0.31``; a dash for None."""
    if value is None:
        return "–"
    return f"{value.mean:.2f}" + (f" ± {value.std:.2f}" if value.std is not None else "")


def mean_text(cell: ComparedValue) -> str:
    """Our mean, and the number of runs it is of where some have no number: ``2,881 (2/3)``."""
    if cell.ours is None:
        return "–"
    mean = cell.ours.mean
    return (f"{mean:,.0f}" if abs(mean) >= 1000 else f"{mean:.2f}") + _some(cell)


def _some(cell: ComparedValue) -> str:
    """`` (2/3)`` where two of three runs have a number; empty where all have one."""
    return f" ({cell.seeds}/{cell.seeds + cell.missing})" if cell.ours and cell.missing else ""


def difference_text(value: float | None) -> str:
    """A difference with its sign."""
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def tone(value: float | None) -> str:
    """``bad`` for a value far below the paper's, ``good`` for one far above."""
    return "" if value is None or abs(value) <= _FAR else "good" if value > 0 else "bad"


def study_tables(findings: Findings) -> list[Table | FittingTable]:
    """The study's table; then, if there are any, a table of further columns and one of settings that rows chose."""
    more = [_beside(findings)] if findings.study.beside else []
    return [study_table(findings), *more, *([tuning_table(findings.tuned)] if findings.tuned else [])]


def _beside(findings: Findings) -> FittingTable:
    """The table of our means in the columns that the study shows beside the headline."""
    names = findings.study.beside
    lines = [[line.row.label, *(mean_text(line.cells[name]) for name in names)] for line in findings.lines]
    some = any(_some(line.cells[name]) for line in findings.lines for name in names)
    caption = "(2/3): the mean of two of three seeds; the others have no value." if some else ""
    return FittingTable("", ("ours", *names), lines, left=("ours",), caption=caption)


def tuning_table(tuned: Tuned) -> Table:
    """The table of tuning: row | chosen setting | its validation score | range of all settings tried."""
    title = f"Chosen by validation score, {count_text(tuned.seeds, 'seed')} for each setting tried"
    table = Table(title=Text(title), title_justify="left")
    for name in ("row", "chosen", "valid", "of"):
        table.add_column(name, overflow="fold", justify="right" if name == "valid" else "left")
    for cells in tuning_lines(tuned):
        table.add_row(*map(Text, cells))
    return table


def tuning_lines(tuned: Tuned) -> list[list[str]]:
    """For each row: label, chosen setting, its validation score in per cent, and the range of all it tried."""
    lines = []
    for label in dict.fromkeys(trial.row.label for trial in tuned.trials):
        trials = [trial for trial in tuned.trials if trial.row.label == label]
        scores = [100 * score for trial in trials if (score := trial.score) is not None]
        chosen = tuned.chosen(trials[0].row)
        span = f", {min(scores):.2f} to {max(scores):.2f}" if scores else ""
        of = f"{len(scores)} of {len(trials)} tried{span}" if len(scores) < len(trials) else f"{len(trials)}{span}"
        lines.append(
            [label, settings_text(chosen.settings) if chosen else "–", f"{max(scores):.2f}" if chosen else "–", of]
        )
    return lines


def study_table(findings: Findings) -> Table:
    """The study's table, row | paper | ours | difference, for a terminal of 100 columns."""
    study = findings.study
    table = Table(title=Text(study.title), caption=Text(_caption(findings)))
    table.title_justify = table.caption_justify = "left"
    table.add_column("row", overflow="fold", max_width=44)
    for name in ("paper", f"ours, {study.headline.label}", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in findings.lines:
        cell = findings.headline(line)
        ours = value_text(cell.ours) + _some(cell)
        ours = ours if cell.ours is None or len(line.seeds) == findings.facts["seeds"] else f"{ours} (unfinished)"
        table.add_row(
            Text(line.row.label),
            value_text(cell.paper),
            "failed" if line.error and cell.ours is None else ours,
            Text(difference_text(cell.difference), style=_COLOURS[tone(cell.difference)]),
        )
    return table


def forecast_table(seconds: dict[str, float], runs: dict[str, int], jobs: int) -> Table:
    """The table of a forecast: runs and time of each row, and the time of the whole study."""
    total = sum(seconds[row] * runs[row] for row in seconds)
    at_once = f", {jobs} at once: {duration(total / jobs)}" if jobs > 1 else ""
    table = Table(caption=Text(f"All {sum(runs.values())} runs, one after the other: {duration(total)}{at_once}."))
    table.caption_justify = "left"
    for name in ("row", "runs", "a run", "all of them"):
        table.add_column(name, justify="left" if name == "row" else "right")
    for row, each in seconds.items():
        table.add_row(Text(row), str(runs[row]), duration(each), duration(each * runs[row]))
    return table


def _caption(findings: Findings) -> str:
    """The caption of the study's table: what is measured, the source, and how far the order agrees."""
    pairs, swapped = findings.order()
    order = f" {pairs - len(swapped)} of {pairs} pairs of rows stand in the paper's order." if pairs else ""
    return f"{findings.study.measure}. {findings.study.source}.{order}"
