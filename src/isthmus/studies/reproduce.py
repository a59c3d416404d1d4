"""The work of ``isthmus reproduce``: plan a study, tune, run what is missing, and write results after every row."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, Terminated
from isthmus.core.files import write_atomic
from isthmus.core.version import VERSION
from isthmus.studies import catalogue, plots, tuning
from isthmus.studies.engine import run_jobs, sole_owner
from isthmus.studies.forecast import read_forecast, short_job, whole_seconds, write_forecast
from isthmus.studies.grid_page import grid_page
from isthmus.studies.merge import check_others, take_over, to_come
from isthmus.studies.needed_data import find_data
from isthmus.studies.page import study_page
from isthmus.studies.plan import FINISHED, Job, StudyPlan, StudyRequest, plan_rows, plan_study, settle
from isthmus.studies.progress import show_for
from isthmus.studies.record import as_csv, as_json
from isthmus.studies.results import Findings, collect
from isthmus.studies.score_tables import layout_of, paper_files
from isthmus.studies.study import Study
from isthmus.studies.tuning import Tuned, make_trials, waiting

_BETWEEN = 60.0  # seconds between two writings of results, for which all runs are read; workers wait meanwhile


def run_study(study: Study, request: StudyRequest) -> tuple[Findings, Path, list[str]]:
    """Run the unfinished rows of a study; returns the findings, the folder, and labels of failed runs."""
    plan = plan_study(study, request)
    layout_of(plan.study)  # refuses keys that the study does not have, before anything runs
    tuned = make_trials(plan.study, request, plan.out) if plan.study.tuning and request.tune else None
    check_others([*plan.jobs, *(tuned.jobs if tuned else ())], plan.out, request.merge)
    facts = _facts(plan, request)
    errors: dict[str, str] = {}
    with sole_owner(plan.out) as lock:
        if tuned is not None:
            settle(tuned.jobs, plan.asked, request.overwrite)
            take_over(tuned.jobs, plan.out, request.merge)
            find_data([*waiting(tuned, plan), *to_come(plan.wanted, plan.out, request.merge)])
            for _ in _once_a_minute(_run(waiting(tuned, plan), request, lock, errors, plan.out)):
                write_files(tuning.tuning_files(tuned), plan.out)
            write_files(tuning.tuning_files(tuned), plan.out)
            plan = plan_rows(tuned.settle_on(plan.study), request, plan.out)
            errors |= tuned.undecided([job.row for job in plan.wanted])
        settle(plan.jobs, plan.asked, request.overwrite)
        take_over(plan.jobs, plan.out, request.merge)
        missing = [job for job in plan.wanted if job.state != FINISHED and _ready(job, tuned)]
        find_data(missing)
        for _ in _once_a_minute(_run(missing, request, lock, errors, plan.out)):
            write_findings(collect(plan, errors, facts, tuned), plan.out)
        findings = collect(plan, errors, facts, tuned)
        write_findings(findings, plan.out)
    return findings, plan.out, list(errors)


def _once_a_minute(jobs: Iterator[Job]) -> Iterator[Job]:
    """Run through all jobs as they end, and yield at most one a minute, after which results are written."""
    yielded = time.monotonic()
    for job in jobs:
        if time.monotonic() - yielded > _BETWEEN:
            yield job
            yielded = time.monotonic()


def _ready(job: Job, tuned: Tuned | None) -> bool:
    """Whether the settings of a job's row are chosen; they are not where all its trials failed."""
    return tuned is None or job.row.compute is not None or tuned.chosen(job.row) is not None


def _run(jobs: Sequence[Job], request: StudyRequest, lock: int, errors: dict[str, str], out: Path) -> Iterator[Job]:
    """Run all jobs, yield each as it ends, and add to ``errors`` what went wrong, by label."""
    show = show_for(jobs, request.jobs, read_forecast(out))
    try:
        with closing(run_jobs(jobs, request.jobs, lock, show)) as ended:
            for job, error in ended:
                errors |= {job.label: error} if error else {}
                yield job
    except (KeyboardInterrupt, Terminated):
        raise IsthmusError("Interrupted; the same command goes on where it stopped.") from None
    finally:
        show.close()


def forecast_study(study: Study, request: StudyRequest) -> tuple[dict[str, float], dict[str, int]]:
    """Time a few epochs of every wanted row; returns by row the seconds of a run, and the number of runs.

    Runs of all seeds count, those of tuning too. The forecast is kept in the folder, for the time that later runs show
    as left.
    """
    plan = plan_study(study, request)
    tuned = make_trials(plan.study, request, plan.out) if plan.study.tuning and request.tune else None
    first = {job.row.slug: job for job in reversed(plan.wanted) if job.row.compute is None}
    find_data(plan.wanted)
    with tempfile.TemporaryDirectory() as place, sole_owner(plan.out) as lock:
        short = {slug: short_job(job, Path(place)) for slug, job in reversed(first.items())}
        show = show_for(list(short.values()), 1, {})
        errors = {job.row.slug: error for job, error in run_jobs(list(short.values()), 1, lock, show) if error}
        for slug, error in errors.items():
            raise IsthmusError(f"{first[slug].row.label} failed: {error.splitlines()[-1]}")
        took = show.watch.took
        known = {slug: whole_seconds(first[slug], job, took[job.path]) for slug, job in short.items()}
    write_forecast(plan.out, known)
    runs: dict[str, int] = {}
    for job in [*plan.wanted, *(waiting(tuned, plan) if tuned else ())]:
        runs[job.row_slug] = runs.get(job.row_slug, 0) + 1
    return known, runs


def write_findings(findings: Findings, out: Path) -> None:
    """Write results.csv, results.json, report.html and tables; of a paper's table also plots, of a tuned one trials."""
    grid = bool(findings.study.axes)
    files = {
        "results.csv": as_csv(findings).encode(),
        "results.json": as_json(findings).encode(),
        **paper_files(findings),
        **({} if grid else plots.plot_files(findings)),
        "report.html": (grid_page(findings) if grid else study_page(findings)).encode(),
    }
    write_files(files | (tuning.tuning_files(findings.tuned) if findings.tuned else {}), out)


def write_files(files: Mapping[str, bytes], out: Path) -> None:
    """Write files by name into the folder ``out``, each in one move."""
    for name, content in files.items():
        write_atomic(out / name, content)


def _facts(plan: StudyPlan, request: StudyRequest) -> dict[str, Any]:
    """What was asked for, and which version of the program ran, for ``results.json``."""
    first = plan.jobs[0].config
    return {
        "command": shlex.join(["isthmus", *sys.argv[1:]]),
        "quick": request.quick,
        "silos": None if plan.study.silos is None else first.data.silos,
        "seeds": plan.seeds,
        "epochs": None if first.train.steps else first.train.epochs,
        "steps": first.train.steps or None,
        "nodes": first.data.options.get("nodes"),
        "isthmus": VERSION,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The last git commit of the package's folder; None where it is installed without git."""
    here = Path(__file__).parents[1]  # the package
    command = ["git", "-C", str(here), "log", "-1", "--format=%h", "--", str(here)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said or None


def listing() -> list[Mapping[str, Any]]:
    """A description of every study, as the command line lists them."""
    return [
        {
            "name": study.name,
            "summary": study.summary,
            "rows": [row.label for row in study.rows],
            "columns": [column.label for column in study.columns],
            "source": study.source,
            "quick": study.quick is not None,
        }
        for study in catalogue.STUDIES.values()
    ]
