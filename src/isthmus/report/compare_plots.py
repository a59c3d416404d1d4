"""Figures that compare several runs, as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.report.drawing import SERIES, Chart, SiloScores, Values, clip, drawing
from isthmus.runs.text import bytes_text, wait_text


@drawing
def score_against_bytes(runs: Mapping[str, tuple[float | None, float | None, float | None]], metric: str) -> Chart:
    """Test score against bytes per step, a point for each run; ``runs`` holds (score, deviation, bytes) by name.

    A run that sends nothing stands at the left edge; a run whose bytes are None (merged data) is a horizontal line.
    """
    chart = Chart(2.9, names=len(runs))
    sent = [size for *_, size in runs.values() if size]
    edge = min(sent, default=1.0) / 10
    for number, (name, (score, deviation, size)) in enumerate(runs.items()):
        colour, mark, _ = _style(number)
        if score is not None and size is None:
            look = {"color": colour, "linewidth": 1.2, "linestyle": (0, (4, 3))}
            chart.axes.axhline(score, label=clip(name), **look)
        elif score is not None and size is not None:
            look = {"fmt": mark, "markersize": 6.5, "capsize": 3, "elinewidth": 1, "color": colour, "alpha": 0.8}
            chart.axes.errorbar(max(size, edge), score, yerr=deviation or None, label=clip(name), **look)
    silent = any(size == 0 for score, _, size in runs.values() if score is not None)
    chart.sizes("bytes per step, log scale" + (" (left edge: none)" if silent else ""))
    chart.scores("y", metric, "test")
    chart.legend(runs)
    return chart


@drawing
def overlaid(curves: Mapping[str, tuple[Sequence[int], Values]], metric: str) -> Chart:
    """The validation curve of each run in one drawing; ``curves`` holds (epochs, scores) by name."""
    chart = Chart(2.9, names=len(curves))
    for number, (name, (epochs, values)) in enumerate(curves.items()):
        colour, _, dash = _style(number)
        chart.line(epochs, values, colour, 1.5, label=clip(name), linestyle=dash)
    chart.count("epoch")
    chart.scores("y", metric, "validation")
    chart.legend()
    return chart


@drawing
def price_curves(runs: Mapping[str, tuple[Sequence[float], Sequence[float] | None, Values]], metric: str) -> Chart:
    """Validation scores against emulated seconds and against bytes; ``runs`` holds (seconds, bytes, scores) by name.

    With several runs both axes are logarithmic.
    """
    chart = Chart(2.4, names=len(runs), panels=2)
    several = len(runs) > 1
    for place, (what, text) in enumerate((("emulated seconds", wait_text), ("bytes", bytes_text))):
        chart.axes = chart.panels[place]
        for number, (name, (*amounts, scores)) in enumerate(runs.items()):
            colour, _, dash = _style(number)
            x = amounts[place]
            label = clip(name) if several else None
            chart.line(x or [], scores if x else [], colour, 1.5, label=label, linestyle=dash)
        (chart.sizes if several else chart.amounts)(what + ", log scale" * several, text)
    chart.legend()
    chart.axes = chart.panels[0]
    chart.scores("y", metric, "validation")
    return chart


@drawing
def silo_dots(runs: Mapping[str, SiloScores], metric: str) -> Chart:
    """Test scores by silo, with one dot for each run."""
    silos = list(dict.fromkeys(silo for scores in runs.values() for silo in scores))
    chart = Chart(0.7 + 0.27 * len(silos), names=len(runs))
    for number, (name, scores) in enumerate(runs.items()):
        colour, mark, _ = _style(number)
        known = {row: score for row, silo in enumerate(silos) if (score := scores.get(silo)) is not None}
        look = {"color": colour, "alpha": 0.85, "label": clip(name)}
        chart.axes.plot(list(known.values()), list(known), mark, **look)
    chart.rows(silos)
    chart.axes.grid(True, axis="y")
    chart.scores("x", metric, "test")
    chart.legend()
    return chart


def _style(number: int) -> tuple[str, str, str]:
    """Colour, marker and dash of a run; when colours run out, marker and dash change."""
    lap, place = divmod(number, len(SERIES))
    return SERIES[place], "osD^"[lap % 4], ("-", "--", "-.", ":")[lap % 4]
