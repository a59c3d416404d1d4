"""Runs the jobs of a study, one after the other in this process, or several at once in processes of their own."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from isthmus.core.errors import IsthmusError
from isthmus.core.files import writing
from isthmus.studies.child import go_on
from isthmus.studies.plan import Job
from isthmus.studies.progress import Show

Ended = Generator[tuple[Job, str]]  # each job as it ends, and what went wrong (empty: nothing)
_LOG = "child.log"
_LAST = 6  # lines of a failed child's log that are shown
_PATIENCE = 10.0  # seconds to wait for the lock; the children of a killed parent end sooner


@contextmanager
def sole_owner(out: Path) -> Iterator[int]:
    """Hold a lock on the folder, so that two programs never train one run; yields its handle, which children share."""
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _locked(handle):
            if time.monotonic() > deadline:
                raise IsthmusError(f"Another 'isthmus reproduce' is at work in '{out}'; wait, or choose another --out.")
            time.sleep(0.1)
        yield handle
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Take the lock; returns whether that succeeded."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run_jobs(jobs: Sequence[Job], workers: int, lock: int, show: Show) -> Ended:
    """Run all jobs, and yield each as it ends with what went wrong. A job that fails stops no other."""
    computed = [job for job in jobs if job.row.compute is not None]
    trained = [job for job in jobs if job.row.compute is None]
    yield from _run_here(computed, show)
    yield from _run_here(trained, show) if workers == 1 else _run_children(trained, workers, lock, show)


def _run_here(jobs: Sequence[Job], show: Show) -> Ended:
    """Run jobs one after the other in this process."""
    for job in jobs:
        show.started(job)
        error = ""
        try:
            _run(job)
        except IsthmusError as problem:
            error = str(problem)
        except Exception:
            error = traceback.format_exc().strip()
        show.ended(job, error)
        yield job, error


def _run(job: Job) -> None:
    """Train a job, or compute its metrics where its row needs no training."""
    folder = job.claim()
    if job.row.compute is None:
        go_on(folder, job.label)
    else:
        folder.write_json("metrics.json", job.row.compute(job.config))


@dataclass
class _Child:
    """A process that trains one job, and its log."""

    job: Job
    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def error(self) -> str:
        """What went wrong in an ended process: the last lines of its log; empty where nothing did."""
        self.log.close()
        code = self.process.returncode
        if code == 0:
            return ""
        said = (self.job.path / _LOG).read_text(errors="replace").strip().splitlines()[-_LAST:]
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return "\n".join([*said, f"({how}; the whole log is {self.job.path / _LOG})"])


def _run_children(jobs: Sequence[Job], workers: int, lock: int, show: Show) -> Ended:
    """Run jobs in processes of their own, ``workers`` at once; all are killed when this generator is closed."""
    waiting, running = list(jobs), list[_Child]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(waiting.pop(0), workers, lock))
                show.started(running[-1].job)
            time.sleep(0.05)
            for child in [child for child in running if child.process.poll() is not None]:
                running.remove(child)
                error = child.error()
                show.ended(child.job, error)
                yield child.job, error
            show.look()
    finally:
        for child in running:
            child.process.kill()
            child.process.wait()
            child.log.close()


def _start(job: Job, workers: int, lock: int) -> _Child:
    """Start a process for one job; it ends when this process does, and holds the lock until then."""
    folder = job.claim()
    threads = job.config.system.threads or max(1, (os.cpu_count() or 1) // workers)
    command = [sys.executable, "-m", "isthmus.studies.child", str(folder.path)]
    log = open(folder.path / _LOG, "wb")
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        pass_fds=(lock,),
        env=os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))},
    )
    return _Child(job, process, log)
