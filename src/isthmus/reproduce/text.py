"""A study's numbers as people read them, and its table for the terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from isthmus.reproduce.results import Findings
from isthmus.reproduce.study import Value

_COLOURS = {"bad": "red", "good": "green", "": ""}
_FAR = 3.0  # points from the paper's value that a reader should see


def value_text(value: Value | None) -> str:
    """``92.24 ± 0.31``; a dash for nothing."""
    if value is None:
        return "–"
    return f"{value.mean:.2f}" + (f" ± {value.std:.2f}" if value.std is not None else "")


def difference_text(value: float | None) -> str:
    """A difference with its sign."""
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def tone(value: float | None) -> str:
    """``bad`` for a value far below the paper's, ``good`` for one far above."""
    return "" if value is None or abs(value) <= _FAR else "good" if value > 0 else "bad"


def study_table(findings: Findings) -> Table:
    """Row | paper | ours | difference, for a terminal of 100 columns."""
    study = findings.study
    table = Table(title=Text(study.title), caption=Text(_caption(findings)))
    table.title_justify = table.caption_justify = "left"
    table.add_column("row", overflow="fold", max_width=44)
    for name in ("paper", f"ours, {study.headline.label}", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in findings.lines:
        cell = findings.headline(line)
        ours = value_text(cell.ours)
        ours = ours if cell.ours is None or len(line.seeds) == findings.facts["seeds"] else f"{ours} (unfinished)"
        table.add_row(
            Text(line.row.label),
            value_text(cell.paper),
            "failed" if line.error and cell.ours is None else ours,
            Text(difference_text(cell.difference), style=_COLOURS[tone(cell.difference)]),
        )
    return table


def _caption(findings: Findings) -> str:
    pairs, swapped = findings.order()
    order = f" {pairs - len(swapped)} of {pairs} pairs of rows stand in the paper's order." if pairs else ""
    return f"{findings.study.measure}. {findings.study.source}.{order}"
