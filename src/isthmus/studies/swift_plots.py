"""Figures of the Swift-FedGNN studies: scores against time and bytes, and against how often silos cross."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from isthmus.report import page
from isthmus.report.compare_plots import price_curves
from isthmus.report.drawing import INK, SERIES, Chart, drawing
from isthmus.runs.network_time import LinkConfig
from isthmus.studies.results import Findings, RowResult
from isthmus.studies.study import Metrics


def prices(findings: Findings) -> str:
    """The figure of every row's validation score against emulated seconds and bytes, mean over seeds."""
    curves = {}
    for line in findings.lines:
        runs = [run for run in line.runs if run["curve"]["epoch"]]
        if runs:
            seconds = _mean([network_seconds(run) for run in runs])
            sizes, scores = (_mean([run["curve"][name] for run in runs]) for name in ("bytes", "valid"))
            curves[line.row.label] = seconds, sizes, scores
    if not curves:
        return ""
    caption = "Validation accuracy against emulated seconds and against bytes of training, mean over seeds."
    return page.figure(price_curves(curves, "accuracy"), caption)


def _mean(curves: Sequence[Sequence[float | None]]) -> list[float]:
    """The mean of curves of equal length, point by point."""
    return [fmean(value for value in values if value is not None) for values in zip(*curves, strict=False)]


def surface(findings: Findings) -> str:
    """The figure of scores by how often (I) and how many (K) of M silos cross, and against K / (I M)."""
    points = [(line, *_interval_and_silos(line)) for line in findings.lines if findings.headline(line).ours is not None]
    if not points:
        return ""
    caption = (
        "Left: each line is one number of silos K that cross, against the steps I between crossings. Right: the same "
        "scores against K / (I M). If only that ratio mattered, as the theorem's bound has it, dots would lie on one "
        "curve."
    )
    return page.figure(_surface(findings), caption)


def _interval_and_silos(line: RowResult) -> tuple[int, int]:
    """A row's steps between crossings (I), and silos that cross (K)."""
    schedule = line.row.overrides["schedule"]
    return schedule["every"], schedule["silos"]


@drawing
def _surface(findings: Findings) -> Chart:
    """The drawing of scores against I, one line for each K, and against K / (I M)."""
    silos = findings.facts["silos"]
    found: dict[int, list[tuple[int, float]]] = {}
    for line in findings.lines:
        cell = findings.headline(line)
        if cell.ours is not None:
            every, many = _interval_and_silos(line)
            found.setdefault(many, []).append((every, cell.ours.mean))
    chart = Chart(2.6, names=len(found), panels=2)
    for number, (many, points) in enumerate(sorted(found.items())):
        steps, scores = zip(*sorted(points), strict=True)
        look = {"color": SERIES[number % len(SERIES)], "markersize": 4, "linewidth": 1.2, "label": f"K = {many}"}
        chart.panels[0].plot(steps, scores, "o-", **look)
        chart.panels[1].plot([many / (every * silos) for every in steps], scores, "o", **look)
    periods = sorted({every for points in found.values() for every, _ in points})
    _log_axis(chart.panels[0], "steps between crossings, I", periods)
    _log_axis(chart.panels[1], "K / (I M)", [0.01, 0.1, 1.0])
    chart.panels[0].set_ylabel(findings.study.measure, color=INK)
    chart.axes = chart.panels[1]
    chart.legend()
    return chart


def _log_axis(axes: Any, name: str, ticks: Sequence[float]) -> None:
    """Make a horizontal axis logarithmic, with plain numbers at ``ticks``."""
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(name, color=INK)


def network_seconds(metrics: Metrics) -> list[float]:
    """Seconds of training until each validation of a run, over the links that its metrics name."""
    link, curve = LinkConfig(metrics["link"]["mbps"], metrics["link"]["latency_ms"]), metrics["curve"]
    computing = [sum(metrics["seconds_by_epoch"][:epoch]) for epoch in curve["epoch"]]
    waits = zip(computing, curve["busiest"], curve["legs"], strict=True)
    return [spent + link.transfer(busiest) + link.latency(legs) for spent, busiest, legs in waits]
