"""The findings of a study so far: the paper's values, ours, and their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import Any

from isthmus.runs.folder import RunFolder
from isthmus.studies.footing import unlike_data
from isthmus.studies.plan import FINISHED, Job, StudyPlan
from isthmus.studies.study import Metrics, Study, StudyColumn, StudyRow, Value
from isthmus.studies.tuning import Tuned


@dataclass(frozen=True)
class ComparedValue:
    """One place of the table: the paper's value, ours as the mean over runs, and ours with all predictions pooled.

    ``runs`` holds the number of each run; None where a run has none, because it did not reach a target or its score is
    not defined.
    """

    paper: Value | None
    ours: Value | None
    pooled: float | None
    runs: tuple[float | None, ...] = ()

    @property
    def seeds(self) -> int:
        """How many runs have a number."""
        return sum(value is not None for value in self.runs)

    @property
    def missing(self) -> int:
        """How many runs have no number."""
        return len(self.runs) - self.seeds

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's value; None where either is missing."""
        return None if self.paper is None or self.ours is None else self.ours.mean - self.paper.mean


@dataclass(frozen=True)
class RowResult:
    """A row of the study with the numbers of its finished runs; ``error`` is what went wrong in the others."""

    row: StudyRow
    cells: Mapping[str, ComparedValue]
    seeds: tuple[int, ...]
    seconds: float | None
    error: str = ""
    runs: tuple[Metrics, ...] = ()  # metrics.json of each finished run


@dataclass(frozen=True)
class Findings:
    """A study with the results of its rows; ``facts`` say what ran and where, ``tuned`` what rows chose before."""

    study: Study
    lines: tuple[RowResult, ...]
    facts: Mapping[str, Any]
    tuned: Tuned | None = None
    unlike: tuple[str, ...] = ()  # sentences on runs that do not stand on one footing

    @property
    def complete(self) -> bool:
        """Whether every row has all its seeds."""
        return all(len(line.seeds) == self.facts["seeds"] for line in self.lines if not line.row.left_out)

    def headline(self, line: RowResult) -> ComparedValue:
        """The number of a row in the column that rows are judged by."""
        return line.cells[self.study.headline.label]

    def order(self) -> tuple[int, list[tuple[str, str]]]:
        """The number of pairs of rows that are no ties in the paper, and those pairs that are not in its order here."""
        pairs, swapped = 0, []
        judged = [(line.row.label, cell.paper.mean, cell.ours.mean) for line in self.lines
                  if (cell := self.headline(line)).paper is not None and cell.ours is not None]  # fmt: skip
        for (a, paper_a, ours_a), (b, paper_b, ours_b) in combinations(judged, 2):
            if abs(paper_a - paper_b) >= self.study.close:
                pairs += 1
                if (paper_a - paper_b) * (ours_a - ours_b) <= 0:
                    swapped.append((a, b))
        return pairs, swapped


def collect(
    plan: StudyPlan, errors: Mapping[str, str], facts: Mapping[str, Any], tuned: Tuned | None = None
) -> Findings:
    """The findings of all finished runs of a plan; ``errors`` are what went wrong, by label of the run."""
    lines = []
    for row in plan.study.rows:
        jobs = plan.of(row)
        done = [job for job in jobs if job.state == FINISHED]
        found = [RunFolder(job.path).metrics for job in done]
        trials = [job.label for trial in (tuned.of(row) if tuned else ()) for job in trial.jobs]
        labels = [*trials, f"{row.label}, tuning", *(job.label for job in jobs)]
        error = "\n".join(errors[label] for label in labels if label in errors)
        cells = {column.label: _cell(row, column, found) for column in plan.study.columns}
        times = [float(metrics["seconds"]) for metrics in found if metrics.get("seconds") is not None]
        seeds = tuple(job.config.seed for job in done)
        lines.append(RowResult(row, cells, seeds, fmean(times) if times else None, error, tuple(found)))
    return Findings(plan.study, tuple(lines), {**facts, **_where(plan.jobs)}, tuned, tuple(unlike_data(plan.jobs)))


def _cell(row: StudyRow, column: StudyColumn, found: Sequence[Metrics]) -> ComparedValue:
    """The number of a row in a column, from the metrics of its finished runs."""
    runs = tuple(column.read(metrics) for metrics in found)
    ours = [value for value in runs if value is not None]
    pooled = [value for metrics in found if (value := column.pooled(metrics)) is not None]
    mean = Value(fmean(ours), stdev(ours) if len(ours) > 1 else None) if ours else None
    return ComparedValue(row.paper.get(column.label), mean, fmean(pooled) if pooled else None, runs)


def _where(jobs: Sequence[Job]) -> dict[str, Any]:
    """The distinct machines that finished runs ran on, according to their metrics."""
    found = [RunFolder(job.path).metrics.get("environment") for job in jobs if job.state == FINISHED]
    said = [{key: each.get(key) for key in ("device", "machine", "torch", "python")} for each in found if each]
    return {"hardware": [one for number, one in enumerate(said) if one not in said[:number]]}
