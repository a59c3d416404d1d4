"""Axes of a grid whose value is chosen by validation, at every place of its other axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from isthmus.report.score_table import ScoreEntry, ScoreTable
from isthmus.runs.text import metric_label
from isthmus.studies.results import Findings, RowResult
from isthmus.studies.study import Study

SETTING = "setting"  # the key of the table of validation scores beside the axes that are not chosen


@dataclass(frozen=True)
class Choice:
    """The settings that were tried at one place, by name; ``chosen`` is empty until all have all their seeds."""

    place: Mapping[str, str]
    tried: Mapping[str, RowResult]
    chosen: str = ""


def kept_axes(study: Study) -> tuple[str, ...]:
    """The axes whose values are not chosen."""
    return tuple(axis for axis in study.axes if axis not in study.chosen)


def choices(findings: Findings) -> list[Choice]:
    """What was tried at every place of the axes that are not chosen, and what was chosen."""
    study = findings.study
    places: dict[tuple[str, ...], dict[str, RowResult]] = {}
    for line in findings.lines:
        if not line.row.left_out:
            setting = ", ".join(f"{axis}={line.row.at[axis]}" for axis in study.chosen)
            places.setdefault(tuple(line.row.at[axis] for axis in kept_axes(study)), {})[setting] = line
    return [
        Choice(dict(zip(kept_axes(study), place, strict=True)), tried, _best(tried, findings.facts["seeds"]))
        for place, tried in places.items()
    ]


def _best(tried: Mapping[str, RowResult], seeds: int) -> str:
    """The setting with the best mean validation score, the first of equals; empty before all runs have ended.

    A setting that has no score with one of its seeds, because it diverged, is not chosen.
    """
    if any(len(line.seeds) < seeds for line in tried.values()):
        return ""
    scores = {setting: valid_scores(line) for setting, line in tried.items()}
    means = {setting: fmean(found.values()) for setting, found in scores.items() if len(found) == seeds}
    return max(means, key=lambda setting: means[setting], default="")


def valid_scores(line: RowResult) -> dict[int, float]:
    """The validation score, in per cent, of every seed that has one: of the metric and way that a run is known by."""
    runs = zip(line.seeds, line.runs, strict=True)
    found = {seed: metrics["valid"].get(metrics["metric"]) for seed, metrics in runs}
    return {seed: 100.0 * value for seed, value in found.items() if value is not None}


def validation_table(findings: Findings) -> ScoreTable:
    """The validation scores of all settings at every place, of which the best is the one that is chosen."""
    entries = [
        ScoreEntry({**choice.place, SETTING: setting}, "validation", valid_scores(line))
        for choice in choices(findings)
        for setting, line in choice.tried.items()
    ]
    metrics = {str(metrics["metric"]) for line in findings.lines for metrics in line.runs}
    measure = f"validation {metric_label(metrics.pop()) if len(metrics) == 1 else 'score'}, %"
    keys = (*kept_axes(findings.study), SETTING)
    return ScoreTable(findings.study.title, measure, keys, SETTING, tuple(entries))


def chosen_lines(findings: Findings) -> tuple[list[RowResult], list[str]]:
    """The rows that were chosen, and sentences on what was chosen where."""
    lines, said = [], []
    for choice in choices(findings):
        where = " / ".join(choice.place.values())
        if choice.chosen:
            lines.append(choice.tried[choice.chosen])
            said.append(f"{where}{': ' * bool(where)}{choice.chosen}")
        elif all(len(line.seeds) == findings.facts["seeds"] for line in choice.tried.values()):
            said.append(f"{where}{': ' * bool(where)}none, since no setting has a validation score with all seeds")
        else:
            said.append(f"{where}{': ' * bool(where)}not yet, since runs are missing")
    return lines, [f"Chosen by validation: {'; '.join(said)}."]
