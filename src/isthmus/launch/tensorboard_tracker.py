"""A run in TensorBoard: scalars below a folder, one subfolder for each run."""

from __future__ import annotations

import re
from typing import Any

from isthmus.launch.tracker import Tracker


class TensorBoardTracker(Tracker):
    """Writes a run for ``tensorboard --logdir DIR``."""

    writer: Any

    def begin(self) -> None:
        """Open a folder of its own, and write the settings as text."""
        from torch.utils.tensorboard import SummaryWriter

        stem = re.sub(r"[^A-Za-z0-9+.=_-]+", "-", self.name).strip("-.") or "run"
        names = (stem if number == 1 else f"{stem}-{number}" for number in range(1, 1_000_000))
        place = next(self.place / name for name in names if not (self.place / name).exists())
        self.writer = SummaryWriter(str(place))
        rows = "".join(f"    {key} = {value!r}\n" for key, value in self.settings.items())
        if rows:
            self.writer.add_text("settings", rows)

    def number(self, name: str, value: float, step: int) -> None:
        """Write one scalar."""
        self.writer.add_scalar(name, value, step)

    def end(self, finished: bool) -> None:
        """Flush and close."""
        self.writer.close()
