"""The data that the runs of a study will read: found once, before any of them begins."""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.core.errors import IsthmusError
from isthmus.data import find
from isthmus.data.missing import MissingData
from isthmus.runs.data_config import DataConfig
from isthmus.studies.plan import Job


def find_data(jobs: Iterable[Job]) -> None:
    """Look for the data of runs that are to come, each data set once; one error lists all that is not here."""
    wanted = {_source(job.config.data): job.config.data for job in jobs if job.row.compute is None}
    missing: list[tuple[str, str]] = []
    said: list[str] = []
    for data in wanted.values():
        try:
            find(data.name, data.folder or None, **data.options)
        except MissingData as error:
            missing += error.sets
        except IsthmusError as error:
            said.append(str(error))
    said += [str(MissingData(*missing))] if missing else []
    if said:
        raise IsthmusError(f"{' '.join(said)} Nothing was started; --rows chooses rows that need none of it.")


def _source(data: DataConfig) -> tuple[str, str, str]:
    """The options that say where the files of a data set lie; other options say how they are read."""
    return data.name, data.folder, str(data.options.get("path", ""))
