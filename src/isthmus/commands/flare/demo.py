"""What ``isthmus flare demo`` does: three banks and a server on this machine, and one run between them."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from isthmus.commands.flare.job import SUCCEEDED, explain, make_job
from isthmus.commands.flare.local_files import prepare_kit, why_file
from isthmus.commands.flare.provision import provision_here
from isthmus.commands.flare.system import await_end, await_sites, require, running, session
from isthmus.commands.run import run_one
from isthmus.core.errors import IsthmusError
from isthmus.data.write_parts import write_parts
from isthmus.launch.processes import terminable
from isthmus.launch.silos import load_silos
from isthmus.launch.start import Start
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import merge_into

BANKS = ("bank-a", "bank-b", "bank-c")
COORDINATOR = "coordinator@isthmus.local"
NAME = "demo"  # of the job, and of everybody's run folder
_REGISTERED = 60.0  # seconds in which all banks must be there
RECIPE: dict[str, Any] = {
    "method": "sync-sgd+fwd-bwd-le",
    "dtype": "float64",
    "data": {"name": "blocks", "silos": len(BANKS), "nodes": 600, "degree": 6},
    "model": {"name": "gcn", "hidden": 16},
    "train": {"epochs": 20, "evaluate_every": 5},
}


@dataclass(frozen=True)
class Outcome:
    """What the demonstration has found."""

    folders: dict[str, Path]  # everybody's run folder
    difference: float  # the largest relative difference of a loss to the run in one process
    losses: int
    seconds: dict[str, float]  # by what they were spent on
    metrics: dict[str, Any]


def run_demo(
    out: Path, sets: dict[str, Any] | None = None, server: str = "", say: Callable[[str], None] = print
) -> Outcome:
    """Provision, start, run and compare; ``server``: a bank that carries the Isthmus server in FLARE's place."""
    require()
    _clear(out)
    config = resolve(merge_into(merge_into({}, RECIPE), sets or {}))
    clock = _Clock()
    kits = provision_here(out, free_port(), BANKS, COORDINATOR)
    parts = deal(config, out)
    for name, kit in kits.items():
        if name != COORDINATOR:
            prepare_kit(kit, parts.get(name), kit.parent / "runs")
    say(
        f"Certificates and kits of {', '.join(BANKS)}, the server and a coordinator are in {out} ({clock.lap('kits')})."
    )
    job = make_job(config, BANKS, NAME, server, resume=False, folder=out / COORDINATOR / "job")
    status = _run_job(job, kits, clock, say)
    folders = {name: kit.parent / "runs" / NAME for name, kit in kits.items() if name != COORDINATOR}
    if status != SUCCEEDED:
        raise explain(status, {name: why_file(folder) for name, folder in folders.items()})
    found = folders[server or "localhost"]
    expected = out / "in-one-process"
    alone = replace(config, data=replace(config.data, name=str(out / "all-parts"), options={}))
    run_one(Start(alone, RunFolder.create(expected, False, False)), page=False)
    clock.lap("the run in one process")
    difference, losses = compare_losses(found, expected)
    return Outcome(folders, difference, losses, clock.laps, RunFolder.open(found).metrics)


def _run_job(job: Path, kits: dict[str, Path], clock: _Clock, say: Callable[[str], None]) -> str:
    """Start everybody, submit the job, wait for its end, stop everybody; returns how it ended."""
    with terminable(), running([kit for name, kit in kits.items() if name != COORDINATOR]) as processes:
        with session(kits[COORDINATOR], processes) as opened:
            await_sites(opened, BANKS, processes, _REGISTERED)
            say(f"The server and three banks run, connected by mutual TLS ({clock.lap('connecting')}).")
            number = str(opened.submit_job(str(job.absolute())))
            status = str(await_end(opened, number, processes).get("status", ""))
            say(f"The job has ended: {status} ({clock.lap('the job')}).")
    clock.lap("stopping")
    return status


class _Clock:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, name: str) -> str:
        """End a lap; returns its seconds as words."""
        now = time.monotonic()
        self.laps[name], self._last = now - self._last, now
        return f"{self.laps[name]:.0f} s"


def _clear(out: Path) -> None:
    """Refuse a folder that holds something else; remove an earlier demonstration."""
    if out.exists() and any(out.iterdir()):
        if not (out / "all-parts" / "federation.toml").is_file():
            raise IsthmusError(f"'{out}' is not empty, and holds no demonstration; choose another --out.")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def deal(config: RunConfig, out: Path, banks: Sequence[str] = BANKS) -> dict[str, Path]:
    """Split the graph; each bank gets its own part alone, in its own folder: {bank: parts}."""
    silos = [replace(silo, name=bank) for silo, bank in zip(load_silos(config.data, merged=False), banks, strict=True)]
    whole = out / "all-parts"
    write_parts(silos, whole)
    for bank in banks:
        own = out / bank / "data"
        own.mkdir(parents=True, exist_ok=True, mode=0o700)
        (own / "federation.toml").write_text(tomli_w.dumps({"silos": list(banks)}))
        shutil.copytree(whole / bank, own / bank)
    return {bank: out / bank / "data" for bank in banks}


def compare_losses(found: Path, expected: Path) -> tuple[float, int]:
    """The largest relative difference between the losses of two runs, and how many there are."""
    here, there = (
        [line["loss"] for line in RunFolder(folder).history if "valid" not in line] for folder in (found, expected)
    )
    if len(here) != len(there) or not here:
        raise IsthmusError(f"The run over FLARE has {len(here)} losses, the one in one process {len(there)}.")
    return max(abs(a - b) / abs(b) for a, b in zip(here, there, strict=True)), len(here)
