"""Jobs: a folder of configuration that the coordinator submits to FLARE. A job brings no code; parties install it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError

EXECUTOR = "isthmus.commands.flare.executor.IsthmusExecutor"
CONTROLLER = "isthmus.commands.flare.controller.IsthmusController"
OPEN, TRAIN = "isthmus_open", "isthmus_train"  # the two tasks of a job
# What a job says of data and machines; where these lie and what is written beside them is each party's own.
OF_RUN = {"data": ("scale", "edges", "cross", "level", "seed"), "system": ("timeout",)}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class FlareJob:
    """What a job tells every party: a name, the configuration, the silos in order, and where the server lives.

    ``server`` is the silo at whose site the Isthmus server is at home; empty: in FLARE's server job, beside no silo.
    """

    name: str
    recipe: Mapping[str, Any]
    silos: tuple[str, ...]
    server: str = ""
    resume: bool = False

    def __post_init__(self) -> None:
        for name in (self.name, *self.silos):
            check_name(name)
        if len(set(self.silos)) != len(self.silos) or not self.silos:
            raise IsthmusError(f"--sites lists {list(self.silos)}; name every silo once, like --sites bank-a,bank-b.")
        if self.server and self.server not in self.silos:
            raise IsthmusError(
                f"The server cannot live at '{self.server}': the sites are {', '.join(self.silos)}. Without --server "
                "it lives in FLARE's server job."
            )

    def words(self) -> str:
        """The job as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def read(words: str) -> FlareJob:
        """The job of some JSON, which came from another party: everything in it is checked."""
        try:
            told = json.loads(words)
            job = FlareJob(told["name"], told["recipe"], tuple(told["silos"]), told["server"], told["resume"])
        except (ValueError, TypeError, KeyError) as error:
            raise IsthmusError(
                f"The job cannot be read ({type(error).__name__}); was it made by this version?"
            ) from error
        if not isinstance(job.recipe, dict) or not isinstance(job.resume, bool):
            raise IsthmusError("The job cannot be read: its recipe is no table, or --resume is neither yes nor no.")
        return job


def refuse_what_jobs_cannot_say(recipe: Mapping[str, Any]) -> None:
    """Refuse a recipe that says what is each party's own, or that asks for what FLARE's jobs cannot do.

    A party's own is where its data lies, what it writes where, and on what it computes.
    """
    for table, known in OF_RUN.items():
        told = recipe.get(table, {})
        strange = sorted(set(told) - set(known)) if isinstance(told, dict) else [table]
        if strange:
            raise IsthmusError(
                f"The job sets {table}.{strange[0]}, which is each party's own: of [{table}] a job may set "
                f"{', '.join(known) or 'nothing'}. 'isthmus flare job' writes such jobs."
            )
    absence = recipe.get("federation", {})
    if isinstance(absence, dict) and absence.get("absent", "stop") != "stop":
        raise IsthmusError(
            "federation.absent=stale does not work over FLARE, which ends a job on all sides as soon as one of its "
            "processes is gone, and starts none at a site that is back. Leave it at 'stop', and submit the job again "
            "with --resume once all are there."
        )


def check_name(name: object) -> None:
    """Refuse a name that could be another folder, or that FLARE's certificates cannot hold."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise IsthmusError(f"'{name}' cannot be a name here: letters, digits, '.', '_' and '-', at most 64 of them.")


def write_job(job: FlareJob, folder: Path, overwrite: bool = False) -> Path:
    """Write the folder that 'nvflare job submit -j' takes; returns it."""
    if folder.exists():
        if not overwrite or not (folder / "meta.json").is_file():
            raise IsthmusError(f"'{folder}' exists; choose another --out.")
        shutil.rmtree(folder)
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    sites: Sequence[str] = job.silos
    files = {
        folder / "meta.json": {
            "name": job.name,
            "resource_spec": {},
            "min_clients": len(sites),
            "mandatory_clients": list(sites),
            "deploy_map": {"app": ["server", *sites]},
        },
        config / "config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": [OPEN, TRAIN], "executor": {"path": EXECUTOR, "args": {}}}],
            "task_result_filters": [],
            "task_data_filters": [],
            "components": [],
        },
        config / "config_fed_server.json": {
            "format_version": 2,
            "workflows": [{"id": "isthmus", "path": CONTROLLER, "args": {"job": job.words()}}],
            "task_result_filters": [],
            "task_data_filters": [],
            "components": [],
        },
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=2) + "\n")
    return folder
