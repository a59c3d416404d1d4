"""Figures that compare several runs, as inline SVG, each with a key of the runs' names in full."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from isthmus.report.drawing import SERIES, Chart, SiloScores, Values, clip, drawing
from isthmus.runs.text import bytes_text, wait_text

Dash = tuple[float, tuple[float, ...]]  # where the pattern begins, and lengths of strokes and gaps in line widths
RunPoints = Mapping[str, tuple[float | None, float | None, float | None]]  # (score, deviation, bytes) by name
RunCurves = Mapping[str, tuple[Sequence[int], Values]]  # (epochs, scores) by name
_WIDTH, _STROKE = 1.5, 5.0
_DASHES: tuple[tuple[float, ...], ...] = ((), (4.0, 2.0), (6.0, 2.0, 1.0, 2.0), (1.0, 2.0))
_MARKS, _SIGNS = "osD^", "●■◆▲"
_NEAR = 0.005  # curves that are nowhere farther apart, as a share of the drawing's height, hide each other
_MERGED: Dash = (0.0, (4.0, 3.0))


@dataclass(frozen=True)
class RunLook:
    """How a run is drawn: the number of its colour, of its marker, and the dashes of its line (no lengths: solid)."""

    colour: int
    mark: int
    dash: Dash

    @property
    def line(self) -> str | Dash:
        """The line style for matplotlib."""
        return self.dash if self.dash[1] else "-"


def looks(names: Iterable[str]) -> dict[str, RunLook]:
    """The look of each run, the same in all figures; when colours run out, marker and dashes change."""
    found = {}
    for number, name in enumerate(names):
        lap, colour = divmod(number, len(SERIES))
        found[name] = RunLook(colour, lap % len(_MARKS), (0.0, _DASHES[lap % len(_DASHES)]))
    return found


def taking_turns(shown: Mapping[str, RunLook], groups: Sequence[Sequence[str]]) -> dict[str, RunLook]:
    """The looks with other dashes for runs of one group, which coincide: strokes of each lie in gaps of the others."""
    found = dict(shown)
    for group in groups:
        for place, name in enumerate(group):
            offset = _STROKE * ((len(group) - place) % len(group))
            found[name] = replace(shown[name], dash=(offset, (_STROKE, _STROKE * (len(group) - 1))))
    return found


def merged_look(shown: Mapping[str, RunLook], merged: Iterable[str]) -> dict[str, RunLook]:
    """The looks with dashes for runs that had all data in one place."""
    return {**shown, **{name: replace(shown[name], dash=_MERGED) for name in merged}}


def coinciding(curves: RunCurves) -> list[list[str]]:
    """Groups of two runs or more whose curves cannot be seen apart."""
    known = [value for _, values in curves.values() for value in values if value is not None]
    near = _NEAR * (max(known) - min(known)) if known else 0.0
    groups: list[list[str]] = []
    for name, curve in curves.items():
        home = next((group for group in groups if _alike(curves[group[0]], curve, near)), None)
        if home is None:
            groups.append([name])
        else:
            home.append(name)
    return [group for group in groups if len(group) > 1]


def _alike(one: tuple[Sequence[int], Values], other: tuple[Sequence[int], Values], near: float) -> bool:
    """Whether two curves have the same epochs and are nowhere farther apart than ``near``."""
    pairs = list(zip(one[1], other[1], strict=False))
    if list(one[0]) != list(other[0]) or not pairs:
        return False
    return all(a is not None and b is not None and abs(a - b) <= near for a, b in pairs)


def run_key(shown: Mapping[str, RunLook], lined: Container[str]) -> str:
    """The key of a figure as HTML: names in full, beside a run's line if it is ``lined``, else beside its marker."""
    items = "".join(f"<li>{_swatch(look, name in lined)} {escape(name)}</li>" for name, look in shown.items())
    return f'<ul class="key">{items}</ul>'


def _swatch(look: RunLook, line: bool) -> str:
    """A piece of a run's line, or its marker."""
    colour = f"var(--c{look.colour})"
    if not line:
        return f'<span style="color:{colour}">{_SIGNS[look.mark]}</span>'
    offset, lengths = look.dash
    pattern = " ".join(f"{_WIDTH * each:g}" for each in lengths)
    dashes = f' stroke-dasharray="{pattern}" stroke-dashoffset="{_WIDTH * offset:g}"' if lengths else ""
    path = f'<path d="M0 4H40" stroke="{colour}" stroke-width="2"{dashes}/>'
    return f'<svg viewBox="0 0 40 8" aria-hidden="true">{path}</svg>'


@drawing
def score_against_bytes(runs: RunPoints, metric: str, shown: Mapping[str, RunLook]) -> Chart:
    """Test score against bytes per step, a point for each run; ``runs`` holds (score, deviation, bytes) by name.

    A run that sends nothing stands at the left edge; a run whose bytes are None (merged data) is a horizontal line.
    """
    chart = Chart(2.9)
    sent = [size for *_, size in runs.values() if size]
    edge = min(sent, default=1.0) / 10
    for name, (score, deviation, size) in runs.items():
        colour, mark = SERIES[shown[name].colour], _MARKS[shown[name].mark]
        if score is not None and size is None:
            chart.axes.axhline(score, color=colour, linewidth=1.2, linestyle=_MERGED, zorder=1)
        elif score is not None and size is not None:
            look = {"fmt": mark, "markersize": 6.5, "capsize": 3, "elinewidth": 1, "color": colour, "alpha": 0.8}
            chart.axes.errorbar(max(size, edge), score, yerr=deviation or None, **look)
    silent = any(size == 0 for score, _, size in runs.values() if score is not None)
    chart.sizes("bytes per step, log scale" + (" (left edge: none)" if silent else ""))
    chart.scores("y", metric, "test")
    return chart


@drawing
def overlaid(curves: RunCurves, metric: str, shown: Mapping[str, RunLook]) -> Chart:
    """The validation curve of each run in one drawing."""
    chart = Chart(2.9)
    for name, (epochs, values) in curves.items():
        chart.line(epochs, values, SERIES[shown[name].colour], _WIDTH, linestyle=shown[name].line)
    chart.count("epoch")
    chart.scores("y", metric, "validation")
    return chart


@drawing
def price_curves(
    runs: Mapping[str, tuple[Sequence[float], Sequence[float] | None, Values]],
    metric: str,
    shown: Mapping[str, RunLook] | None = None,
) -> Chart:
    """Validation scores against emulated seconds and against bytes; ``runs`` holds (seconds, bytes, scores) by name.

    With several runs both axes are logarithmic.
    """
    chart = Chart(2.4, panels=2)
    several, shown = len(runs) > 1, shown or looks(runs)
    for place, (what, text) in enumerate((("emulated seconds", wait_text), ("bytes", bytes_text))):
        chart.axes = chart.panels[place]
        for name, (*amounts, scores) in runs.items():
            x = amounts[place]
            style = {"linestyle": shown[name].line}
            chart.line(x or [], scores if x else [], SERIES[shown[name].colour], _WIDTH, **style)
        (chart.sizes if several else chart.amounts)(what + ", log scale" * several, text)
    chart.axes = chart.panels[0]
    chart.scores("y", metric, "validation")
    return chart


@drawing
def silo_dots(runs: Mapping[str, SiloScores], metric: str, shown: Mapping[str, RunLook]) -> Chart:
    """Test scores by silo, with one dot for each run."""
    silos = list(dict.fromkeys(silo for scores in runs.values() for silo in scores))
    chart = Chart(0.7 + 0.27 * len(silos))
    for name in runs:
        look = shown[name]
        known = {row: score for row, silo in enumerate(silos) if (score := runs[name].get(silo)) is not None}
        style = {"color": SERIES[look.colour], "alpha": 0.85}
        chart.axes.plot(list(known.values()), list(known), _MARKS[look.mark], **style)
    chart.rows([clip(silo) for silo in silos])
    chart.axes.grid(True, axis="y")
    chart.scores("x", metric, "test")
    return chart
