"""Curves and bars as SVG that a page can show without a script: colours are the page's, names are escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 520, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 34
_POINTS = 300  # a curve of 600 pixels shows no more
COLOURS = 8


@dataclass(frozen=True)
class DrawnCurve:
    """A curve: its name, its points, its colour by number, and whether it stands behind the others."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: int = 0
    thin: bool = False


@dataclass(frozen=True)
class _ToPlace:
    """From values to places on a chart."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def chart(
    name: str, lines: Sequence[DrawnCurve], across: str, text: Callable[[float], str], zero: bool = False
) -> Markup:
    """Curves over whole numbers (steps, epochs), which ``across`` names; empty where no curve has a known value.

    ``text`` writes values; with ``zero`` the axis begins there.
    """
    known = [_thinned(line) for line in lines]
    points = [point for line in known for point in line]
    if not points:
        return Markup("")
    (left, right), (low, high) = _span(x for x, _ in points), _span(y for _, y in points)
    ticks = _ticks(min(low, 0.0) if zero else low, high)
    x = _ToPlace(left, right, _LEFT, WIDTH - _RIGHT)
    y = _ToPlace(min(ticks[0], low), max(ticks[-1], high), HEIGHT - _BOTTOM, _TOP)
    drawn = [_drawn(line, each, x, y, across, text) for line, each in zip(lines, known, strict=True)]
    start = Markup('<svg class="chart" id="chart-{0}" role="img" tabindex="0" viewBox="0 0 {1} {2}" aria-label="{0}">')
    body = [_grid(ticks, y, text), _axis(left, right, x, across), *drawn]
    return start.format(name, WIDTH, HEIGHT) + Markup("").join(body) + Markup("</svg>")


def bar(share: float) -> Markup:
    """A bar in a cell of a table, whose length is a share of the longest."""
    width = 100 * min(max(share, 0.0), 1.0)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="f0" width="{:.2f}" height="8" rx="1"/></svg>'
    ).format(max(width, 0.6) if share > 0 else 0)


def _thinned(line: DrawnCurve) -> list[tuple[float, float]]:
    """The known points of a curve; where there are too many to see, means of neighbours."""
    known = [(float(x), y) for x, y in zip(line.x, line.y, strict=False) if y is not None and math.isfinite(y)]
    size = -(-len(known) // _POINTS) or 1
    groups = [known[at : at + size] for at in range(0, len(known), size)]
    return [(group[-1][0], sum(y for _, y in group) / len(group)) for group in groups]


def _drawn(
    line: DrawnCurve,
    points: Sequence[tuple[float, float]],
    x: _ToPlace,
    y: _ToPlace,
    across: str,
    text: Callable[[float], str],
) -> Markup:
    """One curve; what a reader sees at each of its points lies beside it for the script that follows the pointer."""
    if not points:
        return Markup("")
    places = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)
    told = "|".join(f"{across} {a:,.0f}: {text(b)}" for a, b in points)
    mark = Markup('<polyline class="s{} {}" points="{}" data-name="{}" data-told="{}"/>').format(
        line.colour % COLOURS, "thin" if line.thin else "", places, line.name, told
    )
    if len(points) == 1:
        place = Markup('<circle class="f{}" cx="{:.1f}" cy="{:.1f}" r="3"/>')
        mark += place.format(line.colour % COLOURS, x(points[0][0]), y(points[0][1]))
    return mark


def _grid(ticks: Sequence[float], y: _ToPlace, text: Callable[[float], str]) -> Markup:
    row = Markup(
        '<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>'
        '<text class="tick" x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>'
    )
    place = (_LEFT, WIDTH - _RIGHT)
    return Markup("").join(row.format(*place, y(tick), _LEFT - 6, y(tick) + 4, text(tick)) for tick in ticks)


def _axis(left: float, right: float, x: _ToPlace, across: str) -> Markup:
    """Whole numbers below the chart, and what they count."""
    ticks = sorted({round(tick) for tick in _ticks(left, right) if left <= tick <= right} | {round(left)})
    label = Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{:,}</text>')
    named = Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
        WIDTH - _RIGHT, HEIGHT - 3, across
    )
    return Markup("").join(label.format(x(tick), HEIGHT - _BOTTOM + 16, tick) for tick in ticks) + named


def _span(values: Iterable[float]) -> tuple[float, float]:
    """The smallest and the largest of some values."""
    known = list(values)
    return min(known), max(known)


def _ticks(low: float, high: float) -> list[float]:
    """Four to seven round numbers around a range."""
    span = high - low or abs(high) or 1.0
    raw = span / 4
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * each for each in (1, 2, 2.5, 5, 10) if size * each >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]
