"""One run in one process: in this one, or as the program that ``--jobs`` starts for each run."""

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
    """Run what the folder's ``config.toml`` says, from its last checkpoint where there is one."""
    run_one(resolve(folder.config), folder, resume=True, label=label)


def _end_with_parent() -> None:
    """The parent holds the other end of standard input: when it is gone, somebody else may go on with this run."""
    while os.read(0, 1):
        pass
    os._exit(1)


def run_child(path: str) -> int:
    """Entry point of a child: 0 when the run has ended, 2 when the user must mend something."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        go_on(RunFolder(Path(path)))
    except IsthmusError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(run_child(sys.argv[1]))
