"""The table of alerts that is printed after a run: how many of the highest scores are right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from isthmus.report.alerts import alert_rows, equal_text, looked_at, percent, times

_MOST = 6  # silos in a terminal; the report has all
_WHAT = {"f1": "the best F1 in validation", "budget": "{a_day:,} a day in validation"}


def alerts_table(metrics: Mapping[str, Any]) -> Table | None:
    """Precision, recall and lift of the highest scores, by silo; None where labels are not of two classes."""
    found = metrics.get("alerts") or {}
    each = {name: figures for name, figures in alert_rows(found).items() if figures.get("at")}
    if not each:
        return None
    more = f"; {len(each) - _MOST} more silos in the report" if len(each) > _MOST else ""
    title = f"alerts: the highest test scores of '{found['class']}', base rate beside them{more}"
    table = Table(title=title, title_justify="left")
    for column in ("silo", "base rate", "looked at", "precision", "recall", "lift"):
        table.add_column(column, justify="left" if column in ("silo", "looked at") else "right")
    for name, figures in list(each.items())[:_MOST]:
        known = name, percent(figures["base_rate"], 2)
        for what, told in looked_at(figures, int(found["a_day"])).items():
            table.add_row(*known, what, percent(told["precision"]), percent(told["recall"]), times(told["lift"]))
            known = "", ""
        for kind, told in (figures.get("thresholds") or {}).items():
            chosen = _WHAT[kind].format(a_day=found["a_day"]) + equal_text(told)
            at = "no threshold keeps" if told["threshold"] is None else f"above {told['threshold']:.3g},"
            what = f"{at} {chosen}: {told['alerts']:,.0f}"
            table.add_row("", "", what, percent(told["precision"]), percent(told["recall"]), times(told["lift"]))
    return table
