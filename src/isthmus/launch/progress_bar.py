"""How training goes, for people: a progress bar on a terminal, plain lines when piped."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from isthmus.run.config import RunConfig
from isthmus.state import Run
from isthmus.train import Watcher

_LINES = 10  # lines of a piped run


class Bar(Watcher):
    """A live bar with the loss of the last step and the score of the last evaluation."""

    def __init__(self, label: str, console: Console) -> None:
        columns = (
            TextColumn("{task.description:<14}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console, transient=True)
        self.task = self.progress.add_task(label, total=None, state="")
        self.score = ""

    def on_step(self, run: Run, loss: float) -> None:
        """Move the bar by one step."""
        if not self.progress.live.is_started:
            self.progress.start()
        total = run.epochs * run.steps_per_epoch
        state = f"epoch {run.epoch + 1}/{run.epochs}  loss {loss:.4f}{self.score}"
        self.progress.update(self.task, completed=run.step, total=total, state=state)

    def on_epoch(self, run: Run, lines: list[dict[str, Any]]) -> None:
        """Take up the newest score."""
        self.score = _score(lines) or self.score

    def close(self) -> None:
        """Take the bar away and give the cursor back."""
        self.progress.stop()


class Lines(Watcher):
    """About ten plain lines for a run."""

    def __init__(self, label: str) -> None:
        self.label = label

    def on_epoch(self, run: Run, lines: list[dict[str, Any]]) -> None:
        """Print every tenth part of the run."""
        if run.epoch % max(1, run.epochs // _LINES) == 0 or run.epoch == run.epochs:
            text = f"{self.label}: epoch {run.epoch}/{run.epochs}  {_loss(lines)}{_score(lines)}"
            print(text, file=sys.stderr, flush=True)


def _loss(lines: list[dict[str, Any]]) -> str:
    return "loss not finite" if lines[-1]["loss"] is None else f"loss {lines[-1]['loss']:.4f}"


def _score(lines: list[dict[str, Any]]) -> str:
    valid = lines[-1].get("valid") if lines else None
    if not valid:
        return ""
    name, value = next(iter(valid.items()))
    return f"  valid {name} {value:.4f}" if value is not None else ""


def watcher_for(config: RunConfig, quiet: bool = False, label: str = "") -> Watcher:
    """The watcher that fits where the output goes."""
    if quiet:
        return Watcher()
    console = Console(stderr=True)
    label = label or config.method.name
    return Bar(label, console) if console.is_terminal else Lines(label)
