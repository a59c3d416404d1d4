"""Two ways of starting a command that is to be killed: as a fork of this process, or by a new interpreter.

A fork has all imports behind it, so that a start costs milliseconds. It is a process like any other: it has an id of
its own, and SIGKILL ends it without a word. The hosts that it starts are forks, too.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil

HOST = "isthmus.launch.processes"
_PAUSE = 0.002


class Fork:
    """A process that runs a function, with the part of ``subprocess.Popen`` that is used here."""

    def __init__(self, work: Callable[[], int], out: Path | None, environment: dict[str, str] | None = None) -> None:
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            _become(work, out, environment)

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raises as ``subprocess`` does."""
        began = time.monotonic()
        while self.poll() is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(_PAUSE)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _become(work: Callable[[], int], out: Path | None, environment: dict[str, str] | None) -> NoReturn:
    """In the new process: leave the files of the old one alone, do the work, and end."""
    code = 1
    try:
        place = os.open(out or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(place, 1)
        os.dup2(place, 2)
        os.closerange(3, 1024)
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        code = work()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class ForkedHosts:
    """Stands for the module ``subprocess`` where a command starts its hosts: each is a fork of the command."""

    def Popen(self, command: Sequence[str], env: dict[str, str], stdout: Any, stderr: Any) -> Fork:  # noqa: N802
        """A host with the arguments of a command that would start it by a new interpreter."""
        from isthmus.launch import processes

        arguments = list(command[command.index(HOST) + 1 :])
        out = Path(stdout.name).absolute() if stdout is not None else None
        return Fork(lambda: processes.main(arguments), out, env)


def forked(arguments: Sequence[str], said: Path) -> Fork:
    """``isthmus ARGUMENTS`` as a fork; what it prints goes to ``said``."""

    def work() -> int:
        from isthmus.cli import main
        from isthmus.launch import processes

        processes.subprocess = ForkedHosts()  # type: ignore[assignment]
        sys.argv = ["isthmus", *arguments]
        main()
        return 0

    return Fork(work, said)


def fresh(arguments: Sequence[str], said: Path) -> subprocess.Popen[bytes]:
    """``isthmus ARGUMENTS`` by a new interpreter; what it prints goes to ``said``."""
    with open(said, "ab") as file:
        return subprocess.Popen([sys.executable, "-P", "-m", "isthmus", *arguments], stdout=file, stderr=file)


def hosts_of(pid: int) -> list[psutil.Process]:
    """The processes of the hosts that a command has started, in the order of their start."""
    try:
        children = psutil.Process(pid).children()
        own = psutil.Process().cmdline()
        return sorted((each for each in children if HOST in each.cmdline() or each.cmdline() == own), key=_age)
    except psutil.Error:
        return []


def _age(process: psutil.Process) -> tuple[float, int]:
    return process.create_time(), process.pid


def in_fork(work: Callable[[], Any]) -> Any:
    """What a function returns, as JSON tells it; the function runs in a fork, which may start threads."""
    with tempfile.TemporaryDirectory() as folder:
        told, said = Path(folder) / "told.json", Path(folder) / "said.txt"

        def tell() -> int:
            told.write_text(json.dumps(work()))
            return 0

        if Fork(tell, said).wait():
            raise RuntimeError(f"A fork has failed: {said.read_text()}")
        return json.loads(told.read_text())


def import_what_is_used(examples: Sequence[Sequence[str]], also: Sequence[str] = ()) -> int:
    """Import all modules that some commands have imported by their end, and ``also`` these; returns how many."""

    def names(arguments: Sequence[str]) -> list[str]:
        from isthmus.cli import main

        sys.argv = ["isthmus", *arguments]
        with suppress(SystemExit):
            main()
        return sorted(sys.modules)

    found = sorted({*also} | {name for arguments in examples for name in in_fork(lambda given=arguments: names(given))})
    for name in found:
        if name not in sys.modules:
            with suppress(Exception):  # a module that makes no sense outside of its package's own imports
                importlib.import_module(name)
    threads = psutil.Process().num_threads()
    if threads > 1:
        raise RuntimeError(f"After its imports this process has {threads} threads, and cannot be forked.")
    return len(found)
