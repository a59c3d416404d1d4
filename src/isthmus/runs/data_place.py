"""Where the data of a finished run lies, also for whoever looks from another folder than the one it was started in."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core.files import there
from isthmus.data import DATASETS
from isthmus.data.members import is_parts
from isthmus.runs.config import DataConfig

STARTED_IN = "started_in"  # the key of metrics.json under which a run names the folder that it was started in


def found_again(data: DataConfig, started_in: str) -> DataConfig:
    """The settings of a run's data with paths that hold here.

    A relative path is looked for in the folder that the run was ``started_in``; what is not there stays as it is.
    """
    options = {key: _from(started_in, value) for key, value in data.options.items()}
    place = str(_from(started_in, data.name))
    name = data.name if data.name in DATASETS and not is_parts(place) else place
    return replace(data, name=name, folder=_from(started_in, data.folder), options=options)


def _from(started_in: str, value: Any) -> Any:
    """A relative path as an absolute one where such a file or folder is found; any other value as it is."""
    if not isinstance(value, str) or not value or not started_in or os.path.isabs(value):
        return value
    place = Path(started_in, value)
    return str(place) if there(place) else value
