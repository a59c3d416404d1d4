"""Runs side by side: only those that stand on one footing, and in words why others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import IsthmusError
from isthmus.page.charts import COLOURS, DrawnCurve, chart
from isthmus.page.curves import live_curves
from isthmus.page.footing import common_sight
from isthmus.page.run_page import Picture
from isthmus.page.sections import Section, section
from isthmus.page.shown_runs import ShownRun
from isthmus.runs.text import bytes_text, duration, epsilon_text, metric_label, score_text, spread_text

if TYPE_CHECKING:
    from isthmus.report.compared_run import ComparedRun

MOST = 24  # runs side by side


@dataclass(frozen=True)
class SideBySide:
    """What the page of a comparison shows: a table with cells of text, sentences, and curves."""

    title: str
    head: list[str]
    rows: list[list[str]]
    cautions: list[str]
    curves: Section


def reasons_apart(ticked: Sequence[ShownRun], runs: Sequence[ShownRun]) -> dict[str, str]:
    """By name, why a run may not stand beside those that are ticked; runs that may are left out."""
    found = {}
    for run in runs:
        others = [each for each in ticked if each.name != run.name]
        why = why_apart([*others, run]) if others else _alone(run)
        if why:
            found[run.name] = why
    return found


def why_apart(runs: Sequence[ShownRun]) -> str:
    """Why runs do not stand on one footing, the last seen from those before it; empty where they do."""
    for run in runs:
        if _alone(run):
            return _alone(run)
    footings = [run.footing for run in runs if run.footing is not None]
    for first in footings[:-1]:
        why = first.apart(footings[-1])
        if why:
            return why
    parted = sum(not footing.merged for footing in footings) > 1 and not common_sight(footings)
    return "no score that saw what those of all others saw" if parted else ""


def _alone(run: ShownRun) -> str:
    """Why a run cannot be compared with any other."""
    if run.problem:
        return "a damaged folder"
    return "" if run.footing is not None else "it has not finished"


def side_by_side(runs: Sequence[ShownRun], paths: Mapping[str, Path]) -> SideBySide:
    """The comparison of runs on one footing; raises in words where they stand on several."""
    from isthmus.report.compared_run import cautions, comparison
    from isthmus.runs.folder import RunFolder

    if not 2 <= len(runs) <= MOST:
        raise IsthmusError(f"{len(runs)} runs are ticked; tick two or more on the list of runs, at most {MOST}.")
    for place in range(1, len(runs) + 1):
        why = why_apart(runs[:place])
        if why:
            raise IsthmusError(f"'{runs[place - 1].name}' does not stand beside the others: {why}.")
    rows = comparison([RunFolder.open(paths[run.name]) for run in runs])
    head, cells, left_out = _table(runs, rows)
    metric = metric_label(rows[0].metric)
    title = f"{len(rows)} runs on {rows[0].data}: test {metric}"
    return SideBySide(title, head, cells, [*left_out, *cautions(rows)], section(lambda: _curves(runs, paths)))


def _table(runs: Sequence[ShownRun], rows: Sequence[ComparedRun]) -> tuple[list[str], list[list[str]], list[str]]:
    """Titles, cells, and sentences on columns that are left out since other nodes were scored in them."""
    from isthmus.report.compared_run import SAW

    footings = [run.footing for run in runs if run.footing is not None]
    seen = [saw for saw in SAW if saw in common_sight(footings)] or ["global"]
    counts = {saw: {row.tests[saw].count for row in rows if saw in row.tests and not row.merged} for saw in seen}
    alike = [saw for saw in seen if len(counts[saw]) <= 1]
    said = [
        f"The column '{SAW[saw]}' is left out: it scores other numbers of nodes." for saw in seen if saw not in alike
    ]
    head = ["Run", "Method", *(f"Test, {SAW[saw]}" for saw in alike)]
    head += ["Crossed in training", "Crossed per step", "Time of training", "Worst ε"]
    return head, [_cells(run, row, alike) for run, row in zip(runs, rows, strict=True)], said


def _cells(run: ShownRun, row: ComparedRun, alike: Sequence[str]) -> list[str]:
    """The cells of one run; a merged run has one score, beside those of all others."""
    scores = []
    for saw in alike:
        scored = row.tests.get("global" if row.merged else saw)
        scores.append("–" if scored is None else spread_text(row.metric, scored.test, scored.deviation))
    sizes = ["–" if size is None else bytes_text(size) for size in (row.training_bytes, row.bytes_per_step)]
    epsilon = "merged" if row.merged else epsilon_text(row.epsilon)
    return [run.name, row.method, *scores, *sizes, duration(row.seconds), epsilon]


def _curves(runs: Sequence[ShownRun], paths: Mapping[str, Path]) -> Picture:
    """The validation curves of the runs, those that have a colour of their own."""
    metric = runs[0].metric
    each = [(run.name, live_curves(paths[run.name], metric)) for run in runs[:COLOURS]]
    lines = [DrawnCurve(name, found.epochs, found.valid, number) for number, (name, found) in enumerate(each)]
    svg = chart("validation", lines, "epoch", lambda value: score_text(metric, value, digits=0))
    if not svg:
        raise IsthmusError("None of these runs has validations.")
    rest = f"Validation {metric_label(metric)} by epoch."
    rest += f" The first {COLOURS} of {len(runs)} runs are drawn." if len(runs) > COLOURS else ""
    return Picture(svg, [(line.name, line.colour) for line in lines], rest)
