"""How long a study will take: from the runs that have ended, and before that from a few epochs of every row."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from isthmus.core.files import write_atomic
from isthmus.runs.folder import RunFolder
from isthmus.studies.plan import FINISHED, Job

FILE = "forecast.json"
_EPOCHS = 2  # of a row's short run, or as many as lie between two validations


class Forecast:
    """Seconds of a run by row: as measured, else as forecast, else the mean of those that are known."""

    def __init__(self, jobs: Sequence[Job], workers: int, known: Mapping[str, float]) -> None:
        self.waiting = {job.path: job.row_slug for job in jobs}
        self.workers, self.known = workers, dict(known)
        self.measured: dict[str, list[float]] = {}

    def ended(self, job: Job, seconds: float) -> None:
        """Record how many seconds a run took."""
        self.waiting.pop(job.path, None)
        self.measured.setdefault(job.row_slug, []).append(seconds)

    def left(self) -> float | None:
        """Seconds until all waiting runs will have ended; None where nothing is known of any."""
        seconds = self.known | {row: fmean(each) for row, each in self.measured.items()}
        if not seconds:
            return None
        usual = fmean(seconds.values())
        return sum(seconds.get(row, usual) for row in self.waiting.values()) / self.workers


def read_forecast(out: Path) -> dict[str, float]:
    """Seconds by row from an earlier forecast in a folder; empty where there is none."""
    try:
        return {str(row): float(seconds) for row, seconds in json.loads((out / FILE).read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def write_forecast(out: Path, seconds: Mapping[str, float]) -> None:
    """Keep seconds by row for the runs that follow."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / FILE, (json.dumps(dict(seconds), indent=2) + "\n").encode())


def short_job(job: Job, place: Path) -> Job:
    """A run like ``job``, of as few epochs of every phase as tell what it costs, in a folder of its own."""
    train, method = job.config.train, job.config.method
    few = max(_EPOCHS, train.evaluate_every)
    *before, last = method.phases
    brief = (*(replace(phase, epochs=min(phase.epochs, few)) for phase in before), last)
    if train.steps and not before:
        short = replace(train, steps=min(train.steps, 8))
    else:
        short = replace(train, epochs=few + sum(phase.epochs for phase in brief[:-1]), steps=0)
        method = replace(method, phases=brief)
    return replace(job, config=replace(job.config, train=short, method=method), path=place / job.row.slug)


def whole_seconds(job: Job, short: Job, took: float) -> float:
    """Seconds that ``job`` will take, from its ``short`` form, which ``took`` so many seconds from start to end."""
    assert short.state == FINISHED
    metrics, train = RunFolder(short.path).metrics, job.config.train
    training = float(metrics["seconds"])
    if short.config.train.steps:
        return took - training + training * train.steps / max(int(metrics["steps"]), 1)
    epochs = train.steps * int(metrics["epochs"]) / int(metrics["steps"]) if train.steps else train.epochs
    return took - training + training * times_longer(job, short, metrics["seconds_by_epoch"], epochs)


def times_longer(job: Job, short: Job, by_epoch: Sequence[float], epochs: float) -> float:
    """How many times as long as its short form a run of ``epochs`` trains.

    Each phase counts by its own epochs, and by what these took.
    """
    left, seconds, first = epochs, 0.0, 0
    for phase, brief in zip(job.config.method.phases[:-1], short.config.method.phases[:-1], strict=True):
        seconds += phase.epochs * fmean(by_epoch[first : first + brief.epochs])
        left, first = left - phase.epochs, first + brief.epochs
    return (seconds + left * fmean(by_epoch[first:])) / max(sum(by_epoch), 1e-9)


class RunTimes:
    """How long runs take, from their start to their end."""

    def __init__(self) -> None:
        self.since: dict[Path, float] = {}
        self.took: dict[Path, float] = {}

    def start(self, job: Job) -> None:
        """Remember when a run begins."""
        self.since[job.path] = time.monotonic()

    def stop(self, job: Job) -> float:
        """The seconds of a run that has ended, since its start."""
        self.took[job.path] = time.monotonic() - self.since.pop(job.path)
        return self.took[job.path]
