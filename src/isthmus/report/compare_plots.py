"""Figures that compare several runs, as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.report.drawing import SERIES, Canvas, SiloScores, Values, clip, drawing
from isthmus.runs.text import bytes_text, wait_text


@drawing
def score_against_bytes(runs: Mapping[str, tuple[float | None, float | None, float | None]], metric: str) -> Canvas:
    """Test score against bytes per step, a point for each run; ``runs`` holds (score, deviation, bytes) by name.

    A run that sends nothing stands at the left edge; a run whose bytes are None (merged data) is a horizontal line.
    """
    canvas = Canvas(2.9, names=len(runs))
    sent = [size for *_, size in runs.values() if size]
    edge = min(sent, default=1.0) / 10
    for number, (name, (score, deviation, size)) in enumerate(runs.items()):
        colour, mark, _ = _style(number)
        if score is not None and size is None:
            look = {"color": colour, "linewidth": 1.2, "linestyle": (0, (4, 3))}
            canvas.axes.axhline(score, label=clip(name), **look)
        elif score is not None and size is not None:
            look = {"fmt": mark, "markersize": 6.5, "capsize": 3, "elinewidth": 1, "color": colour, "alpha": 0.8}
            canvas.axes.errorbar(max(size, edge), score, yerr=deviation or None, label=clip(name), **look)
    silent = any(size == 0 for score, _, size in runs.values() if score is not None)
    canvas.sizes("bytes per step, log scale" + (" (left edge: none)" if silent else ""))
    canvas.scores("y", metric, "test")
    canvas.legend(runs)
    return canvas


@drawing
def overlaid(curves: Mapping[str, tuple[Sequence[int], Values]], metric: str) -> Canvas:
    """The validation curve of each run in one drawing; ``curves`` holds (epochs, scores) by name."""
    canvas = Canvas(2.9, names=len(curves))
    for number, (name, (epochs, values)) in enumerate(curves.items()):
        colour, _, dash = _style(number)
        canvas.line(epochs, values, colour, 1.5, label=clip(name), linestyle=dash)
    canvas.count("epoch")
    canvas.scores("y", metric, "validation")
    canvas.legend()
    return canvas


@drawing
def price_curves(runs: Mapping[str, tuple[Sequence[float], Sequence[float] | None, Values]], metric: str) -> Canvas:
    """Validation scores against emulated seconds and against bytes; ``runs`` holds (seconds, bytes, scores) by name.

    With several runs both axes are logarithmic.
    """
    canvas = Canvas(2.4, names=len(runs), panels=2)
    several = len(runs) > 1
    for place, (what, text) in enumerate((("emulated seconds", wait_text), ("bytes", bytes_text))):
        canvas.axes = canvas.panels[place]
        for number, (name, (*amounts, scores)) in enumerate(runs.items()):
            colour, _, dash = _style(number)
            x = amounts[place]
            label = clip(name) if several else None
            canvas.line(x or [], scores if x else [], colour, 1.5, label=label, linestyle=dash)
        (canvas.sizes if several else canvas.amounts)(what + ", log scale" * several, text)
    canvas.legend()
    canvas.axes = canvas.panels[0]
    canvas.scores("y", metric, "validation")
    return canvas


@drawing
def silo_dots(runs: Mapping[str, SiloScores], metric: str) -> Canvas:
    """Test scores by silo, with one dot for each run."""
    silos = list(dict.fromkeys(silo for scores in runs.values() for silo in scores))
    canvas = Canvas(0.7 + 0.27 * len(silos), names=len(runs))
    for number, (name, scores) in enumerate(runs.items()):
        colour, mark, _ = _style(number)
        known = {row: score for row, silo in enumerate(silos) if (score := scores.get(silo)) is not None}
        look = {"color": colour, "alpha": 0.85, "label": clip(name)}
        canvas.axes.plot(list(known.values()), list(known), mark, **look)
    canvas.rows(silos)
    canvas.axes.grid(True, axis="y")
    canvas.scores("x", metric, "test")
    canvas.legend()
    return canvas


def _style(number: int) -> tuple[str, str, str]:
    """Colour, marker and dash of a run; when colours run out, marker and dash change."""
    lap, place = divmod(number, len(SERIES))
    return SERIES[place], "osD^"[lap % 4], ("-", "--", "-.", ":")[lap % 4]
