"""The jobs of a study: one run for each row and seed, each with its configuration and its folder."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from isthmus.core.coerce import table_of, whole_number
from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import write_atomic
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import merge_into, parse_set
from isthmus.studies.study import Study, StudyRow

NEW, BEGUN, FINISHED = "new", "begun", "finished"


@dataclass(frozen=True)
class StudyRequest:
    """What the user asks of a study; None and empty mean as the study has it."""

    quick: bool = False
    silos: int | None = None
    seeds: int | None = None
    epochs: int | None = None
    rows: tuple[str, ...] = ()
    device: str | None = None
    jobs: int = 1
    out: str | None = None
    sets: tuple[str, ...] = ()
    overwrite: bool = False
    tune: bool = True
    tuning_seeds: int | None = None
    part: str = ""
    merge: tuple[str, ...] = ()
    pivot: str = ""


@dataclass(frozen=True)
class Job:
    """One run of a study: a row with a seed, in a folder of its own."""

    row: StudyRow
    config: RunConfig
    path: Path
    trial_of: str = ""  # the folder of the row that tries these settings; empty for a run that is reported

    @property
    def label(self) -> str:
        """The run in words: its row and its seed."""
        return f"{self.row.label}, seed {self.config.seed}"

    @property
    def row_slug(self) -> str:
        """The folder of the row that the run belongs to, or whose settings it tries."""
        return self.trial_of or self.row.slug

    @property
    def state(self) -> str:
        """``finished``, ``begun`` (there is a checkpoint to go on from) or ``new``."""
        if (self.path / "metrics.json").is_file():
            return FINISHED
        return BEGUN if any(self.path.glob("checkpoint/epoch-*")) else NEW

    def conflict(self, free: Collection[str] = ()) -> str:
        """How the run that is already in the folder differs from this one, in words; empty where it does not.

        Dotted keys in ``free`` may differ.
        """
        if not (self.path / "config.toml").is_file():
            return ""
        try:
            there = resolve(RunFolder(self.path).config)
        except IsthmusError as error:
            return str(error)
        if there.train.epochs != self.config.train.epochs:
            return f"train.epochs is {there.train.epochs} there and {self.config.train.epochs} here"
        return self.config.difference(there, free)

    def claim(self) -> RunFolder:
        """Make the folder, write ``config.toml`` into it, and return it."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path / "config.toml", self.config.toml().encode())
        return RunFolder(self.path)


@dataclass(frozen=True)
class StudyPlan:
    """All runs of a study below the folder ``out``; ``wanted`` are those of the rows that were asked for."""

    study: Study
    out: Path
    jobs: tuple[Job, ...]
    wanted: tuple[Job, ...]
    seeds: int

    def of(self, row: StudyRow) -> list[Job]:
        """The runs of a row, one for each seed."""
        return [job for job in self.jobs if job.row.slug == row.slug]

    @property
    def asked(self) -> set[str]:
        """The folders of the rows that were asked for."""
        return {job.row.slug for job in self.wanted}


def settle(jobs: Sequence[Job], asked: Collection[str], overwrite: bool) -> None:
    """Refuse jobs whose folders hold runs of another configuration, or with ``overwrite`` remove these runs.

    A table of runs with different configurations would mean nothing. Runs of rows that nobody ``asked`` for are never
    removed, and nothing is removed where one of them is in the way.
    """
    conflicts = [(job, conflict) for job in jobs if (conflict := job.conflict())]
    for job, conflict in conflicts:
        held = f"'{job.path}' holds a run of another configuration: {conflict}."
        if job.row_slug not in asked:
            remedy = "ask for this row too and replace its runs with --overwrite"
            raise IsthmusError(f"{held} Its row was not asked for; choose another --out, or {remedy}.")
        if not overwrite:
            raise IsthmusError(f"{held} Choose another --out, or replace such runs with --overwrite.")
    for job, _ in conflicts:
        shutil.rmtree(job.path)


def plan_study(study: Study, request: StudyRequest) -> StudyPlan:
    """The plan of a study; every configuration is resolved, so that errors are found before anything runs."""
    if request.seeds is not None and request.seeds < 1:
        raise IsthmusError(f"--seeds is {request.seeds}; it must be at least 1.")
    if request.jobs < 1:
        raise IsthmusError(f"--jobs is {request.jobs}; it must be at least 1.")
    silos = _silos(study, request)
    out = Path(request.out or _default_out(study, silos, request))
    chosen = variant(study, silos, request.quick)
    return plan_rows(replace(chosen, pivot=request.pivot or chosen.pivot or study.pivot), request, out)


def plan_rows(study: Study, request: StudyRequest, out: Path) -> StudyPlan:
    """The plan of a study that already has the scale and number of silos that were asked for."""
    seeds = request.seeds or study.seeds
    asked = _choose(study, request.rows)
    jobs = tuple(
        Job(row, config, out / row.slug / f"seed-{config.seed}")
        for row in study.rows
        if not row.left_out
        for config in _configs_of(study, row, request, seeds, row in asked)
    )
    if not jobs:
        raise IsthmusError(f"'{study.name}' has nothing to run: all of its rows are left out.")
    chosen = _part(request.part, asked)
    return StudyPlan(study, out, jobs, tuple(job for job in jobs if job.row in chosen), seeds)


def _configs_of(study: Study, row: StudyRow, request: StudyRequest, seeds: int, asked: bool) -> list[RunConfig]:
    """The configurations of a row; none of a row that nobody ``asked`` for, where ``--set`` does not apply to it."""
    try:
        return configs(study, row, request, seeds)
    except IsthmusError:
        if asked:
            raise
        return []


def variant(study: Study, silos: int | None, quick: bool) -> Study:
    """The study in its small form, if ``quick``, and for another number of silos, if given."""
    if quick:
        if study.quick is None:
            raise IsthmusError(f"'{study.name}' has no --quick form; make it short with --epochs and --set.")
        study = study.quick
    return study if silos is None else study.with_silos(silos)


def _silos(study: Study, request: StudyRequest) -> int | None:
    """The number of silos that rows have instead of the study's; None where ``--set`` changes it as any setting."""
    said = table_of(parse_set(request.sets), "data").get("silos")
    if request.silos is not None or said is None:
        return request.silos
    return None if study.silos_are_free else whole_number("data.silos", said)


def _default_out(study: Study, silos: int | None, request: StudyRequest) -> str:
    """The folder of a study where the user names none."""
    other = f"-k{silos}" if silos is not None and silos != study.silos else ""
    untuned = "" if request.tune or study.tuning is None else "-untuned"
    return f"runs/reproduce/{study.name}{other}{untuned}{'-quick' if request.quick else ''}"


def configs(study: Study, row: StudyRow, request: StudyRequest, seeds: int, first: int = 0) -> list[RunConfig]:
    """The configurations of a row, one for each seed from ``first`` on.

    The study's recipe is overridden by the row, then by the user's options, then by ``--set``.
    """
    recipe: dict[str, Any] = deepcopy(dict(study.base))
    asked: dict[str, Any] = {}
    if request.epochs is not None:
        asked["train"] = {"epochs": request.epochs, "steps": 0}
    if request.device is not None:
        asked["system"] = {"device": request.device}
    for layer in (row.overrides, asked, parse_set(request.sets)):
        merge_into(recipe, deepcopy(dict(layer)))
    config = resolve(recipe)
    made = [replace(config, seed=config.seed + first + number) for number in range(seeds)]
    return [replace(each, data=replace(each.data, seed=each.seed)) for each in made] if study.vary_data else made


def _choose(study: Study, names: Sequence[str]) -> tuple[StudyRow, ...]:
    """The rows that were asked for, by label or folder name, or by a pattern (``cora-*``); all where none was named."""
    known = {row.slug: row for row in study.rows} | {row.label.lower(): row for row in study.rows}
    chosen: dict[str, StudyRow] = {}  # by folder: a pattern may fit both the label and the folder of a row
    for part in [part for name in names for part in ([name] if name.lower() in known else name.split(","))]:
        found = [row for name, row in known.items() if fnmatch(name, part.strip().lower())]
        if not found:
            raise unknown("row", part, [row.slug for row in study.rows])
        chosen |= {row.slug: row for row in found if row.slug not in chosen}
    return tuple(chosen.values()) or study.rows


def _part(part: str, rows: tuple[StudyRow, ...]) -> tuple[StudyRow, ...]:
    """Every n-th of the rows, from the k-th on, where ``part`` is ``k/n``; all of them where it is empty."""
    if not part:
        return rows
    number, _, count = part.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise IsthmusError(f"--part is '{part}'; the second of three machines takes --part 2/3.")
    return rows[int(number) - 1 :: int(count)]
