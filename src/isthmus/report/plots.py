"""Figures of one run as inline SVG: curves, scores by silo, attacks, and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isthmus.core.kinds import BELOW, owner_of_devices
from isthmus.report.drawing import INK, MUTED, SERIES, Chart, SiloScores, Values, clip, drawing
from isthmus.runs.text import bytes_text, gain_text, party_order, score_text


@drawing
def loss_curve(steps: Sequence[int], loss: Values) -> Chart:
    """Training loss by step; on a log scale where it falls to less than a twentieth."""
    chart = Chart(2.3)
    known = [v for v in loss if v is not None]
    if known and min(known) > 0 and max(known) > 20 * min(known):
        chart.axes.set_yscale("log")
    chart.line(steps, loss, SERIES[0], 1.4)
    chart.axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    chart.axes.set_ylabel("training loss")
    chart.count("step")
    return chart


@drawing
def valid_curve(
    epochs: Sequence[int], overall: Values, silos: Mapping[str, Values], metric: str, best: int = 0
) -> Chart:
    """The validation score of the federation by epoch, and of single silos as thin lines; ``best``: epoch to mark."""
    chart = Chart(2.8)
    named = len(silos) < len(SERIES)
    for number, (name, values) in enumerate(silos.items() if len(silos) > 1 else ()):
        colour = SERIES[1 + number] if named else MUTED
        label = clip(name) if named else None
        chart.line(epochs, values, colour, 0.9, alpha=0.75 if named else 0.35, label=label)
    chart.line(epochs, overall, SERIES[0], 2.0, label="all silos" if len(silos) > 1 else None)
    if best:
        chart.axes.axvline(best, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        where = {"xy": (best, 0), "xycoords": ("data", "axes fraction"), "xytext": (-3, 4)}
        chart.axes.annotate("selected", **where, textcoords="offset points", ha="right", color=INK, size=7.5)
    chart.scores("y", metric, "validation")
    chart.count("epoch")
    chart.legend()
    return chart


@drawing
def silo_bars(scores: SiloScores, alone: SiloScores | None, metric: str) -> Chart:
    """The test score of each silo; with scores of silos that trained ``alone``, these too, and the gain."""
    chart = Chart(0.85 + (0.36 if alone else 0.26) * len(scores))
    rows = [row - (0.1 if alone else 0.0) for row in range(len(scores))]
    chart.axes.barh(rows, [s or 0.0 for s in scores.values()], 0.42, color=SERIES[0], label="this run")
    if alone:
        lengths, style = [alone.get(name) or 0.0 for name in scores], {"color": MUTED, "alpha": 0.6}
        chart.axes.barh([row + 0.37 for row in rows], lengths, 0.22, label="each silo alone", **style)
        chart.axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, handlelength=1.2)
    for row, (name, score) in zip(rows, scores.items(), strict=True):
        gain = f"  ({gain_text(metric, score, alone.get(name))})" if alone else ""
        chart.note(score or 0.0, row, score_text(metric, score) + gain)
    chart.rows(list(scores))
    chart.scores("x", metric, "test")
    chart.axes.margins(x=0.16 if alone else 0.1)
    chart.axes.set_xlim(left=0)
    return chart


@drawing
def attack_curve(levels: Sequence[float], layers: Mapping[str, Values], neighbours: float) -> Chart:
    """The attack's error as a share of a guess's error, against noise, with one line for each layer.

    ``neighbours`` is the squared distance to near neighbours, as a share of the guess's error too.
    """
    chart = Chart(2.8, names=len(layers))
    place = range(len(levels))
    for number, (name, shares) in enumerate(layers.items()):
        chart.line(place, shares, SERIES[number % len(SERIES)], 1.6, label=name, marker="o", markersize=3.5)
    for height, text, x in ((1.0, "guess", 0.0), (neighbours, "near neighbours", 0.25)):  # side by side if close
        chart.axes.axhline(height, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        where = {"xy": (x, height), "xycoords": ("axes fraction", "data"), "xytext": (3, -2)}
        chart.axes.annotate(text, **where, textcoords="offset points", va="top", color=INK, size=7.5)
    chart.axes.set_xticks(place, [f"{level:g}" for level in levels])
    chart.axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    chart.axes.set_ylim(bottom=0)
    chart.axes.set(xlabel="noise σ", ylabel="attack error / guess")
    chart.legend()
    return chart


@drawing
def kind_bars(sizes: Mapping[str, int]) -> Chart:
    """Bytes of each kind of message, by its name in plain words."""
    chart = Chart(0.6 + 0.24 * max(len(sizes), 1))
    chart.axes.barh(range(len(sizes)), list(sizes.values()), 0.55, color=SERIES[0])
    for row, size in enumerate(sizes.values()):
        chart.note(size, row, bytes_text(size))
    chart.rows(list(sizes), whole=True)
    chart.axes.margins(x=0.2)
    chart.axes.set_xlim(left=0, right=None if any(sizes.values()) else 1)
    chart.axes.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
    chart.axes.locator_params(axis="x", nbins=5)
    return chart


@drawing
def heat_map(sizes: Mapping[tuple[str, str], int]) -> Chart:
    """Bytes from each party (down) to each party (across), the server first; darker is more."""
    parties = sorted({name for pair in sizes for name in pair}, key=party_order)
    chart = Chart(min(0.8 + 0.36 * len(parties), 6.0))
    top, few = max([*sizes.values(), 1]), len(parties) <= 10
    place = {name: i for i, name in enumerate(parties)}
    for (sender, receiver), size in sizes.items():
        if not size:
            continue
        x, y, shade = place[receiver], place[sender], 0.06 + 0.6 * (size / top) ** 0.4
        chart.axes.bar(x, 0.94, 0.94, y - 0.47, color=SERIES[0], alpha=shade, linewidth=0)
        if few:
            chart.axes.text(x, y, bytes_text(size), ha="center", va="center", size=7)
    every = -(-len(parties) // 24)  # as many names as there is room for
    chart.rows([name if i % every == 0 else "" for i, name in enumerate(parties)])
    chart.axes.set_xticks(range(len(parties)), map(_broken, parties) if few else [""] * len(parties))
    chart.axes.set(xlabel="to", ylabel="from", xlim=(-0.5, len(parties) - 0.5))
    chart.axes.grid(False)
    chart.axes.tick_params(length=0)
    chart.axes.spines[:].set_visible(False)
    return chart


def _broken(name: str) -> str:
    """The name of a party for a narrow place: that of devices in two lines."""
    owner = owner_of_devices(name)
    return clip(name) if owner is None else f"{BELOW.strip()}\n{clip(owner)}"
