"""Writes what a training tells as it goes: lines of metrics, and checkpoints."""

from __future__ import annotations

import json
from typing import Any

from isthmus.runs.folder import RunFolder
from isthmus.train.checkpoint import Checkpoints
from isthmus.train.progress import Progress
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher


class Recorder(Watcher):
    """Writes metrics and checkpoints of a training into a run folder."""

    def __init__(self, training: Training, folder: RunFolder, checkpoints: Checkpoints, inner: Watcher) -> None:
        self.training, self.folder, self.checkpoints, self.inner = training, folder, checkpoints, inner

    def on_step(self, progress: Progress, loss: float) -> None:
        """Tell the inner watcher of a step."""
        self.inner.on_step(progress, loss)

    def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
        """Append the lines to ``metrics.jsonl``, or to this host's own file, then commit a checkpoint if one is due."""
        self.checkpoints.log.append("".join(json.dumps(line) + "\n" for line in lines).encode())
        ended = progress.epoch == self.training.stage.last_epoch
        if progress.epoch % self.checkpoints.every(self.training) == 0 or ended:
            self.checkpoints.commit(self.training)
        self.inner.on_epoch(progress, lines)

    def on_rollback(self, progress: Progress) -> None:
        """Take lines of epochs that will be taken again out of ``metrics.jsonl``, or out of this host's own file."""
        self.checkpoints.log.rewrite("".join(json.dumps(line) + "\n" for line in progress.history).encode())
        self.inner.on_rollback(progress)
