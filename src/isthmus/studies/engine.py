"""Runs the jobs of a study, one after the other in this process, or several at once in processes of their own."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from isthmus.core.errors import IsthmusError, Terminated
from isthmus.core.files import writing
from isthmus.studies.plan import Job
from isthmus.studies.progress import Show
from isthmus.studies.worker import DONE, LOG, go_on

Ended = Generator[tuple[Job, str]]  # each job as it ends, and what went wrong (empty: nothing)
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
                raise IsthmusError(f"Another program is at work in '{out}'; wait, or choose another --out.")
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
    yield from _run_here(trained, show) if workers == 1 else _run_workers(trained, workers, lock, show)


def _run_here(jobs: Sequence[Job], show: Show) -> Ended:
    """Run jobs one after the other in this process."""
    for job in jobs:
        show.started(job)
        error = ""
        try:
            _run(job)
        except Terminated:  # the whole study was asked to end
            raise
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


class _Worker:
    """A process that trains one run after the other; it ends when this process does, and holds the lock until then."""

    def __init__(self, threads: int, lock: int) -> None:
        env = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
        command = [sys.executable, "-P", "-m", "isthmus.studies.worker"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=(lock,), env=env)
        self.job: Job | None = None

    def take(self, job: Job) -> None:
        """Begin a run; of a process that has ended already, :meth:`ended` tells."""
        self.job = job
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            print(job.claim().path.resolve(), file=self.process.stdin, flush=True)

    def ended(self) -> tuple[Job, str] | None:
        """The run that has ended since it was taken, and what went wrong in it; None while it is under way."""
        if self.job is None or not (self._spoke() or self.process.poll() is not None):
            return None
        job, self.job = self.job, None
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        return job, "" if said == str(DONE) else self._error(job, said)

    def _spoke(self) -> bool:
        """Whether there is an answer to read."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def _error(self, job: Job, said: str) -> str:
        """What went wrong in a run: the last lines of its log."""
        log = job.path / LOG
        lines = log.read_text(errors="replace").strip().splitlines()[-_LAST:] if log.is_file() else []
        code = int(said) if said else self.process.wait()
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return "\n".join([*lines, f"({how}; the whole log is {log})"])

    def stop(self) -> None:
        """End the process, also in the middle of a run."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what a process that had ended was still to be told
                    pipe.close()


def _run_workers(jobs: Sequence[Job], count: int, lock: int, show: Show) -> Ended:
    """Run jobs in ``count`` processes, which all are killed when this generator is closed."""
    threads = max(1, (os.cpu_count() or 1) // count)
    waiting, workers = list(jobs), [_Worker(threads, lock) for _ in range(min(count, len(jobs)))]
    try:
        while waiting or any(worker.job for worker in workers):
            for place, worker in enumerate(workers):
                if worker.job is None and waiting:
                    if worker.process.poll() is not None:  # killed with its last run
                        worker = workers[place] = _Worker(threads, lock)
                    job = waiting.pop(0)
                    worker.take(job)
                    show.started(job)
                elif (end := worker.ended()) is not None:
                    show.ended(*end)
                    yield end
            time.sleep(0.02)
            show.look()
    finally:
        for worker in workers:
            worker.stop()
