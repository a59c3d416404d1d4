"""Figures of one run as inline SVG: curves, scores by silo, attacks, and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.report.drawing import INK, MUTED, SERIES, Canvas, SiloScores, Values, clip, drawing
from isthmus.runs.text import bytes_text, gain_text, party_order, score_text


@drawing
def loss_curve(steps: Sequence[int], loss: Values) -> Canvas:
    """Training loss by step; on a log scale where it falls to less than a twentieth."""
    canvas = Canvas(2.3)
    known = [v for v in loss if v is not None]
    if known and min(known) > 0 and max(known) > 20 * min(known):
        canvas.axes.set_yscale("log")
    canvas.line(steps, loss, SERIES[0], 1.4)
    canvas.axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    canvas.axes.set_ylabel("training loss")
    canvas.count("step")
    return canvas


@drawing
def valid_curve(
    epochs: Sequence[int], overall: Values, silos: Mapping[str, Values], metric: str, best: int = 0
) -> Canvas:
    """The validation score of the federation by epoch, and of single silos as thin lines; ``best``: epoch to mark."""
    canvas = Canvas(2.8)
    named = len(silos) < len(SERIES)
    for number, (name, values) in enumerate(silos.items() if len(silos) > 1 else ()):
        colour = SERIES[1 + number] if named else MUTED
        label = clip(name) if named else None
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


@drawing
def silo_bars(scores: SiloScores, alone: SiloScores | None, metric: str) -> Canvas:
    """The test score of each silo; with scores of silos that trained ``alone``, these too, and the gain."""
    canvas = Canvas(0.85 + (0.36 if alone else 0.26) * len(scores))
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


@drawing
def attack_curve(levels: Sequence[float], layers: Mapping[str, Values], neighbours: float) -> Canvas:
    """The attack's error as a share of a guess's error, against noise, with one line for each layer.

    ``neighbours`` is the squared distance to near neighbours, as a share of the guess's error too.
    """
    canvas = Canvas(2.8, names=len(layers))
    place = range(len(levels))
    for number, (name, shares) in enumerate(layers.items()):
        canvas.line(place, shares, SERIES[number % len(SERIES)], 1.6, label=name, marker="o", markersize=3.5)
    for height, text, x in ((1.0, "guess", 0.0), (neighbours, "near neighbours", 0.25)):  # side by side if close
        canvas.axes.axhline(height, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        where = {"xy": (x, height), "xycoords": ("axes fraction", "data"), "xytext": (3, -2)}
        canvas.axes.annotate(text, **where, textcoords="offset points", va="top", color=INK, size=7.5)
    canvas.axes.set_xticks(place, [f"{level:g}" for level in levels])
    canvas.axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    canvas.axes.set_ylim(bottom=0)
    canvas.axes.set(xlabel="noise σ", ylabel="attack error / guess")
    canvas.legend()
    return canvas


@drawing
def kind_bars(sizes: Mapping[str, int]) -> Canvas:
    """Bytes of each kind of message."""
    canvas = Canvas(0.6 + 0.24 * max(len(sizes), 1))
    canvas.axes.barh(range(len(sizes)), list(sizes.values()), 0.55, color=SERIES[0])
    for row, size in enumerate(sizes.values()):
        canvas.note(size, row, bytes_text(size))
    canvas.rows(list(sizes))
    canvas.axes.margins(x=0.14)
    canvas.axes.set_xlim(left=0, right=None if any(sizes.values()) else 1)
    canvas.axes.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
    canvas.axes.locator_params(axis="x", nbins=5)
    return canvas


@drawing
def heat_map(sizes: Mapping[tuple[str, str], int]) -> Canvas:
    """Bytes from each party (down) to each party (across), the server first; darker is more."""
    parties = sorted({name for pair in sizes for name in pair}, key=party_order)
    canvas = Canvas(min(0.8 + 0.36 * len(parties), 6.0))
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
    canvas.axes.set_xticks(range(len(parties)), map(clip, parties) if few else [""] * len(parties))
    canvas.axes.set(xlabel="to", ylabel="from", xlim=(-0.5, len(parties) - 0.5))
    canvas.axes.grid(False)
    canvas.axes.tick_params(length=0)
    canvas.axes.spines[:].set_visible(False)
    return canvas
