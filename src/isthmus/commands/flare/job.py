"""What ``isthmus flare job`` does: a recipe becomes a job, which the coordinator submits and waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.commands.flare.job_files import OF_RUN, FlareJob, refuse_what_jobs_cannot_say, write_job
from isthmus.commands.flare.system import await_end, session
from isthmus.core.errors import IsthmusError
from isthmus.runs.config import RunConfig

SUCCEEDED = "FINISHED:COMPLETED"


def recipe_of(config: RunConfig) -> dict[str, Any]:
    """The configuration without what each party says for itself: where its data lies, and on what it computes."""
    if config.method.merged:
        raise IsthmusError(f"Method '{config.method.name}' merges all graphs into one, which parties do not allow.")
    recipe = config.as_dict()
    for table, known in OF_RUN.items():
        recipe[table] = {key: value for key, value in recipe[table].items() if key in known}
    refuse_what_jobs_cannot_say(recipe)
    return recipe


def make_job(
    config: RunConfig, sites: Sequence[str], name: str, server: str, resume: bool, folder: Path, overwrite: bool = False
) -> Path:
    """Write the job of a configuration; returns its folder."""
    return write_job(FlareJob(name, recipe_of(config), tuple(sites), server, resume), folder, overwrite)


def submit(job: Path, kit: Path, wait: bool) -> tuple[str, str]:
    """Submit a job with an administrator's kit; returns its number and how it stands (or has ended, with ``wait``)."""
    with session(kit) as opened:
        number = str(opened.submit_job(str(job.absolute())))
        return number, str(await_end(opened, number).get("status", "")) if wait else "SUBMITTED"


def explain(status: str, logs: Mapping[str, Path]) -> IsthmusError:
    """The error for a job that has not succeeded, with what the parties of this machine have written down."""
    told = [f"{name}: {path.read_text().strip()}" for name, path in logs.items() if path.is_file()]
    said = (
        " ".join(told) or "Each party's log says why (log.txt in its kit), and NAME.failed.txt beside its run folder."
    )
    return IsthmusError(f"The job has ended with {status or 'no status'}. {said}")
