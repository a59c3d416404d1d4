"""Results of one study from several machines: finished runs of other folders are taken over."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic
from isthmus.studies.plan import FINISHED, Job

_TAKEN = ("metrics.jsonl", "config.toml", "metrics.json")  # the last one says that a run has ended


def to_come(jobs: Sequence[Job], out: Path, others: Sequence[str]) -> list[Job]:
    """Runs that neither this folder nor another one that will be merged has finished."""
    return [job for job in jobs if job.state != FINISHED and not any(_there(job, out, other) for other in others)]


def _there(job: Job, out: Path, other: str) -> bool:
    """Whether another folder has finished a run of this one."""
    return (Path(other) / job.path.relative_to(out) / "metrics.json").is_file()


def take_over(jobs: Sequence[Job], out: Path, others: Sequence[str]) -> int:
    """Copy what tables need of runs that other folders have finished and this one has not; returns how many.

    Runs of another configuration are refused: a table of unlike runs would mean nothing.
    """
    taken = 0
    for other in map(Path, others):
        if not other.is_dir():
            raise IsthmusError(f"--merge {other}: there is no such folder.")
        for job in jobs:
            if job.state != FINISHED and _there(job, out, str(other)):
                _take(job, other / job.path.relative_to(out))
                taken += 1
    return taken


def _take(job: Job, there: Path) -> None:
    """Take one finished run over."""
    conflict = Job(job.row, job.config, there).conflict()
    if conflict:
        raise IsthmusError(f"'{there}' holds a run of another configuration: {conflict}.")
    shutil.rmtree(job.path, ignore_errors=True)
    job.path.mkdir(parents=True)
    for name in _TAKEN:
        if (there / name).is_file():
            write_atomic(job.path / name, (there / name).read_bytes())
