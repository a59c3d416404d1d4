"""Starting hosts: in this process, as processes of this machine, or as one process of a ``torchrun`` job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from isthmus.core.errors import HostLost, IsthmusError, Terminated
from isthmus.data.members import is_parts
from isthmus.data.write_parts import write_parts
from isthmus.launch.host import host_main, prepare
from isthmus.launch.party import as_party, keep_config
from isthmus.launch.silos import load_silos
from isthmus.launch.start import Start
from isthmus.runs.config import RunConfig, resolve
from isthmus.runs.folder import RunFolder
from isthmus.wire.rendezvous import LOOPBACK, SECRET, listening_store
from isthmus.wire.token import fresh

_ASKED = 5.0  # seconds that hosts have to end by themselves once they are asked to
_GRACE = 8.0  # seconds; a host sees at once that another is gone, and takes about three seconds to find out which
LOST, REFUSED = 3, 2  # exit codes of a host: another host is gone; the user must mend something


def execute(start: Start) -> dict[str, Any] | None:
    """Run a configuration in a run folder; returns the final metrics on every host that has a folder of its own."""
    with terminable():
        return _execute(start) if start.place is None else as_party(start, start.place)


def _execute(start: Start) -> dict[str, Any] | None:
    """Run on this machine alone, or as one of the processes that something else has started."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _as_member(start)
    start = replace(start, config=prepare(start.config))
    keep_config(start.config, start.folder, start.resume)
    if start.config.system.hosts == 1:
        return host_main(start)
    _write_parts(start.config, start.folder)
    _start_hosts(start)
    return RunFolder.open(start.folder.path).metrics


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM within the block into a `Terminated` with a message; only the main thread can set this up."""

    def end(*_: Any) -> None:
        raise Terminated("Ended by SIGTERM; the run continues from its last checkpoint with --resume.")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_member(start: Start) -> dict[str, Any] | None:
    """Run as one process of a job that ``torchrun`` or :func:`_start_hosts` started; it reads only its own parts."""
    config, folder = start.config, start.folder
    config = prepare(replace(config, system=replace(config.system, hosts=int(os.environ["WORLD_SIZE"]))))
    if not is_parts(config.data.name) and not is_parts(str(folder.path / "parts")):
        raise IsthmusError(
            f"Several hosts read parts, but '{config.data.name}' is a whole graph; first write parts with "
            f"'isthmus split {config.data.name} --silos {config.data.silos} --out PARTS', then use --data PARTS."
        )
    if os.environ["RANK"] == "0":
        keep_config(config, folder, start.resume)
    return host_main(replace(start, config=config, folder=replace(folder, shared=True)))


def _write_parts(config: RunConfig, folder: RunFolder) -> None:
    """Split a whole graph into parts in the run folder, from which each host then reads its own."""
    parts = folder.path / "parts"
    if is_parts(config.data.name) or parts.exists():
        return
    write_parts(load_silos(config.data, merged=False), parts)


def _start_hosts(start: Start) -> None:
    """Start one process for each host, watch them, and tell which one failed and why."""
    config, folder = start.config, start.folder
    store = listening_store(LOOPBACK, 0, config.system.timeout)
    logs = folder.path / "hosts"
    logs.mkdir(exist_ok=True)
    module = ["-P", "-m", "isthmus.launch.processes"]  # -P: not from the current folder, whatever lies there
    command = [sys.executable, *module, str(folder.path), "resume" if start.resume else "start", start.policy]
    processes, secret = [], fresh()  # which keeps other users of this machine out
    for host in range(config.system.hosts):
        environment = os.environ | {
            "RANK": str(host),
            "WORLD_SIZE": str(config.system.hosts),
            "MASTER_ADDR": LOOPBACK,
            SECRET: secret,
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(config.system.threads or 1)),
        }
        (logs / f"host-{host}.error").unlink(missing_ok=True)
        with open(logs / f"host-{host}.log", "w") as log:
            out = None if host == 0 else log  # the first host shows the progress
            processes.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
    try:
        codes = _watch(processes, config.absence.goes_on)
    except BaseException:  # this process is asked to end
        _ask_to_end(processes)
        raise
    finally:
        _kill(processes)
    if codes[0] if config.absence.goes_on else any(codes):
        raise _explain(codes, logs)


def _ask_to_end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask hosts that still run to end, and give them some seconds in which each writes down how it ended."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    until = time.monotonic() + _ASKED
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(until - time.monotonic(), 0.0))


def _kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End hosts that still run, one that stands still included."""
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def _watch(processes: list[subprocess.Popen[bytes]], goes_on: bool) -> list[int]:
    """Exit codes of all processes; once one fails, the others get some seconds to notice and say why.

    Where a run ``goes_on`` without a host, that begins when the first one, the server's, has ended.
    """
    failed_at: float | None = None
    while any(process.poll() is None for process in processes):
        codes = [process.poll() for process in processes]
        over = codes[0] is not None if goes_on else any(code not in (None, 0) for code in codes)
        if failed_at is None and over:
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > _GRACE:
            break
        time.sleep(0.05)
    return [process.poll() if process.poll() is not None else -signal.SIGSTOP for process in processes]  # type: ignore[misc]


def _explain(codes: list[int], logs: Path) -> IsthmusError:
    """The error to raise: a killed host first, then an error of a host, and last that hosts lost each other."""
    for host, code in enumerate(codes):
        if code < 0 and code != -signal.SIGSTOP:
            how = signal.Signals(-code).name
            if code == -signal.SIGABRT:
                return HostLost(
                    f"Host {host} was ended by its transport ({how}), as happens where another host sends more than it "
                    "has announced; look at what the others run. The last checkpoint is intact, continue with --resume."
                )
            return HostLost(f"Host {host} was killed ({how}); the last checkpoint is intact, continue with --resume.")
    for wanted in (REFUSED, 1, LOST):
        for host, code in enumerate(codes):
            said, log = logs / f"host-{host}.error", logs / f"host-{host}.log"
            if code == wanted and said.exists():
                return (IsthmusError if code == REFUSED else HostLost)(said.read_text())
            if code == wanted:
                where = f"see {log}" if log.stat().st_size else "what it said is above"
                return HostLost(f"Host {host} failed; {where}.")
    return HostLost(f"Hosts ended with {codes}; see {logs}.")


def _end_with(parent: int) -> None:
    """End this host when the process that started it is gone, since somebody else may resume the run by then."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(LOST)


def main(arguments: list[str]) -> int:
    """Entry point of a host process: the run folder, whether to resume, and the policy that was named, if any."""
    from isthmus.launch.progress_bar import watcher_for
    from isthmus.launch.trackers import watcher_of

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    folder = RunFolder(Path(arguments[0]))
    config = resolve(folder.config)
    shows = os.environ["RANK"] == "0"
    watcher = watcher_for(config, quiet=not shows)
    watcher = watcher_of(config, watcher, folder) if shows else watcher
    try:
        execute(Start(config, folder, arguments[1] == "resume", watcher, arguments[2]))
    except IsthmusError as error:
        (folder.path / "hosts" / f"host-{os.environ['RANK']}.error").write_text(str(error))
        return LOST if isinstance(error, HostLost) else REFUSED
    finally:
        watcher.close()
    return 0


if __name__ == "__main__":
    # os._exit, since a failed host would otherwise wait for its peers in the destructor of the process group.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code) if code else sys.exit(0)
