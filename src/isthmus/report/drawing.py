"""The style, axes and inline SVG that all figures of reports share, in the page's colours, light or dark."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

from isthmus.runs.text import bytes_text, is_share, metric_label, score_text

# Colours as matplotlib writes them; the page gives each its light and its dark value.
INK, MUTED, GRID = "#101010", "#808080", "#d8d8d8"
SERIES = ("#1f5fa8", "#d9822b", "#2f9461", "#a0479c", "#c8403a", "#1f97a8", "#8a6d2f", "#6b6fd0")
_PAGE = {INK: "--ink", MUTED: "--muted", GRID: "--line"} | {c: f"--c{i}" for i, c in enumerate(SERIES)}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.parse_math": False,  # names are user text, and a dollar sign is no formula
    "font.size": 8.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}
_POINTS = 400  # a curve of 600 pixels shows no more
Values = Sequence[float | None]
SiloScores = Mapping[str, float | None]
_P = ParamSpec("_P")


def drawing(draw: Callable[_P, Chart]) -> Callable[_P, str]:
    """A decorator: the function draws in the report's style and returns inline SVG instead of a chart."""

    @wraps(draw)
    def styled(*args: _P.args, **kwargs: _P.kwargs) -> str:
        from matplotlib import rc_context

        with rc_context(_STYLE | {"svg.hashsalt": draw.__name__}):
            return draw(*args, **kwargs).svg(draw.__name__.replace("_", "-"))

    return styled


class Chart:
    """A figure of a fixed width, with room for a legend of ``names`` entries.

    Several ``panels`` stand side by side and share their vertical axis; methods draw on the one in ``axes``.
    """

    def __init__(self, height: float, names: int = 0, panels: int = 1) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure((6.8, max(height, 0.7 + 0.18 * names)), layout="constrained")
        self.panels: list[Any] = list(self.figure.subplots(1, panels, sharey=True, squeeze=False)[0])
        self.axes: Any = self.panels[0]

    def line(self, x: Sequence[float], y: Values, colour: str, width: float, **style: Any) -> None:
        """Draw a curve through the known values; where there are too many to see, through means of neighbours."""
        known = [(a, b) for a, b in zip(x, y, strict=True) if b is not None and math.isfinite(b)]
        size = -(-len(known) // _POINTS) or 1
        bins = [known[at : at + size] for at in range(0, len(known), size)]
        points = [[sum(p[axis] for p in b) / len(b) for b in bins] for axis in (0, 1)]
        dot = {"marker": "o", "markersize": 3} if len(known) == 1 else {}
        self.axes.plot(*points, color=colour, linewidth=width, **dot, **style)

    def note(self, x: float, y: float, text: str) -> None:
        """Write a value at the end of its bar."""
        self.axes.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", size=8)

    def rows(self, names: Sequence[str], whole: bool = False) -> None:
        """Name the rows of a horizontal chart, the first on top; long names are shortened unless they are ``whole``."""
        self.axes.set_yticks(range(len(names)), names if whole else list(map(clip, names)))
        self.axes.set_ylim(len(names) - 0.5, -0.5)
        self.axes.grid(False, axis="y")
        self.axes.tick_params(axis="y", length=0)

    def count(self, what: str) -> None:
        """Label a horizontal axis of whole numbers."""
        self.axes.set_xlabel(what)
        self.axes.xaxis.get_major_locator().set_params(integer=True)

    def amounts(self, what: str, text: Callable[[float], str]) -> None:
        """Label a horizontal axis of bytes or seconds, whose numbers ``text`` writes."""
        self.axes.xaxis.set_major_formatter(lambda value, _: text(value))
        self.axes.locator_params(axis="x", nbins=5)
        self.axes.set_xlabel(what)

    def sizes(self, what: str, text: Callable[[float], str] = bytes_text) -> None:
        """Make the horizontal axis logarithmic and label it; ``text`` writes its numbers, by default as bytes."""
        self.axes.set_xscale("log")
        self.axes.margins(0.1, 0.15)
        low, high = self.axes.get_xlim()
        if high < (300 if len(self.panels) == 1 else 20) * low:  # a short axis would show one tick or none
            self.axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        self.axes.xaxis.set_major_formatter(lambda value, _: text(value))
        self.axes.xaxis.set_minor_formatter(lambda value, _: "")
        self.axes.set_xlabel(what)

    def scores(self, axis: str, metric: str, split: str) -> None:
        """Label an axis (``x`` or ``y``) that shows scores."""
        getattr(self.axes, f"set_{axis}label")(f"{split} {metric_label(metric)}")
        at = self.axes.xaxis if axis == "x" else self.axes.yaxis
        at.set_major_formatter(lambda value, _: score_text(metric, value, digits=0))
        if is_share(metric):
            at.get_major_locator().set_params(integer=False, nbins=6, steps=[1, 2, 5, 10], min_n_ticks=2)

    def legend(self, order: Iterable[str] = ()) -> None:
        """Draw a legend beside the figure, in the order given; none where nothing has a label."""
        found = self.axes.get_legend_handles_labels()
        handles = dict(zip(found[1], found[0], strict=True))
        names = [name for name in map(clip, order) if name in handles] or list(handles)
        if names:
            where = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "handlelength": 1.2}
            self.axes.legend([handles[name] for name in names], names, **where)

    def svg(self, name: str) -> str:
        """The figure as inline SVG: no links to other files, ids that begin with ``name``, the page's colours."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        out = io.BytesIO()
        with warnings.catch_warnings():  # text stays text, which browsers write in any script
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            FigureCanvasSVG(self.figure).print_svg(out, metadata={"Date": None})
        text = out.getvalue().decode()
        text = re.sub(r"<(metadata|style).*?</\1>", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r' (xmlns(:\w+)?|version|width|height)="[^"]*"', "", text, count=5)
        text = re.sub(r"font-family: [^;]*; ", "", text)
        text = re.sub(r'( id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")
        for colour, variable in _PAGE.items():
            text = text.replace(colour, f"var({variable})")
        return text.replace("<svg", '<svg role="img"', 1)


def clip(name: str) -> str:
    """A name, shortened to what fits beside a figure; names often begin alike, so that their ends stay."""
    return name if len(name) <= 26 else f"{name[:13]}…{name[-12:]}"
