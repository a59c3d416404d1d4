"""What ``isthmus run`` does: put the configuration together, run it (once for each seed), report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus.commands.over_seeds import over_seeds
from isthmus.core.errors import IsthmusError
from isthmus.core.files import write_atomic, writing
from isthmus.data.members import is_parts, member_names
from isthmus.launch.host import prepare
from isthmus.launch.party import keep_config
from isthmus.launch.processes import execute
from isthmus.launch.progress_bar import watcher_for
from isthmus.launch.start import Start
from isthmus.launch.trackers import watcher_of
from isthmus.report.report import write_report
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder, claimed
from isthmus.runs.recipe import merge_into, parse_set, read_recipe
from isthmus.wire.meeting import MeetingPlace


@dataclass(frozen=True)
class Request:
    """What the user asked for: recipe, options and ``--set``, each of which overrides the one before."""

    recipe: str | None
    options: dict[str, Any]
    sets: tuple[str, ...] = ()
    out: str | None = None
    seeds: int = 1
    resume: bool = False
    overwrite: bool = False
    place: MeetingPlace | None = None  # as which party, and where it meets the others
    policy: str = ""


def configure(request: Request) -> RunConfig:
    """The resolved configuration of a request; a resumed run starts from its own ``config.toml``."""
    if request.resume and request.overwrite:
        raise IsthmusError("--resume continues a run and --overwrite replaces it; use one of them.")
    if request.seeds < 1:
        raise IsthmusError(f"--seeds is {request.seeds}; it must be at least 1.")
    if request.out:
        with writing(Path(request.out)):
            Path(request.out).exists()  # refuses names that are longer than any folder's can be
    recipe: dict[str, Any] = {}
    asked = merge_into(deepcopy(request.options), parse_set(request.sets))
    kept = Path(request.out, "config.toml") if request.out else None
    if request.resume and request.recipe is None and kept is not None and kept.is_file():
        recipe = read_recipe(str(kept))
    elif request.recipe is not None:
        recipe = read_recipe(request.recipe)
    elif request.resume and kept is not None and "data" not in asked:
        raise IsthmusError(f"'{request.out}' holds no run to resume; leave out --resume to start one.")
    length = {key for key in ("epochs", "steps") if key in _table(asked, "train")}
    if len(length) == 2:
        raise IsthmusError("--epochs and --steps both say how long to train; use one of them.")
    if length == {"epochs"}:
        merge_into(recipe, {"train": {"steps": 0}})  # the recipe's steps would come first
    config = resolve(merge_into(recipe, asked))
    _refuse_second_split(config, _table(asked, "data"))
    return config


def _table(asked: dict[str, Any], name: str) -> dict[str, Any]:
    """The table ``name`` of the options; empty if it is not a table, which is refused later."""
    table = asked.get(name, {})
    return table if isinstance(table, dict) else {}


def _refuse_second_split(config: RunConfig, asked: dict[str, Any]) -> None:
    """Refuse ``--silos`` and ``--split`` for parts, which are split already."""
    name = config.data.name
    if not is_parts(name):
        return
    count = len(member_names(Path(name)))
    if "split" in asked or asked.get("silos", count) != count:
        raise IsthmusError(f"'{name}' holds the parts of {count} silos, split already; leave out --silos and --split.")


def run_request(request: Request) -> dict[str, Any] | None:
    """Run, report, and return the final metrics (None on a host that is not the server's)."""
    config = configure(request)
    own = f"-{request.place.name}" if request.place else ""
    out = Path(request.out or f"runs/{Path(config.data.name).name}-{config.label.replace(', ', '-')}{own}")
    with _folder(out, request) as folder, _telling_of_interruption(out):
        if request.seeds == 1:
            metrics = run_one(_start_of(config, folder, request))
        else:
            metrics = _run_seeds(config, folder, request)
    return None if metrics is None else {**metrics, "folder": str(out)}


def _start_of(config: RunConfig, folder: RunFolder, request: Request) -> Start:
    """The start of a configuration in a folder, as the user asked for it."""
    return Start(config, folder, request.resume, policy=request.policy, place=request.place)


@contextmanager
def _telling_of_interruption(out: Path) -> Iterator[None]:
    """Say, where a run is interrupted, whether it can be continued: only from a checkpoint."""
    try:
        yield
    except KeyboardInterrupt:
        if any(out.glob("**/checkpoint/*")):
            raise IsthmusError("Interrupted; the run continues from its last checkpoint with --resume.") from None
        raise IsthmusError("Interrupted before the first checkpoint; start the run again, with --overwrite.") from None


def _folder(out: Path, request: Request) -> AbstractContextManager[RunFolder]:
    """The run folder, claimed for this process; raises where what is in it may not be resumed or overwritten."""
    if int(os.environ.get("RANK", "0")) > 0:  # the first host has made the folder, or will
        out.mkdir(parents=True, exist_ok=True)
        return nullcontext(RunFolder(out))
    if request.resume and request.seeds == 1 and any(out.glob("seed-*/config.toml")):
        raise IsthmusError(f"'{out}' holds runs with several seeds; say how many, like --seeds 3 --resume.")
    if request.resume and request.seeds > 1 and (out / "checkpoint").exists():
        raise IsthmusError(f"'{out}' holds one run, and --seeds makes several; choose another --out.")
    return claimed(out, request.resume, request.overwrite)


def run_one(start: Start, label: str = "", page: bool = True) -> dict[str, Any] | None:
    """Run with a progress bar under a label, and with a report if ``page``; returns the final metrics."""
    config, folder = start.config, start.folder
    watcher = watcher_of(config, watcher_for(config, label=label), folder, label)
    try:
        metrics = execute(replace(start, watcher=watcher))
    finally:
        watcher.close()
    if metrics is not None and page:
        for each in (RunFolder.open(folder.path), *folder.parties):
            write_report(each)
    return metrics


def _run_seeds(config: RunConfig, folder: RunFolder, request: Request) -> dict[str, Any] | None:
    """Run a configuration with seeds s, s + 1, ..., each in a folder of its own; returns means over seeds."""
    if "RANK" in os.environ or request.place:
        how = "with --silo" if request.place else "under torchrun"
        raise IsthmusError(f"--seeds does not work {how}; start it once for each seed, with --seed.")
    keep_config(prepare(config), folder, request.resume)
    seeds = list(range(config.seed, config.seed + request.seeds))
    each: list[dict[str, Any]] = []
    for seed in seeds:
        inner = RunFolder.create(folder.path / f"seed-{seed}", request.resume, overwrite=False)
        mine = replace(config, seed=seed)
        metrics = run_one(_start_of(mine, inner, request), f"{config.label} #{seed}")
        assert metrics is not None  # this process is the server's
        each.append(metrics)
    combined = over_seeds(each, seeds)
    folder.write_json("metrics.json", combined)
    first = folder.path / f"seed-{seeds[0]}"
    names = ("metrics.jsonl", "ledger.parquet", "steps.parquet", "legs.parquet")
    for path in (*(first / name for name in names), *first.glob("model*.safetensors")):
        write_atomic(folder.path / path.name, path.read_bytes())
    write_report(RunFolder.open(folder.path))
    return combined
