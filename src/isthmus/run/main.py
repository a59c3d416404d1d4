"""What ``isthmus run`` does: put the configuration together, run it (once for each seed), report."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from isthmus.errors import IsthmusError
from isthmus.run.config import RunConfig, merge_into, parse_set, read_recipe, resolve
from isthmus.run.folder import RunFolder, write_atomic
from isthmus.run.launch import execute
from isthmus.run.progress import watcher_for
from isthmus.run.report import write_report


@dataclass(frozen=True)
class Request:
    """What the user asked for, in order of precedence: recipe, then options, then ``--set``."""

    recipe: str | None
    options: dict[str, Any]
    sets: tuple[str, ...] = ()
    out: str | None = None
    seeds: int = 1
    resume: bool = False
    overwrite: bool = False


def configure(request: Request) -> RunConfig:
    """The resolved configuration of a request; a resumed run starts from its own ``config.toml``."""
    recipe: dict[str, Any] = {}
    kept = Path(request.out, "config.toml") if request.out else None
    if request.resume and request.recipe is None and kept is not None and kept.is_file():
        recipe = read_recipe(str(kept))
    elif request.recipe is not None:
        recipe = read_recipe(request.recipe)
    merge_into(recipe, request.options)
    merge_into(recipe, parse_set(request.sets))
    return resolve(recipe)


def run_request(request: Request) -> dict[str, Any] | None:
    """Run, report, and return the final metrics (None on a host that is not the server's)."""
    if request.resume and request.overwrite:
        raise IsthmusError("--resume continues a run and --overwrite replaces it; use one of them.")
    if request.seeds < 1:
        raise IsthmusError(f"--seeds is {request.seeds}; it must be at least 1.")
    config = configure(request)
    out = Path(request.out or f"runs/{Path(config.data.name).name}-{config.method.name}")
    member = int(os.environ.get("RANK", "0")) > 0  # the first host has made the folder, or will
    folder = RunFolder.create(out, request.resume or member, request.overwrite and not member)
    if request.seeds == 1:
        metrics = run_one(config, folder, request.resume)
    else:
        metrics = _run_seeds(config, folder, request)
    return None if metrics is None else {**metrics, "folder": str(out)}


def run_one(config: RunConfig, folder: RunFolder, resume: bool, label: str = "") -> dict[str, Any] | None:
    """One run in one folder, with its report."""
    metrics = execute(config, folder, resume, watcher_for(config, label=label))
    if metrics is not None:
        write_report(RunFolder.open(folder.path))
    return metrics


def _run_seeds(config: RunConfig, folder: RunFolder, request: Request) -> dict[str, Any] | None:
    """The same run with seeds s, s + 1, ...; the folder itself holds mean and deviation."""
    write_atomic(folder.path / "config.toml", config.toml().encode())
    seeds = list(range(config.seed, config.seed + request.seeds))
    each: list[dict[str, Any]] = []
    for seed in seeds:
        inner = RunFolder.create(folder.path / f"seed-{seed}", request.resume, overwrite=False)
        metrics = run_one(replace(config, seed=seed), inner, request.resume, f"{config.method.name} #{seed}")
        if metrics is None:
            return None
        each.append(metrics)
    combined = combine(each, seeds)
    folder.write_json("metrics.json", combined)
    last = folder.path / f"seed-{seeds[0]}"
    for name in ("metrics.jsonl", "ledger.parquet", "model.safetensors"):
        write_atomic(folder.path / name, (last / name).read_bytes())
    write_report(RunFolder.open(folder.path))
    return combined


def combine(each: list[dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    """Means over seeds, deviations beside them; everything else is the first run's."""
    combined = {**each[0], "seeds": seeds, "seconds": fmean(run["seconds"] for run in each)}
    for split in ("valid", "test"):
        parts = [run[split] for run in each]
        combined[split] = _fold(parts, fmean)
        combined[f"{split}_std"] = _fold(parts, stdev)
    return combined


def _fold(parts: list[dict[str, Any]], how: Any) -> dict[str, Any]:
    folded: dict[str, Any] = {}
    for key, first in parts[0].items():
        values = [part[key] for part in parts]
        if isinstance(first, dict):
            folded[key] = _fold(values, how)
        else:
            known = [value for value in values if value is not None]
            folded[key] = how(known) if len(known) > (how is stdev) else None
    return folded
