"""Figures of a study: the paper's value beside ours for every row, one panel for each column."""

from __future__ import annotations

import io
from typing import Any

from isthmus.report.drawing import GRID, INK, MUTED, SERIES, Chart, drawing
from isthmus.studies.results import ComparedValue, Findings

OURS, PAPER = SERIES[0], SERIES[1]
_ACROSS = 4  # small panels in a line


@drawing
def beside(findings: Findings) -> Chart:
    """The drawing of all panels for the study's page."""
    chart = Chart(sum(_heights(findings)))
    chart.figure.clear()
    _draw(chart.figure, findings)
    return chart


def plot_files(findings: Findings) -> dict[str, bytes]:
    """The drawing of all panels on white, as the contents of ``plot.png`` and ``plot.svg``."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style = {"font.size": 8.5, "svg.hashsalt": findings.study.name, "svg.fonttype": "none", "text.parse_math": False}
    out = {"plot.png": io.BytesIO(), "plot.svg": io.BytesIO()}
    with rc_context(style):
        figure = Figure((8.5, 0.4 + 1.1 * sum(_heights(findings))), layout="constrained", facecolor="white")
        _draw(figure, findings)
        figure.suptitle(f"{findings.study.title}\n{findings.study.source}", x=0.01, ha="left", size=9.5)
        FigureCanvasAgg(figure).print_png(out["plot.png"], metadata={"Software": None})
        FigureCanvasSVG(figure).print_svg(out["plot.svg"], metadata={"Date": None})
    return {name: buffer.getvalue() for name, buffer in out.items()}


def _lines(findings: Findings) -> int:
    """How many lines of small panels there are."""
    return -(-(len(findings.study.columns) - 1) // _ACROSS)


def _heights(findings: Findings) -> list[float]:
    """The height of the headline's panel, and of all small panels together, in inches."""
    rows, lines = len(findings.lines), _lines(findings)
    return [0.7 + 0.24 * rows] + [lines * (0.4 + 0.11 * rows)] * (lines > 0)


def _draw(figure: Any, findings: Findings) -> None:
    """Draw the headline column over the whole width, and the other columns in small panels below it."""
    *others, last = findings.study.columns
    names = [line.row.label for line in findings.lines]
    upper, *lower = figure.subfigures(2 if others else 1, 1, height_ratios=_heights(findings), squeeze=False)[:, 0]
    _panel(upper.add_subplot(), findings, last.label, names, 5.0)
    upper.axes[0].set_xlabel(findings.study.measure, color=INK)
    upper.axes[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, handletextpad=0.3, frameon=False)
    for number, column in enumerate(others):
        axes = lower[0].add_subplot(_lines(findings), min(_ACROSS, len(others)), 1 + number)
        _panel(axes, findings, column.label, [""] * len(names), 2.6)


def _panel(axes: Any, findings: Findings, column: str, names: list[str], size: float) -> None:
    """Draw one column: for each row a dot for the paper, one for ours with its deviation, and a line between them."""
    named: set[str] = set()
    for place, line in enumerate(findings.lines):
        _pair(axes, line.cells[column], place, size, named)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.tick_params(axis="x", color=MUTED, labelcolor=INK, labelsize=6.5 if size < 4 else None)
    axes.locator_params(axis="x", nbins=4 if size < 4 else 8)
    axes.grid(True, axis="x", color=GRID, linewidth=0.6)
    axes.grid(False, axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(column, loc="right", size=8.5, color=INK)


def _pair(axes: Any, cell: ComparedValue, place: int, size: float, named: set[str]) -> None:
    """Draw the two dots of a row; the first dot of each kind gets a name in the legend."""
    if cell.paper is not None and cell.ours is not None:
        axes.plot([cell.paper.mean, cell.ours.mean], [place, place], color=MUTED, linewidth=0.9)
    look = {"markersize": size, "elinewidth": 0.9, "capsize": 0, "linestyle": "none"}
    for value, colour, mark, name in ((cell.paper, PAPER, "D", "paper"), (cell.ours, OURS, "o", "ours")):
        if value is not None:
            label = None if name in named else name
            axes.errorbar(value.mean, place, xerr=value.std or None, fmt=mark, color=colour, label=label, **look)
            named.add(name)
