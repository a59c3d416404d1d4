"""Starting runs from the page: a form is read, planned, started as a process of its own, stopped and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.page.shelf import Shelf
from isthmus.page.shown_runs import has_checkpoint, seed_folders
from isthmus.runs.status import is_held

COMMAND = (sys.executable, "-m", "isthmus")
AT_ONCE = 4  # runs that go on at the same time
_LONGEST_PLAN = 120.0  # seconds
_SETS = 40  # lines of --set
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,3}")
_SET = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*=.*")
_WRITES = ("system.log", "system.track", "log", "track", "system")  # keys that would let a run write elsewhere


@dataclass(frozen=True)
class StartForm:
    """The form, as it was filled in."""

    name: str = ""
    data: str = "blocks"
    method: str = "fedavg"
    model: str = ""
    silos: str = "5"
    split: str = ""
    hosts: str = "1"
    epochs: str = "50"
    seed: str = "0"
    seeds: str = "1"
    sets: str = ""

    @staticmethod
    def of(sent: Mapping[str, str]) -> StartForm:
        """The form in a request; what is longer than any field needs is cut."""
        names = StartForm.__dataclass_fields__
        return StartForm(**{name: sent.get(name, "").strip()[:10_000] for name in names})

    @property
    def lines(self) -> list[str]:
        """The lines of ``--set`` that hold something."""
        return [line.strip() for line in self.sets.splitlines() if line.strip()]

    def problems(self) -> dict[str, str]:
        """By field, what is wrong with it."""
        found = self._wrong_numbers() | _wrong_split(self.split)
        for name in ("data", "method"):
            if not getattr(self, name):
                found[name] = "Choose one."
        for line in self.lines:
            if not _SET.fullmatch(line):
                found["sets"] = f"'{line[:80]}' is no key with a value; write one a line, like train.lr=0.01"
            elif line.partition("=")[0] in _WRITES:
                found["sets"] = "A run here writes into its own folder alone; leave out system.log and system.track."
        if len(self.lines) > _SETS:
            found["sets"] = f"These are {len(self.lines)} lines; give at most {_SETS}, or a recipe on the command line."
        return found

    def _wrong_numbers(self) -> dict[str, str]:
        """By field, what is wrong with a number."""
        found = {}
        for name, low in (("silos", 1), ("hosts", 1), ("epochs", 1), ("seed", 0), ("seeds", 1)):
            value = getattr(self, name)
            if value and not (value.isascii() and value.isdigit() and low <= int(value[:12]) < 10**9):
                found[name] = f"This is '{value[:40]}'; give a whole number from {low} on, or leave it empty."
        if not found.keys() & {"silos", "hosts"} and self.silos and int(self.hosts or 1) > int(self.silos) + 1:
            found["hosts"] = f"There are {self.silos} silos and a server to carry; give at most {int(self.silos) + 1}."
        return found

    def words(self) -> list[str]:
        """The options of ``isthmus run`` and ``plan`` that the form stands for."""
        named = ("data", "method", "model", "silos", "split", "hosts", "epochs", "seed", "seeds")
        given = [f"--{name}={getattr(self, name)}" for name in named if getattr(self, name)]
        return [*given, *(f"--set={line}" for line in self.lines)]


@dataclass
class Started:
    """A run that this page has started: its process, and the file with what it printed."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    words: tuple[str, ...]  # the options that it was started with

    @property
    def going(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    @property
    def said(self) -> str:
        """The end of what the process has printed, where it ended by an error."""
        if self.going or not self.process.returncode:
            return ""
        text = self.log.read_bytes()[-4000:].decode("utf-8", "replace").strip()
        lines = [line.removeprefix("isthmus: ") for line in text.splitlines() if line.startswith("isthmus: ")]
        return "\n".join(lines) or text[-1500:] or f"The run has ended with the exit code {self.process.returncode}."


class Starter:
    """Starts, stops and resumes runs in the folder that the page shows, and knows those that it has started."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self.started: dict[str, Started] = {}
        self._kept = tempfile.TemporaryDirectory(prefix="isthmus-page-", ignore_cleanup_errors=True)
        self._logs = Path(self._kept.name)
        self._planning, self._lock = threading.Lock(), threading.Lock()

    def plan(self, form: StartForm) -> dict[str, Any]:
        """What ``isthmus plan`` tells of a form; raises its words where it refuses."""
        if not self._planning.acquire(blocking=False):
            raise IsthmusError("Another estimate is being made; ask again when it is there.")
        try:
            done = _isthmus("plan", *form.words(), "--json")
        except subprocess.TimeoutExpired:
            raise IsthmusError(
                f"The estimate takes more than {_LONGEST_PLAN:.0f} s; make it on the command line: isthmus plan."
            ) from None
        finally:
            self._planning.release()
        if done.returncode:
            raise IsthmusError(_reason(done.stderr))
        found: dict[str, Any] = json.loads(done.stdout)
        return {**found, "hosts": int(form.hosts or 1)}

    def start(self, form: StartForm) -> str:
        """Start a run; returns its name. Raises where its folder is taken, or where too many go on."""
        name = form.name or _free(self.shelf.root, f"{Path(form.data).name}-{form.method}")
        if not _NAME.fullmatch(name):
            raise IsthmusError(f"'{name[:80]}' is no name for a run; use letters, digits, points and hyphens.")
        with self._lock:
            out = self._room_for(name)
            if out.exists():
                raise IsthmusError(f"'{name}' is there already; choose another name.")
            self._begin(name, *form.words(), f"--out={out}")
        return name

    def resume(self, name: str) -> None:
        """Let a run go on from its last checkpoint."""
        with self._lock:
            out = self.shelf.open(name)
            self._room_for(name)
            if not has_checkpoint(out):
                raise IsthmusError("This run has no checkpoint from which it could go on; start another.")
            if is_held(out):
                raise IsthmusError("This run goes on already.")
            self._begin(name, "--resume", f"--out={out}", *(self._seeds(name) if seed_folders(out) else ()))

    def _seeds(self, name: str) -> list[str]:
        """The option that says how many seeds a run has; raises where another process has started it."""
        mine = self.started.get(name)
        if mine is None:
            raise IsthmusError(
                "This run has several seeds, and its folder does not say how many; resume it where it was started, "
                "like: isthmus run --resume --seeds 5 --out FOLDER"
            )
        return [word for word in mine.words if word.startswith("--seeds=")]

    def stop(self, name: str) -> None:
        """Ask a run that this page has started to end; it can be resumed."""
        mine = self.started.get(name)
        if mine is None or not mine.going:
            raise IsthmusError("This page has not started that run, or it has ended; stop it where it was started.")
        mine.process.send_signal(signal.SIGTERM)

    def going(self) -> list[Started]:
        """The runs of this page that have not ended."""
        return [each for each in self.started.values() if each.going]

    def _room_for(self, name: str) -> Path:
        """Where a run goes; raises where too many go on, or where the folder would lie elsewhere."""
        if len(self.going()) >= AT_ONCE:
            raise IsthmusError(f"{AT_ONCE} runs of this page go on; stop one, or wait until it has ended.")
        out = self.shelf.root / name
        if not out.resolve().is_relative_to(self.shelf.root):
            raise IsthmusError("That name leads out of the folder that the page shows.")
        return out

    def _begin(self, name: str, *words: str) -> None:
        log = self._logs / f"{len(self.started)}-{os.getpid()}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [*COMMAND, "run", *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file, start_new_session=True,
            )  # fmt: skip
        self.started[name] = Started(name, process, log, words)


def _wrong_split(how: str) -> dict[str, str]:
    """What is wrong with how the graph is to be split; nothing where that is left to the command."""
    from isthmus.graph.partition import find_partitioner

    try:
        if how:
            find_partitioner(how)
    except IsthmusError as error:
        return {"split": str(error)}
    return {}


def _isthmus(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of its own process, ended where it takes too long."""
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=_LONGEST_PLAN, stdin=subprocess.DEVNULL
    )


def _reason(text: str) -> str:
    """The line in which a command says why it refuses."""
    lines = [line.removeprefix("isthmus: ") for line in text.splitlines() if line.startswith("isthmus: ")]
    return lines[-1] if lines else (text.strip().splitlines() or ["The estimate has failed without a word."])[-1]


def _free(root: Path, name: str) -> str:
    """A name that no folder has yet, which begins as given."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:80] or "run"
    numbered = (f"{name}-{number}" for number in range(2, 100_000))
    return name if not (root / name).exists() else next(each for each in numbered if not (root / each).exists())
