"""The work of ``isthmus reproduce``: plan a study, tune, run what is missing, and write results after every row."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from isthmus.core.version import VERSION
from isthmus.studies import catalogue, plots, tuning
from isthmus.studies.engine import run_jobs, sole_owner
from isthmus.studies.page import study_page
from isthmus.studies.plan import FINISHED, Job, StudyPlan, StudyRequest, plan_rows, plan_study, settle
from isthmus.studies.progress import show_for
from isthmus.studies.results import Findings, as_csv, as_json, collect
from isthmus.studies.tuning import Tuned, make_trials, waiting


def run_study(name: str, request: StudyRequest) -> tuple[Findings, Path, list[str]]:
    """Run the unfinished rows of the named study; returns the findings, the folder, and labels of failed runs."""
    plan = plan_study(catalogue.get_study(name), request)
    tuned = make_trials(plan.study, request, plan.out) if plan.study.tuning and request.tune else None
    facts = _facts(plan, request)
    errors: dict[str, str] = {}
    with sole_owner(plan.out) as lock:
        if tuned is not None:
            settle(tuned.jobs, request.overwrite)
            for _ in _run(waiting(tuned, plan), request, lock, errors):
                write_files(tuning.tuning_files(tuned), plan.out)
            plan = plan_rows(tuned.settle_on(plan.study), request, plan.out)
            errors |= tuned.undecided([job.row for job in plan.wanted])
        plan.settle(request.overwrite)
        missing = [job for job in plan.wanted if job.state != FINISHED and _ready(job, tuned)]
        for job in _run(missing, request, lock, errors):
            if all(each.state == FINISHED or each.label in errors for each in plan.of(job.row)):
                write_findings(collect(plan, errors, facts, tuned), plan.out)
        findings = collect(plan, errors, facts, tuned)
        write_findings(findings, plan.out)
    return findings, plan.out, list(errors)


def _ready(job: Job, tuned: Tuned | None) -> bool:
    """Whether the settings of a job's row are chosen; they are not where all its trials failed."""
    return tuned is None or job.row.compute is not None or tuned.chosen(job.row) is not None


def _run(jobs: Sequence[Job], request: StudyRequest, lock: int, errors: dict[str, str]) -> Iterator[Job]:
    """Run all jobs, yield each as it ends, and add to ``errors`` what went wrong, by label."""
    show = show_for(jobs, request.jobs)
    try:
        with closing(run_jobs(jobs, request.jobs, lock, show)) as ended:
            for job, error in ended:
                errors |= {job.label: error} if error else {}
                yield job
    except KeyboardInterrupt:
        raise IsthmusError("Interrupted; the same command goes on where it stopped.") from None
    finally:
        show.close()


def write_findings(findings: Findings, out: Path) -> None:
    """Write results.csv, results.json, plot.png, plot.svg and report.html; tuning.csv and tuning.json where tuned."""
    files = {
        "results.csv": as_csv(findings).encode(),
        "results.json": as_json(findings).encode(),
        **plots.plot_files(findings),
        "report.html": study_page(findings).encode(),
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
