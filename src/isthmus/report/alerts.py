"""The section of a report on alerts: how many of the highest scores are right, by silo, and precision over recall."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from isthmus.report.drawing import INK, MUTED, SERIES, Chart, clip, drawing
from isthmus.report.page import CellRow, figure, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import fact, final_score
from isthmus.runs.text import count_text

_POOLED = "all silos, pooled"
_DRAWN = len(SERIES)  # curves that can be told apart


def alerts(folder: RunFolder) -> str:
    """The section; empty where labels are not of two classes, or nothing was scored."""
    found = fact(folder, "alerts", {})
    each = alert_rows(found)
    if not any(figures.get("at") for figures in each.values()):
        return ""
    name = escape(str(found["class"]))
    about = (
        f"<p>How far one gets who works through the highest scores of “{name}”. The base rate is the share of "
        f"“{name}” among all that was scored: the precision, and the PR-AUC, of a coin. Lift is precision "
        "over base rate. Of equal scores at the cut their share is counted.</p>"
    )
    ends = [_highest(folder, found, each), _thresholds(each)]
    curves = {name: figures["curve"] for name, figures in each.items() if figures.get("curve")}
    if curves:
        rates = {name: float(each[name]["base_rate"]) for name in curves}
        ends.append(figure(pr_curve(dict(list(curves.items())[:_DRAWN]), rates), "Precision over recall, test."))
    return f"<h2>Alerts</h2>{about}{''.join(ends)}"


def alert_rows(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Figures by silo, and of all pooled first where there are any."""
    pooled = {_POOLED: dict(found["pooled"])} if found.get("pooled") else {}
    return pooled | {str(name): dict(figures) for name, figures in (found.get("silos") or {}).items()}


def percent(value: float | None, digits: int = 1) -> str:
    """A share in per cent; a dash where it is not defined."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def times(value: float | None) -> str:
    """A lift; a dash where it is not defined."""
    return "–" if value is None else f"{value:.1f} ×"


def looked_at(figures: Mapping[str, Any], a_day: int) -> dict[str, Mapping[str, Any]]:
    """By how many scores are looked at (the highest 10, 10 a day, ...): alerts, precision, recall, lift."""
    at = figures.get("at") or {}
    found = {_cut(int(k), told["alerts"]): told for k, told in at.items()}
    daily = figures.get("daily")
    return found | ({f"{a_day:,} a day, on {count_text(daily['days'], 'day')}": daily} if daily else {})


def _cut(k: int, alerts: float) -> str:
    """How many of the highest scores were looked at; all, where there are fewer than k."""
    return f"the highest {k:,}" if alerts >= k else f"all {alerts:,.0f}"


def _highest(folder: RunFolder, found: Mapping[str, Any], each: Mapping[str, dict[str, Any]]) -> str:
    head = ["Silo", "Scored", "Base rate", "PR-AUC", "Looked at", "Precision", "Recall", "Lift"]
    rows: list[CellRow] = []
    for name, figures in each.items():
        silo = "" if name == _POOLED else name
        auc = final_score(folder, "test" if silo else "test_pooled", "pr_auc", silo)
        known = [name, f"{figures['scored']:,}", percent(figures["base_rate"], 2), percent(auc)]
        for what, told in looked_at(figures, int(found["a_day"])).items():
            lift = times(told["lift"])
            rows.append([*known, what, percent(told["precision"]), percent(told["recall"]), lift])
            known = ["", "", "", ""]
    return table(head, rows, "Of the test split. A day is one of UTC, or 86,400 units of time.")


def equal_text(told: Mapping[str, Any]) -> str:
    """That a threshold lies above equal scores, which together would exceed the budget; empty where there are none."""
    return f", above {told['equal']:,.0f} equal scores" if told.get("equal") else ""


def _a_day(told: Mapping[str, Any]) -> str:
    """Alerts a day on average, and on the busiest day."""
    if told.get("alerts_a_day") is None:
        return "–"
    busiest = f" (at most {told['busiest_day']:,.0f})" if "busiest_day" in told else ""
    return f"{told['alerts_a_day']:.1f}{busiest}"


def _thresholds(each: Mapping[str, dict[str, Any]]) -> str:
    head = ["Silo", "Threshold for", "At", "Alerts", "A day", "Precision", "Recall"]
    what = {"f1": "the best F1", "budget": "the budget of alerts a day"}
    rows: list[CellRow] = []
    for name, figures in each.items():
        for kind, told in (figures.get("thresholds") or {}).items():
            at = "none" if told["threshold"] is None else f"{told['threshold']:.4g}"
            cells = [at + equal_text(told), f"{told['alerts']:,.0f}", _a_day(told)]
            rows.append([name, what[kind], *cells, percent(told["precision"]), percent(told["recall"])])
    if not rows:
        return ""
    note = (
        "Thresholds were chosen on the validation split alone, where the budget is never exceeded, and are applied to "
        "the test split, where it may be."
    )
    return f"<h3>Thresholds</h3>{table(head, rows, note)}"


@drawing
def pr_curve(curves: Mapping[str, Mapping[str, list[float]]], rates: Mapping[str, float]) -> Chart:
    """Precision over recall of each silo, and of all pooled; dashes are the pooled, or the first, base rate."""
    chart = Chart(2.9, names=len(curves))
    for number, (name, curve) in enumerate(curves.items()):
        width = 2.0 if not number else 1.1
        chart.line(curve["recall"], curve["precision"], SERIES[number], width, label=clip(name))
    rate = next(iter(rates.values()))
    chart.axes.axhline(rate, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    where = {"xy": (1.0, rate), "xycoords": ("axes fraction", "data"), "xytext": (-3, 3)}
    chart.axes.annotate("base rate", **where, textcoords="offset points", ha="right", color=INK, size=7.5)
    for axis, what in (("x", "recall"), ("y", "precision")):
        getattr(chart.axes, f"set_{axis}lim")(0, 1.02)
        getattr(chart.axes, f"set_{axis}label")(what)
        getattr(chart.axes, f"{axis}axis").set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    chart.legend()
    return chart
