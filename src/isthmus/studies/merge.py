"""Results of one study from several machines: finished runs of other folders are taken over."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from isthmus.runs.text import count_text
from isthmus.studies.plan import FINISHED, Job

_TAKEN = ("metrics.jsonl", "metrics.json")  # the last one says that a run has ended
_OF_PLACE = ("data.folder",)  # in which machines differ; what a run has read is in its digests, which tables compare


def to_come(jobs: Sequence[Job], out: Path, others: Sequence[str]) -> list[Job]:
    """Runs that neither this folder nor another one that will be merged has finished."""
    return [job for job in jobs if job.state != FINISHED and not any(_there(job, out, other) for other in others)]


def _there(job: Job, out: Path, other: str) -> bool:
    """Whether another folder has finished a run of this one."""
    return (Path(other) / job.path.relative_to(out) / "metrics.json").is_file()


def check_others(jobs: Sequence[Job], out: Path, others: Sequence[str]) -> None:
    """Refuse folders that hold no finished run of a study, whose reported runs and trials are ``jobs``."""
    for other in others:
        if not Path(other).is_dir():
            raise IsthmusError(f"--merge {other}: there is no such folder.")
        if not any(_there(job, out, other) for job in jobs):
            raise IsthmusError(
                f"--merge {other}: there is no finished run of this study in it, such as "
                f"'{jobs[0].path.relative_to(out)}'; give the folder that another machine had as its --out."
            )


def take_over(jobs: Sequence[Job], out: Path, others: Sequence[str]) -> None:
    """Copy what tables need of runs that other folders have finished and this one has not, and say how many.

    Runs of another configuration are refused: a table of unlike runs would mean nothing.
    """
    for other in others:
        missing = [job for job in jobs if job.state != FINISHED and _there(job, out, other)]
        for job in missing:
            _take(job, Path(other) / job.path.relative_to(out))
        what = "trial" if any(job.trial_of for job in jobs) else "run"
        print(f"{count_text(len(missing), what)} taken over from '{other}'", file=sys.stderr)


def _take(job: Job, there: Path) -> None:
    """Take one finished run over, under this machine's folder of data; digests tell what it has read on the other."""
    conflict = Job(job.row, job.config, there).conflict(_OF_PLACE)
    if conflict:
        raise IsthmusError(f"'{there}' holds a run of another configuration: {conflict}.")
    shutil.rmtree(job.path, ignore_errors=True)
    job.claim()
    for name in _TAKEN:
        if (there / name).is_file():
            write_atomic(job.path / name, (there / name).read_bytes())
