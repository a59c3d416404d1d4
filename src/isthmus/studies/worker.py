"""Training one run of a study: in this process, or in a worker that trains one run after the other."""

from __future__ import annotations

import os
import queue
import shutil
import sys
import threading
import traceback
from pathlib import Path

from isthmus.commands.run import run_one
from isthmus.core.errors import IsthmusError
from isthmus.launch.start import Start
from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder

LOG = "child.log"
DONE, USERS_ERROR, OUR_ERROR = 0, 2, 1  # what a worker says of a run that has ended


def go_on(folder: RunFolder, label: str = "") -> None:
    """Train the run of a folder's ``config.toml``, from its last checkpoint if there is one, without a report.

    Checkpoints of a run that has finished are deleted: a study never goes on with it, and has hundreds.
    """
    run_one(Start(resolve(folder.config), folder, resume=True), label, page=False)
    shutil.rmtree(folder.path / "checkpoint", ignore_errors=True)


def _read_orders(orders: queue.Queue[str]) -> None:
    """Pass on every line of standard input, and end this process when its parent does: the pipe is then closed.

    Another process may then go on with the run that was under way.
    """
    for line in sys.stdin:
        orders.put(line.strip())
    os._exit(1)


def run_worker() -> None:
    """Train the run of every folder that is named on standard input; say on standard output how each has ended."""
    orders: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    while True:
        folder = Path(orders.get())
        with open(folder / LOG, "wb", buffering=0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            code = _train(folder)
            sys.stdout.flush()
            sys.stderr.flush()
        print(code, file=answers)


def _train(folder: Path) -> int:
    """Train the run in a folder; returns how it has ended."""
    try:
        go_on(RunFolder(folder))
    except IsthmusError as error:
        print(error, file=sys.stderr)
        return USERS_ERROR
    except Exception:
        traceback.print_exc()
        return OUR_ERROR
    return DONE


if __name__ == "__main__":
    run_worker()
