"""The first stage of a tuned study: every row tries equally many settings, and the validation score chooses.

Trials are ordinary runs with seeds of their own. Only their validation scores are read: the mean by which the epoch
within a run was selected too.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.runs.config import flat
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import merge_into, nest, parse_set
from isthmus.studies.plan import FINISHED, Job, StudyPlan, StudyRequest, configs
from isthmus.studies.study import Settings, Study, StudyRow

FOLDER = "tuning"
FIRST_SEED = 1000  # far above the seeds of reported runs


@dataclass(frozen=True)
class Trial:
    """A setting that a row tries, and the runs that try it."""

    row: StudyRow
    settings: Settings
    jobs: tuple[Job, ...]

    @property
    def finished(self) -> bool:
        """Whether all runs of the trial have ended."""
        return all(job.state == FINISHED for job in self.jobs)

    @property
    def score(self) -> float | None:
        """The mean validation score of the trial's runs; None before all have ended, or where one has no score."""
        if not self.finished:
            return None
        found = [RunFolder(job.path).metrics for job in self.jobs]
        scores = [metrics["valid"].get(metrics["metric"]) for metrics in found]
        return None if None in scores else fmean(scores)


@dataclass(frozen=True)
class Tuned:
    """All trials of a study; each is run with ``seeds`` seeds."""

    trials: tuple[Trial, ...]
    seeds: int

    @property
    def jobs(self) -> list[Job]:
        """All runs of all trials."""
        return [job for trial in self.trials for job in trial.jobs]

    def of(self, row: StudyRow) -> list[Trial]:
        """The trials of a row, in the order of its grid."""
        return [trial for trial in self.trials if trial.row.slug == row.slug]

    def chosen(self, row: StudyRow) -> Trial | None:
        """The trial of a row with the best validation score, the first of equals; None until all have ended."""
        trials = self.of(row)
        scores = {number: score for number, trial in enumerate(trials) if (score := trial.score) is not None}
        if not scores or not all(trial.finished for trial in trials):
            return None
        return trials[max(scores, key=lambda number: scores[number])]

    def settle_on(self, study: Study) -> Study:
        """The study whose rows have the settings that they chose; rows that have not chosen yet do not change."""
        rows = tuple(_with(row, found.settings) if (found := self.chosen(row)) else row for row in study.rows)
        return replace(study, rows=rows)

    def undecided(self, rows: Sequence[StudyRow]) -> dict[str, str]:
        """Why rows cannot run although all their trials have ended, by label."""
        return {
            f"{row.label}, tuning": "No trial has a validation score: all have diverged, or nothing is validated."
            for row in rows
            if row.compute is None
            and not row.left_out
            and all(trial.finished for trial in self.of(row))
            and self.chosen(row) is None
        }


def _with(row: StudyRow, settings: Settings) -> StudyRow:
    """The row with further settings among its overrides."""
    overrides: dict[str, Any] = {}
    for layer in (row.overrides, *(nest(key, value) for key, value in settings.items())):
        merge_into(overrides, layer)
    return replace(row, overrides=overrides)


def make_trials(study: Study, request: StudyRequest, out: Path) -> Tuned:
    """The trials of all rows; every configuration is resolved, so that errors are found before anything runs."""
    tuning = study.tuning
    assert tuning is not None
    _refuse_fixed(study, request)
    study = replace(study, base=merge_into(deepcopy(dict(study.base)), tuning.changes))
    seeds = request.tuning_seeds if request.tuning_seeds is not None else tuning.seeds
    if seeds < 1:
        raise IsthmusError(f"--tuning-seeds is {seeds}; it must be at least 1.")
    trials = []
    for row in (row for row in study.rows if row.trains):
        for settings in study.candidates(row):
            tried = replace(_with(row, settings), label=f"{row.label}, {settings_text(settings)}")
            place = out / FOLDER / row.slug / settings_text(settings).replace(" ", "")
            made = configs(study, tried, request, seeds, FIRST_SEED)
            jobs = tuple(Job(tried, config, place / f"seed-{config.seed}", row.slug) for config in made)
            trials.append(Trial(row, settings, jobs))
    return Tuned(tuple(trials), seeds)


def _refuse_fixed(study: Study, request: StudyRequest) -> None:
    """Raise if ``--set`` fixes a setting that the study tunes."""
    fixed = set(flat(parse_set(request.sets)))
    for row in study.rows:
        for key in fixed & {key for settings in study.candidates(row) for key in settings}:
            raise IsthmusError(f"--set {key}, but '{study.name}' tunes it for {row.label}; add --no-tune to fix it.")


def waiting(tuned: Tuned, plan: StudyPlan) -> list[Job]:
    """The unfinished runs of the trials of all wanted rows."""
    return [job for job in tuned.jobs if job.row_slug in plan.asked and job.state != FINISHED]


def settings_text(settings: Settings) -> str:
    """Settings as text: ``train.lr=0.01, exchange.gamma=0.5``."""
    return ", ".join(f"{key}={value}" for key, value in settings.items())


def as_records(tuned: Tuned) -> list[dict[str, Any]]:
    """Each trial as a dictionary: row, settings, seeds, validation score, and whether it was chosen."""
    chosen = {trial.row.slug: tuned.chosen(trial.row) for trial in tuned.trials}
    return [
        {
            "row": trial.row.label,
            "settings": dict(trial.settings),
            "seeds": [job.config.seed for job in trial.jobs],
            "valid": trial.score,
            "chosen": trial is chosen[trial.row.slug],
        }
        for trial in tuned.trials
    ]


def tuning_files(tuned: Tuned) -> dict[str, bytes]:
    """The contents of ``tuning.json`` and ``tuning.csv``, by name."""
    records = as_records(tuned)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("row", "settings", "seeds", "valid", "chosen"))
    for record in records:
        writer.writerow((record["row"], settings_text(record["settings"]), len(record["seeds"]), *_last(record)))
    return {"tuning.json": (json.dumps(records, indent=2) + "\n").encode(), "tuning.csv": out.getvalue().encode()}


def _last(record: Mapping[str, Any]) -> tuple[str, str]:
    """The last two columns of ``tuning.csv``: validation score, and ``yes`` for the chosen trial."""
    valid = "" if record["valid"] is None else f"{record['valid']:.6f}"
    return valid, "yes" if record["chosen"] else ""
