"""What ``isthmus reproduce`` does: plan, run what is missing, and after every row write what is known by then."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import isthmus
from isthmus.errors import IsthmusError
from isthmus.reproduce import catalogue, plots
from isthmus.reproduce.engine import run_jobs, sole_owner
from isthmus.reproduce.page import study_page
from isthmus.reproduce.plan import FINISHED, Plan, Wish, make_plan
from isthmus.reproduce.progress import show_for
from isthmus.reproduce.results import Findings, as_csv, as_json, collect
from isthmus.run.folder import write_atomic


def reproduce(name: str, wish: Wish) -> tuple[Findings, Path, list[str]]:
    """Run the rows of a study that are not finished; returns what was found, the folder, and the runs that failed."""
    plan = make_plan(catalogue.get(name), wish)
    facts = _facts(plan, wish)
    with sole_owner(plan.out) as lock:
        plan.settle(wish.overwrite)
        errors: dict[str, str] = {}
        missing = [job for job in plan.wanted if job.state != FINISHED]
        show = show_for(missing, wish.jobs)
        try:
            with closing(run_jobs(missing, wish.jobs, lock, show)) as ended:
                for job, error in ended:
                    errors |= {job.label: error} if error else {}
                    if all(each.state == FINISHED or each.label in errors for each in plan.of(job.row)):
                        write_findings(collect(plan, errors, facts), plan.out)
        except KeyboardInterrupt:
            raise IsthmusError("Interrupted; the same command goes on where it stopped.") from None
        finally:
            show.close()
        findings = collect(plan, errors, facts)
        write_findings(findings, plan.out)
    return findings, plan.out, list(errors)


def write_findings(findings: Findings, out: Path) -> None:
    """``results.csv``, ``results.json``, ``plot.png``, ``plot.svg`` and ``report.html``, each in one move."""
    files = {
        "results.csv": as_csv(findings).encode(),
        "results.json": as_json(findings).encode(),
        **plots.files(findings),
        "report.html": study_page(findings).encode(),
    }
    for name, content in files.items():
        write_atomic(out / name, content)


def _facts(plan: Plan, wish: Wish) -> dict[str, Any]:
    """What was asked for, and which program answers."""
    first = plan.jobs[0].config
    return {
        "command": shlex.join(["isthmus", *sys.argv[1:]]),
        "quick": wish.quick,
        "silos": None if plan.study.silos is None else first.data.silos,
        "seeds": plan.seeds,
        "epochs": first.train.epochs,
        "nodes": first.data.options.get("nodes"),
        "isthmus": isthmus.__version__,
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of this checkout; None where the package is installed without one."""
    here = Path(isthmus.__file__).parent
    command = ["git", "-C", str(here), "log", "-1", "--format=%h", "--", str(here)]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said or None


def listing() -> list[Mapping[str, Any]]:
    """Every study, as the command line lists them."""
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
