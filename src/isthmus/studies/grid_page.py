"""The page of a grid: tables for each place, and a figure of the scores, in one self-contained HTML file."""

from __future__ import annotations

from html import escape
from typing import Any

from isthmus.report import page
from isthmus.report.drawing import GRID, INK, MUTED, SERIES, Chart, drawing
from isthmus.runs.text import count_text
from isthmus.studies.grid_text import caption, cells, heads, left_out
from isthmus.studies.page import study_cautions, tuning_section, ways_to_repeat
from isthmus.studies.paired import groups
from isthmus.studies.results import Findings, RowResult
from isthmus.studies.score_tables import paper_section

_ACROSS = 3  # panels in a line
_FIGURE = "{}, mean and deviation over seeds, in each way of scoring."


def grid_page(findings: Findings) -> str:
    """The whole HTML page."""
    study = findings.study
    lead = f"{study.summary}; {count_text(findings.facts['seeds'], 'seed')}."
    body = [
        f"<h1>{escape(study.title)}</h1><p class='lead'>{escape(lead)}</p>",
        page.box(study_cautions(findings)),
        "" if study.chosen else page.figure(scores(findings), _FIGURE.format(study.measure)),
        study.figure(findings) if study.figure else "",
        "" if study.chosen else _tables(findings),
        paper_section(findings),
        tuning_section(findings),
        ways_to_repeat(findings),
    ]
    return page.page(study.title, "\n".join(body))


def _tables(findings: Findings) -> str:
    """A table for each place of the grid."""
    parts = []
    for place, lines in groups(findings).items():
        rows: list[page.CellRow] = [list(cells(findings, line)) for line in lines]
        title = f"<h2>{escape(' / '.join(place) or findings.study.title)}</h2>"
        parts.append(
            title + page.table(heads(findings), rows, f"{left_out(findings, lines)} {caption(findings)}".strip())
        )
    return "".join(parts)


@drawing
def scores(findings: Findings) -> Chart:
    """A panel for each place: for every row a dot for each way of scoring."""
    every = groups(findings)
    places = {place: group for place, group in every.items() if any(line.seeds for line in group)} or every
    lines, rows = -(-len(places) // _ACROSS), max(len(each) for each in places.values())
    chart = Chart(lines * (0.7 + 0.2 * rows))
    chart.figure.clear()
    for number, (place, group) in enumerate(places.items()):
        axes = chart.figure.add_subplot(lines, min(_ACROSS, len(places)), 1 + number)
        _panel(axes, findings, group, " / ".join(place), named=number % _ACROSS == 0, legend=number == 0)
    return chart


def _panel(axes: Any, findings: Findings, group: list[RowResult], title: str, named: bool, legend: bool) -> None:
    """One panel: rows of the compared axis, a colour for each way of scoring."""
    columns = findings.study.scores
    for number, column in enumerate(columns):
        known = [(place, line.cells[column].ours) for place, line in enumerate(group)]
        found = [(place, value) for place, value in known if value is not None]
        if found:
            at, values = [place for place, _ in found], [value for _, value in found]
            spread = [value.std or 0.0 for value in values]
            look = {"markersize": 4, "elinewidth": 0.9, "linestyle": "none", "color": SERIES[number], "fmt": "o"}
            axes.errorbar([value.mean for value in values], at, xerr=spread, label=column, **look)
    names = [line.row.at[findings.study.axes[-1]] for line in group]
    axes.set_yticks(range(len(names)), names if named else [""] * len(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.tick_params(axis="x", color=MUTED, labelcolor=INK, labelsize=7)
    axes.grid(True, axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(title, loc="left", size=8.5, color=INK)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.12), ncols=len(columns), frameon=False, handletextpad=0.3)
