"""Progress of training for people: a bar on a terminal, plain lines when piped."""

from __future__ import annotations

import sys
from typing import Any

from rich import progress as rich_progress
from rich.console import Console

from isthmus.launch.forecast import LengthForecast
from isthmus.runs.config import RunConfig
from isthmus.train.progress import Progress
from isthmus.train.watcher import Watcher

_LINES = 10  # lines of a piped run


class Bar(Watcher):
    """A live bar with the loss of the last step and the score of the last evaluation."""

    def __init__(self, label: str, console: Console) -> None:
        columns = (
            rich_progress.TextColumn("{task.description:<14}", markup=False),
            rich_progress.BarColumn(),
            rich_progress.TextColumn("{task.fields[state]}"),
            rich_progress.TimeRemainingColumn(),
        )
        self.bar = rich_progress.Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task(label, total=None, state="")
        self.score = ""

    def on_step(self, progress: Progress, loss: float) -> None:
        """Move the bar by one step."""
        if not self.bar.live.is_started:
            self.bar.start()
        total = progress.epochs * progress.steps_per_epoch
        state = f"epoch {progress.epoch + 1}/{progress.epochs}  loss {loss:.4f}{self.score}"
        self.bar.update(self.task, completed=progress.step, total=total, state=state)

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Take up the newest score."""
        self.score = _score(lines) or self.score

    def say(self, sentence: str) -> None:
        """Print a sentence above the bar."""
        self.bar.console.print(sentence, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away and give the cursor back."""
        self.bar.stop()


class Lines(Watcher):
    """About ten plain lines for a whole run."""

    def __init__(self, label: str) -> None:
        self.label = label

    def say(self, sentence: str) -> None:
        """Print a sentence."""
        print(f"{self.label}: {sentence}", file=sys.stderr, flush=True)

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Print a line after every tenth of the epochs."""
        if progress.epoch % max(1, progress.epochs // _LINES) == 0 or progress.epoch == progress.epochs:
            text = f"{self.label}: epoch {progress.epoch}/{progress.epochs}  {_loss(lines)}{_score(lines)}"
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
    """A progress bar where the output is a terminal, plain lines where it is piped, and nothing if ``quiet``."""
    if quiet:
        return Watcher()
    console = Console(stderr=True, markup=False, emoji=False)
    label = label or config.label
    shown = Bar(label, console) if console.is_terminal else Lines(label)
    return LengthForecast(config, shown, shown.say)
