"""One party of a run that meets the others by name, each started by its owner on a machine of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import write_atomic
from isthmus.core.kinds import SERVER_NAME
from isthmus.data.members import is_parts, member_names
from isthmus.launch.host import host_main, prepare
from isthmus.launch.start import Start
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.status import epochs_taken
from isthmus.wire.meeting import MeetingPlace, meet


def as_party(start: Start, place: MeetingPlace) -> dict[str, Any] | None:
    """Meet the other parties, then run as one of them, in a folder of its own; returns this party's metrics."""
    config = start.config
    silos = parties_of(config, place.name)
    prepare(config)
    asked = config.system.hosts if config.system.hosts > 1 else 0
    meeting = meet(place, silos, asked, config.system.timeout)
    try:
        config = prepare(replace(config, system=replace(config.system, hosts=meeting.hosts)))
        keep_config(config, start.folder, start.resume)
        return host_main(replace(start, config=config), meeting)
    finally:
        meeting.close()


def parties_of(config: RunConfig, name: str) -> list[str]:
    """The names of all silos, in order; raises where the party ``name`` is none of them."""
    if not is_parts(config.data.name):
        raise IsthmusError(
            f"With --silo every party reads its own part, but '{config.data.name}' is a whole graph; first write parts "
            f"with 'isthmus split {config.data.name} --silos {config.data.silos} --out PARTS', then use --data PARTS."
        )
    silos = member_names(Path(config.data.name))
    if len(silos) < 2:
        raise IsthmusError(
            f"'{config.data.name}' names one silo alone; write federation.toml into it, which lists all of them, the "
            "same for every party."
        )
    if name not in (*silos, SERVER_NAME):
        raise unknown("silo", name, silos)
    return silos


def keep_config(config: RunConfig, folder: RunFolder, resume: bool) -> None:
    """Write ``config.toml``; refuse to resume a run whose ``config.toml`` differs in more than length and place.

    A run that counts epochs is refused where it has taken more of them than it is to have.
    """
    if resume and (folder.path / "config.toml").is_file():
        kept = resolve(folder.config)
        if kept.digest() != config.digest():
            raise IsthmusError(
                f"'{folder.path}' is a run of another configuration: {config.difference(kept)}. "
                "Resume with the same options, or start again with --overwrite."
            )
        taken = 0 if config.train.steps else epochs_taken(folder.path)
        if config.train.epochs < taken:
            raise IsthmusError(
                f"--epochs is {config.train.epochs}, but the run in '{folder.path}' has taken {taken} epochs already; "
                f"resume it with {taken} or more, or start again with --overwrite."
            )
    write_atomic(folder.path / "config.toml", config.toml().encode())
