"""The progress of a study: bars on a terminal, plain lines where stderr is piped."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from isthmus.runs.text import duration
from isthmus.studies.forecast import Forecast, RunTimes
from isthmus.studies.plan import BEGUN, Job

_TAIL = 4096  # bytes at the end of metrics.jsonl that hold its last line
_EVERY = 1.0  # seconds between looks at the running jobs


class Show:
    """Prints a line on stderr for each run that starts or ends; the parent of ``Bars``."""

    def __init__(self, forecast: Forecast) -> None:
        self.forecast, self.total, self.done = forecast, len(forecast.waiting), 0
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.watch = RunTimes()
        if self.total > 1:
            self.say(f"{self.total} runs, {self.left()}")

    def left(self) -> str:
        """The time that is left, in words."""
        seconds = self.forecast.left()
        return "no telling how long before one has ended" if seconds is None else f"about {duration(seconds)} left"

    def started(self, job: Job) -> None:
        """Tell that a run begins, or goes on from its checkpoint."""
        self.watch.start(job)
        self.say(f"start  {job.label}" + (", from its checkpoint" if job.state == BEGUN else ""))

    def ended(self, job: Job, error: str) -> None:
        """Tell that a run has ended, and what went wrong, if anything."""
        self.done += 1
        took = self.watch.stop(job)
        self.forecast.ended(job, took)
        left = f", {self.left()}" if self.done < self.total else ""
        self.say(f"{'FAILED' if error else 'done  '} {job.label}, {duration(took)} ({self.done}/{self.total}{left})")
        for line in error.splitlines():
            self.say(f"       {line}")

    def look(self) -> None:
        """Called now and then while runs are under way; does nothing here."""

    def say(self, text: str) -> None:
        """Print one line."""
        self.console.print(text, markup=False)

    def close(self) -> None:
        """Called after the last run; does nothing here."""


class Bars(Show):
    """Shows a bar for the study and one for each run under way."""

    def __init__(self, forecast: Forecast) -> None:
        super().__init__(forecast)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(24), TextColumn("{task.fields[state]}"))
        self.progress = Progress(*columns, TimeElapsedColumn(), console=self.console, transient=True)
        self.whole = self.progress.add_task("runs", total=self.total, state=f"0/{self.total}")
        self.tasks: dict[Path, tuple[Job, TaskID]] = {}
        self.looked = 0.0
        self.progress.start()

    def started(self, job: Job) -> None:
        """Print a line and add a bar for the run."""
        super().started(job)
        task = self.progress.add_task(job.label, total=_length(job)[1], state="")
        self.tasks[job.path] = job, task

    def ended(self, job: Job, error: str) -> None:
        """Print a line and remove the bar of the run."""
        super().ended(job, error)
        self.progress.remove_task(self.tasks.pop(job.path)[1])
        self.progress.update(self.whole, completed=self.done, state=f"{self.done}/{self.total}, {self.left()}")

    def look(self) -> None:
        """Move the bars to the epochs (or steps) that the runs have logged."""
        if time.monotonic() - self.looked < _EVERY:
            return
        self.looked = time.monotonic()
        for job, task in self.tasks.values():
            unit, total = _length(job)
            done = last_logged(job.path / "metrics.jsonl", unit)
            self.progress.update(task, completed=done, state=f"{unit} {done}/{total}")

    def close(self) -> None:
        """Remove all bars."""
        self.progress.stop()


def _length(job: Job) -> tuple[str, int]:
    """The unit (``step`` or ``epoch``) and the length of a run in it."""
    train = job.config.train
    return ("step", train.steps) if train.steps else ("epoch", train.epochs)


def last_logged(log: Path, unit: str) -> int:
    """The epoch or step of the last whole line of ``metrics.jsonl``; 0 where there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            lines = file.read().splitlines()
        return int(json.loads(lines[-1])[unit])
    except (OSError, ValueError, KeyError, IndexError):
        return 0


def show_for(jobs: Sequence[Job], workers: int, known: Mapping[str, float]) -> Show:
    """The display of a study's progress: bars where several runs share a terminal, else lines.

    ``known``: seconds of a run by row, as far as they have been forecast.
    """
    several = workers > 1 and Console(stderr=True).is_terminal
    forecast = Forecast(jobs, workers, known)
    return Bars(forecast) if several else Show(forecast)
