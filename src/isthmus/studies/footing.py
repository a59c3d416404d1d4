"""Whether the runs of a study stand on one footing: read from the same data, by one version of the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from isthmus.graph.digest import changes
from isthmus.runs.folder import RunFolder
from isthmus.studies.plan import FINISHED, Job


def unlike_data(jobs: Sequence[Job]) -> list[str]:
    """A sentence where finished runs with the same settings of data have read different data, or differ in version.

    Runs of several machines are merged into one table, and files of one name may differ from machine to machine.
    """
    done = [(job, RunFolder(job.path).metrics) for job in jobs if job.state == FINISHED and job.row.compute is None]
    said, first = [], dict[str, tuple[Job, Mapping[str, Any]]]()
    for job, metrics in done:
        read = metrics.get("data_digests")
        if not read:
            continue
        settings = {**asdict(job.config.data), "folder": "", "merged": job.config.method.merged}
        other, theirs = first.setdefault(repr(sorted(settings.items())), (job, read))
        if changed := changes(theirs, read):
            said.append(f"{other.label} and {job.label} have read different data: {changed}.")
            break
    versions = sorted({str(metrics["version"]) for _, metrics in done if "version" in metrics})
    return said + (
        [f"Runs were made by several versions of isthmus: {', '.join(versions)}."] if len(versions) > 1 else []
    )
