"""Training one run of a study: in this process, or as the program that ``--jobs`` starts for each run."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from isthmus.commands.run import run_one
from isthmus.core.errors import IsthmusError
from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder


def go_on(folder: RunFolder, label: str = "") -> None:
    """Train the run of a folder's ``config.toml``, from its last checkpoint where there is one."""
    run_one(resolve(folder.config), folder, resume=True, label=label)


def _end_with_parent() -> None:
    """End this process when its parent does: standard input, whose other end the parent holds, is then closed.

    Another process may then go on with this run.
    """
    while os.read(0, 1):
        pass
    os._exit(1)


def run_child(path: str) -> int:
    """Train the run in a folder; returns the exit code: 0 when it has ended, 2 for an error that the user can mend."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        go_on(RunFolder(Path(path)))
    except IsthmusError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1]))
