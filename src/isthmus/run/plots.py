"""Figures of the report as inline SVG, and how they write numbers; colours follow the page, light or dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

from isthmus.wire.ledger import SERVER, party

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
_SHARES = ("accuracy", "f1", "auc", "precision", "recall")
Values = Sequence[float | None]
Scores = Mapping[str, float | None]
_P = ParamSpec("_P")


def _drawing(draw: Callable[_P, _Canvas]) -> Callable[_P, str]:
    """Draw in the report's style, which must hold until the last stroke, and return inline SVG."""

    @wraps(draw)
    def styled(*args: _P.args, **kwargs: _P.kwargs) -> str:
        from matplotlib import rc_context

        with rc_context(_STYLE | {"svg.hashsalt": draw.__name__}):
            return draw(*args, **kwargs).svg(draw.__name__.replace("_", "-"))

    return styled


@_drawing
def loss_curve(steps: Sequence[int], loss: Values) -> _Canvas:
    """Training loss by step; on a log scale where it falls far."""
    canvas = _Canvas(2.3)
    known = [v for v in loss if v is not None]
    if known and min(known) > 0 and max(known) > 20 * min(known):
        canvas.axes.set_yscale("log")
    canvas.line(steps, loss, SERIES[0], 1.4)
    canvas.axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    canvas.axes.set_ylabel("training loss")
    canvas.count("step")
    return canvas


@_drawing
def valid_curve(
    epochs: Sequence[int], overall: Values, silos: Mapping[str, Values], metric: str, best: int = 0
) -> _Canvas:
    """The validation score of the federation, of several silos as thin lines; ``best``: the epoch to mark."""
    canvas = _Canvas(2.8)
    named = len(silos) < len(SERIES)
    for number, (name, values) in enumerate(silos.items() if len(silos) > 1 else ()):
        colour = SERIES[1 + number] if named else MUTED
        label = _clip(name) if named else None
        canvas.line(epochs, values, colour, 0.9, alpha=0.75 if named else 0.35, label=label)
    canvas.line(epochs, overall, SERIES[0], 2.0, label="all silos" if len(silos) > 1 else None)
    if best:
        canvas.axes.axvline(best, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        where = {"xy": (best, 0), "xycoords": ("data", "axes fraction"), "xytext": (-3, 4)}
        canvas.axes.annotate("selected", **where, textcoords="offset points", ha="right", color=INK, size=7.5)
    canvas.scores("y", metric, "validation")
    canvas.count("epoch")
    canvas.legend()
    return canvas


@_drawing
def silo_bars(scores: Scores, alone: Scores | None, metric: str) -> _Canvas:
    """The test score of each silo; with a run of each silo alone also that score, and the gain."""
    canvas = _Canvas(0.85 + (0.36 if alone else 0.26) * len(scores))
    rows = [row - (0.1 if alone else 0.0) for row in range(len(scores))]
    canvas.axes.barh(rows, [s or 0.0 for s in scores.values()], 0.42, color=SERIES[0], label="this run")
    if alone:
        lengths, style = [alone.get(name) or 0.0 for name in scores], {"color": MUTED, "alpha": 0.6}
        canvas.axes.barh([row + 0.37 for row in rows], lengths, 0.22, label="each silo alone", **style)
        canvas.axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, handlelength=1.2)
    for row, (name, score) in zip(rows, scores.items(), strict=True):
        gain = f"  ({gain_text(metric, score, alone.get(name))})" if alone else ""
        canvas.note(score or 0.0, row, score_text(metric, score) + gain)
    canvas.rows(list(scores))
    canvas.scores("x", metric, "test")
    canvas.axes.margins(x=0.16 if alone else 0.1)
    canvas.axes.set_xlim(left=0)
    return canvas


@_drawing
def kind_bars(sizes: Mapping[str, int]) -> _Canvas:
    """Bytes of each kind of message."""
    canvas = _Canvas(0.6 + 0.24 * max(len(sizes), 1))
    canvas.axes.barh(range(len(sizes)), list(sizes.values()), 0.55, color=SERIES[0])
    for row, size in enumerate(sizes.values()):
        canvas.note(size, row, bytes_text(size))
    canvas.rows(list(sizes))
    canvas.axes.margins(x=0.14)
    canvas.axes.set_xlim(left=0, right=None if any(sizes.values()) else 1)
    canvas.axes.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
    canvas.axes.locator_params(axis="x", nbins=5)
    return canvas


@_drawing
def heat_map(sizes: Mapping[tuple[str, str], int]) -> _Canvas:
    """Bytes from each party (down) to each party (across), the server first; darker is more."""
    parties = sorted({name for pair in sizes for name in pair}, key=party_order)
    canvas = _Canvas(min(0.8 + 0.36 * len(parties), 6.0))
    top, few = max([*sizes.values(), 1]), len(parties) <= 10
    place = {name: i for i, name in enumerate(parties)}
    for (sender, receiver), size in sizes.items():
        if not size:
            continue
        x, y, shade = place[receiver], place[sender], 0.06 + 0.6 * (size / top) ** 0.4
        canvas.axes.bar(x, 0.94, 0.94, y - 0.47, color=SERIES[0], alpha=shade, linewidth=0)
        if few:
            canvas.axes.text(x, y, bytes_text(size), ha="center", va="center", size=7)
    every = -(-len(parties) // 24)  # as many names as there is room for
    canvas.rows([name if i % every == 0 else "" for i, name in enumerate(parties)])
    canvas.axes.set_xticks(range(len(parties)), map(_clip, parties) if few else [""] * len(parties))
    canvas.axes.set(xlabel="to", ylabel="from", xlim=(-0.5, len(parties) - 0.5))
    canvas.axes.grid(False)
    canvas.axes.tick_params(length=0)
    canvas.axes.spines[:].set_visible(False)
    return canvas


@_drawing
def score_against_bytes(runs: Mapping[str, tuple[float | None, float | None, float | None]], metric: str) -> _Canvas:
    """A point for each run: (test score, deviation, bytes per step).

    A run that sends nothing stands at the left edge; one without bytes (merged data) is a line across.
    """
    canvas = _Canvas(2.9, names=len(runs))
    sent = [size for *_, size in runs.values() if size]
    edge = min(sent, default=1.0) / 10
    for number, (name, (score, deviation, size)) in enumerate(runs.items()):
        colour, mark, _ = _style(number)
        if score is not None and size is None:
            look = {"color": colour, "linewidth": 1.2, "linestyle": (0, (4, 3))}
            canvas.axes.axhline(score, label=_clip(name), **look)
        elif score is not None and size is not None:
            look = {"fmt": mark, "markersize": 6.5, "capsize": 3, "elinewidth": 1, "color": colour}
            canvas.axes.errorbar(max(size, edge), score, yerr=deviation or None, label=_clip(name), **look)
    silent = any(size == 0 for score, _, size in runs.values() if score is not None)
    canvas.sizes("bytes per step, log scale" + (" (left edge: none)" if silent else ""))
    canvas.scores("y", metric, "test")
    canvas.legend(runs)
    return canvas


@_drawing
def overlaid(curves: Mapping[str, tuple[Sequence[int], Values]], metric: str) -> _Canvas:
    """The validation curve of each run."""
    canvas = _Canvas(2.9, names=len(curves))
    for number, (name, (epochs, values)) in enumerate(curves.items()):
        colour, _, dash = _style(number)
        canvas.line(epochs, values, colour, 1.5, label=_clip(name), linestyle=dash)
    canvas.count("epoch")
    canvas.scores("y", metric, "validation")
    canvas.legend()
    return canvas


@_drawing
def silo_dots(runs: Mapping[str, Scores], metric: str) -> _Canvas:
    """Test scores silo by silo, one dot a run."""
    silos = list(dict.fromkeys(silo for scores in runs.values() for silo in scores))
    canvas = _Canvas(0.7 + 0.27 * len(silos), names=len(runs))
    for number, (name, scores) in enumerate(runs.items()):
        colour, mark, _ = _style(number)
        known = {row: score for row, silo in enumerate(silos) if (score := scores.get(silo)) is not None}
        look = {"color": colour, "alpha": 0.85, "label": _clip(name)}
        canvas.axes.plot(list(known.values()), list(known), mark, **look)
    canvas.rows(silos)
    canvas.axes.grid(True, axis="y")
    canvas.scores("x", metric, "test")
    canvas.legend()
    return canvas


class _Canvas:
    """One figure of a fixed width, with room for a legend of ``names``; ``svg`` makes it part of a page."""

    def __init__(self, height: float, names: int = 0) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure((6.8, max(height, 0.7 + 0.18 * names)), layout="constrained")
        self.axes: Any = self.figure.add_subplot()

    def line(self, x: Sequence[float], y: Values, colour: str, width: float, **style: Any) -> None:
        """A curve through the known values, thinned to what can be seen by means of neighbours."""
        known = [(a, b) for a, b in zip(x, y, strict=True) if b is not None and math.isfinite(b)]
        size = -(-len(known) // _POINTS) or 1
        bins = [known[at : at + size] for at in range(0, len(known), size)]
        points = [[sum(p[axis] for p in b) / len(b) for b in bins] for axis in (0, 1)]
        dot = {"marker": "o", "markersize": 3} if len(known) == 1 else {}
        self.axes.plot(*points, color=colour, linewidth=width, **dot, **style)

    def note(self, x: float, y: float, text: str) -> None:
        """A value at the end of its bar."""
        self.axes.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", size=8)

    def rows(self, names: Sequence[str]) -> None:
        """Name the rows, first on top."""
        self.axes.set_yticks(range(len(names)), map(_clip, names))
        self.axes.set_ylim(len(names) - 0.5, -0.5)
        self.axes.grid(False, axis="y")
        self.axes.tick_params(axis="y", length=0)

    def count(self, what: str) -> None:
        """Label a horizontal axis of whole numbers."""
        self.axes.set_xlabel(what)
        self.axes.xaxis.get_major_locator().set_params(integer=True)

    def sizes(self, what: str) -> None:
        """Label a horizontal axis of bytes on a log scale."""
        self.axes.set_xscale("log")
        self.axes.margins(0.1, 0.15)
        low, high = self.axes.get_xlim()
        if high < 300 * low:  # a short axis would show one tick or none
            self.axes.xaxis.get_major_locator().set_params(subs=(1, 2, 5))
        self.axes.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
        self.axes.xaxis.set_minor_formatter(lambda value, _: "")
        self.axes.set_xlabel(what)

    def scores(self, axis: str, metric: str, split: str) -> None:
        """Label an axis that shows scores."""
        getattr(self.axes, f"set_{axis}label")(f"{split} {metric_label(metric)}")
        at = self.axes.xaxis if axis == "x" else self.axes.yaxis
        at.set_major_formatter(lambda value, _: score_text(metric, value, digits=0))
        if _is_share(metric):
            at.get_major_locator().set_params(integer=False, nbins=6, steps=[1, 2, 5, 10], min_n_ticks=2)

    def legend(self, order: Iterable[str] = ()) -> None:
        """Names beside the drawing, where there are any, in the order given."""
        found = self.axes.get_legend_handles_labels()
        handles = dict(zip(found[1], found[0], strict=True))
        names = [name for name in map(_clip, order) if name in handles] or list(handles)
        if names:
            where = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "handlelength": 1.2}
            self.axes.legend([handles[name] for name in names], names, **where)

    def svg(self, name: str) -> str:
        """The drawing without anything that points outside, with names of its own, in the page's colours."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        out = io.BytesIO()
        FigureCanvasSVG(self.figure).print_svg(out, metadata={"Date": None})
        text = out.getvalue().decode()
        text = re.sub(r"<(metadata|style).*?</\1>", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r' (xmlns(:\w+)?|version|width|height)="[^"]*"', "", text, count=5)
        text = re.sub(r"font-family: [^;]*; ", "", text)
        text = re.sub(r'( id="|xlink:href="#|url\(#)', rf"\g<1>{name}-", text).replace("xlink:href", "href")
        for colour, variable in _PAGE.items():
            text = text.replace(colour, f"var({variable})")
        return text.replace("<svg", '<svg role="img"', 1)


def _style(number: int) -> tuple[str, str, str]:
    """Colour, marker and dash of a run; when colours run out, the others change."""
    lap, place = divmod(number, len(SERIES))
    return SERIES[place], "osD^"[lap % 4], ("-", "--", "-.", ":")[lap % 4]


def _clip(name: str) -> str:
    return name if len(name) <= 26 else f"{name[:25]}…"


def _is_share(metric: str) -> bool:
    return any(word in metric for word in _SHARES)


def score_text(metric: str, value: float | None, digits: int = 1) -> str:
    """A score for humans: shares in per cent, anything else to four digits, nothing as a dash."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.{digits}f} %" if _is_share(metric) else f"{value:.4g}"


def spread_text(metric: str, value: float | None, deviation: float | None) -> str:
    """A score with its deviation over seeds, where there is one: ``79.4 ± 0.4 %``."""
    text = score_text(metric, value)
    return text if deviation is None else f"{text.removesuffix(' %')} ± {score_text(metric, deviation)}"


def gain_text(metric: str, value: float | None, base: float | None) -> str:
    """A difference with its sign; between shares in percentage points."""
    if value is None or base is None:
        return "–"
    text = f"{100 * (value - base):+.1f}" if _is_share(metric) else f"{value - base:+.4g}"
    return text.replace("-", "−")


def metric_label(metric: str) -> str:
    """``macro_pr_auc`` as ``macro PR-AUC``, ``pr_auc/C2`` as ``PR-AUC of C2``."""
    name, _, task = metric.partition("/")
    for code, text in (("f1_minority", "F1 of the rare class"), ("f1", "F1"), ("pr_auc", "PR-AUC")):
        name = name.replace(code, text)
    return name.replace("_", " ") + (f" of {task}" if task else "")


def party_order(name: str) -> tuple[int, int, str]:
    """The server first, then silos by number, then any other name."""
    stem, _, number = name.rpartition("-")
    if stem == "silo" and number.isdigit():
        return (1, int(number), "")
    return (0 if name == party(SERVER) else 2, 0, name)


def list_names(names: Iterable[str]) -> str:
    """``silo-0 to silo-4`` for neighbours, else the names one by one."""
    names = list(names)
    numbers = [party_order(name)[1] for name in names if party_order(name)[0] == 1]
    if len(names) > 2 and len(numbers) == len(names) and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{names[0]} to {names[-1]}"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def bytes_text(size: float) -> str:
    """A size for humans, in powers of 1000: ``1.3 MB``."""
    units, place = ("B", "kB", "MB", "GB", "TB", "PB"), 0
    while size >= 999.5 and place < len(units) - 1:
        size, place = size / 1000, place + 1
    digits = 0 if size >= 99.95 or size == int(size) else 1
    return f"{size:.{digits}f} {units[place]}"
