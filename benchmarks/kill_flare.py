"""Jobs over NVIDIA FLARE whose processes are killed: three banks and a server on this machine, over mutual TLS.

FLARE's own processes run all the time; each trial is a job of its own. What is killed is the process of the job at one
bank or at the server, the Isthmus server in it. Then the job is submitted again with --resume.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import kills
import psutil
from kill_starts import in_fork

from isthmus.commands.flare import demo
from isthmus.commands.flare.job import SUCCEEDED, make_job
from isthmus.commands.flare.local_files import prepare_kit
from isthmus.commands.flare.provision import provision_here
from isthmus.commands.flare.system import await_end, await_sites, running, session
from isthmus.runs.config import resolve
from isthmus.runs.recipe import merge_into

NAME = "sync-sgd+fwd-bwd-le"
LENGTH = {"train": {"epochs": 40, "checkpoint_every": 1}}
_STARTING = 120.0  # seconds in which a job's processes must have started
Trial = Callable[[str, int], kills.Said]


@contextmanager
def killing(folder: Path) -> Iterator[Trial]:
    """Provision and start everybody; yields what makes a trial."""
    config = resolve(merge_into(merge_into({}, demo.RECIPE), LENGTH))
    kits = provision_here(folder, demo.free_port(), demo.BANKS, demo.COORDINATOR)
    parts = demo.deal(config, folder)
    parties = {name: kit for name, kit in kits.items() if name != demo.COORDINATOR}
    for name, kit in parties.items():
        prepare_kit(kit, parts.get(name), kit.parent / "runs")
    with running(list(parties.values())) as processes, session(kits[demo.COORDINATOR], processes) as opened:
        await_sites(opened, demo.BANKS, processes, 60)
        yield _Jobs(folder, config, parties, processes, opened).trial


class _Jobs:
    """Submits jobs, kills processes of theirs, and compares what all parties are left with."""

    def __init__(self, folder: Path, config: Any, kits: dict[str, Path], processes: Any, opened: Any) -> None:
        self.folder, self.config, self.kits = folder, config, kits
        self.processes, self.opened = processes, opened
        self.lasts = 0.0

    def trial(self, name: str, seed: int) -> kills.Said:
        """One job that is killed once or twice and resumed, compared party by party with one that nobody disturbed."""
        if not self.lasts:
            status, self.lasts = self._run("whole", resume=False)
            if status != SUCCEEDED:
                raise SystemExit(f"The undisturbed job has ended with {status}.")
        draw, run = random.Random(seed), f"run-{seed}"
        status, killed = self._killed(run, draw, resume=False)
        while status == SUCCEEDED:  # it was over before
            self._forget(run)
            status, killed = self._killed(run, draw, resume=False)
        ways = [killed]
        if draw.random() < 0.5:
            status, killed = self._killed(run, draw, resume=True)
            ways.append(killed if status != SUCCEEDED else "")
        if status != SUCCEEDED:
            status, _ = self._run(run, resume=True)
        told = {
            "name": name,
            "seed": seed,
            "killed": [each for each in ways if each],
            "kills": len(list(filter(None, ways))),
        }
        if status != SUCCEEDED:
            return {**told, "hung": 0, "lost": True, "why": status}
        pairs = [(kit.parent / "runs" / run, kit.parent / "runs" / "whole") for kit in self.kits.values()]
        each = in_fork(lambda: [kills.compare(*pair) for pair in pairs])
        self._forget(run)
        return {**told, "hung": 0, "lost": False, **{key: sum(map(int, (one[key] for one in each))) for key in each[0]}}

    def _submit(self, run: str, resume: bool) -> str:
        place = self.folder / "job"
        job = make_job(self.config, demo.BANKS, run, "", resume, place, overwrite=True)
        return str(self.opened.submit_job(str(job.absolute())))

    def _run(self, run: str, resume: bool) -> tuple[str, float]:
        """How a job has ended that nobody disturbs, and for how many seconds its last process was there."""
        number = self._submit(run, resume)
        self._processes_of(number)
        began = time.monotonic()
        status = str(await_end(self.opened, number, self.processes).get("status", ""))
        return status, time.monotonic() - began

    def _killed(self, run: str, draw: random.Random, resume: bool) -> tuple[str, str]:
        """How a job has ended of which a process was killed at a random moment, and whose process that was."""
        number, victim = self._submit(run, resume), draw.choice(list(self.kits))
        there = self._processes_of(number)
        time.sleep(draw.uniform(0, self.lasts))
        with suppress(psutil.NoSuchProcess):
            there[victim].kill()
        return str(await_end(self.opened, number, self.processes).get("status", "")), victim

    def _processes_of(self, number: str) -> dict[str, psutil.Process]:
        """The process of a job at every party, as soon as all are there."""
        deadline, found = time.monotonic() + _STARTING, dict[str, psutil.Process]()
        while len(found) < len(self.kits):
            if time.monotonic() > deadline:
                raise SystemExit(f"Job {number} did not start at everybody: {', '.join(found)} alone.")
            time.sleep(0.05)
            for name, kit in self.kits.items():
                with suppress(psutil.Error):
                    of_job = [each for each in _below(kit) if number in " ".join(each.cmdline())]
                    found |= {name: of_job[0]} if of_job else {}
        return found

    def _forget(self, run: str) -> None:
        for kit in self.kits.values():
            shutil.rmtree(kit.parent / "runs" / run, ignore_errors=True)


def _below(kit: Path) -> list[psutil.Process]:
    """Processes whose command names a kit."""
    return [each for each in psutil.process_iter(["cmdline"]) if str(kit) in " ".join(each.info["cmdline"] or ())]
