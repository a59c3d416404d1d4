"""What follows a training: a progress bar, a run folder, a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isthmus.train.progress import Progress


@dataclass
class Watcher:
    """Base of what follows a training, such as a progress bar or a run folder: called at steps, epochs and the end."""

    def on_step(self, progress: Progress, loss: float) -> None:
        """Called after every step, with this host's loss."""

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Called after every epoch, with the lines for ``metrics.jsonl``; the place to write a checkpoint."""

    def on_rollback(self, progress: Progress) -> None:
        """Called when a round was rolled back, with the progress at its start."""

    def close(self) -> None:
        """Called when the run has ended, also by an error."""
