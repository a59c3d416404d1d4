"""FLARE's own processes on this machine: the server or a site of a kit, and a coordinator's session with the server."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from isthmus.commands.flare.local_files import role
from isthmus.core.errors import HostLost, IsthmusError
from isthmus.runs.folder import locked
from isthmus.wire.flare.papers import Papers

_MODULES = {"client": "client.client_train", "server": "server.server_train"}
_FAREWELL = 10.0  # seconds in which processes may end by themselves
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_LOGIN = 30.0  # seconds until a server that does not answer is given up


def require() -> None:
    """Refuse to go on where NVIDIA FLARE is not installed, or in another version than the one that was tried."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("nvflare")
    except PackageNotFoundError as error:
        raise IsthmusError(
            "'isthmus flare' needs NVIDIA FLARE, which is not installed: pip install 'isthmus[flare]'"
        ) from error
    if not found.startswith("2.9."):
        raise IsthmusError(f"'isthmus flare' works with NVIDIA FLARE 2.9, not {found}: pip install 'isthmus[flare]'")


def command_of(kit: Path) -> list[str]:
    """The command that runs FLARE's process of a kit, as its startup/sub_start.sh does, by this Python."""
    whose, papers = role(kit), Papers.of_kit(kit)
    own = [f"uid={papers.name}"] if whose == "client" else []
    module = f"nvflare.private.fed.app.{_MODULES[whose]}"
    settings = ["--set", "secure_train=true", *own, f"org={_organisation(papers)}", "config_folder=config"]
    return [sys.executable, "-u", "-m", module, "-m", str(kit.absolute()), "-s", f"fed_{whose}.json", *settings]


def _organisation(papers: Papers) -> str:
    from cryptography.x509 import load_pem_x509_certificates
    from cryptography.x509.oid import NameOID

    found = load_pem_x509_certificates(papers.chain)[0].subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if found else "none"


def start(kit: Path) -> subprocess.Popen[bytes]:
    """Start FLARE's process of a kit; what it prints goes to ``flare.out`` in the kit."""
    Papers.of_kit(kit).check()  # FLARE itself would wait for ever with a certificate that has expired
    (kit / "transfer").mkdir(exist_ok=True)
    environment = os.environ | {
        "PYTHONSAFEPATH": "1",  # no module is taken from the folder of the kit
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "MALLOC_ARENA_MAX": "4",
    }
    with open(kit / "flare.out", "wb") as out:
        return subprocess.Popen(
            command_of(kit),
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )


def _end_with_parent() -> None:
    """Ask Linux to end this process when the one that started it is gone, however that ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def running(kits: Sequence[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run FLARE's processes of some kits within a ``with`` block; none of them, and no job of theirs, outlives it.

    A kit runs once: FLARE's server would let two processes of one name take turns.
    """
    processes: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as held:
        for kit in kits:
            try:
                held.enter_context(locked(kit / "local"))
            except IsthmusError as error:
                raise IsthmusError(f"'{kit}' runs already, in another process of this machine; end that.") from error
        try:
            for kit in kits:
                processes.append(start(kit))
            yield processes
        finally:
            stop(processes)


def stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes and all that they have started, by a signal and then by force."""
    family: dict[int, psutil.Process] = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process.pid)
            for each in (parent, *parent.children(recursive=True)):
                family[each.pid] = each
    for how in ("terminate", "kill"):
        for each in family.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                getattr(each, how)()
        psutil.wait_procs(list(family.values()), timeout=_FAREWELL if how == "terminate" else 2)
    for process in processes:
        process.wait()


@contextlib.contextmanager
def session(kit: Path, processes: Sequence[subprocess.Popen[bytes]] = ()) -> Iterator[Any]:
    """A coordinator's session with the server; ``kit``: that of an administrator."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    papers = Papers.of_kit(kit)
    papers.check()
    deadline, opened = time.monotonic() + _LOGIN, None
    while opened is None:
        refuse_ended(processes)
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # FLARE prints that it connects
                opened = new_secure_session(papers.name, str(kit.absolute()), timeout=5.0)
        except Exception as error:  # FLARE raises many kinds, none of which tells more than that nobody answers
            if time.monotonic() > deadline:
                raise IsthmusError(
                    f"The server of '{kit}' does not answer ({type(error).__name__}: {error}); is it running, and is "
                    "its address in startup/fed_admin.json right?"
                ) from error
            time.sleep(0.5)
    try:
        yield opened
    finally:
        opened.close()


def refuse_ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Raise where one of FLARE's processes has ended although it should still be there."""
    for process in processes:
        if process.poll() is not None:
            words = " ".join(map(str, process.args if isinstance(process.args, list) else []))
            raise HostLost(f"A process of FLARE has ended with code {process.returncode}: {words}")


def await_sites(
    opened: Any, sites: Sequence[str], processes: Sequence[subprocess.Popen[bytes]], seconds: float
) -> None:
    """Wait until all sites have registered with the server; raises, naming those that have not."""
    deadline = time.monotonic() + seconds
    missing = list(sites)
    while missing:
        refuse_ended(processes)
        here = {client.name for client in opened.get_system_info().client_info}
        missing = [site for site in sites if site not in here]
        if missing and time.monotonic() > deadline:
            raise HostLost(
                f"{', '.join(missing)} did not register with the server within {seconds:g} s: is 'isthmus flare site "
                "KIT --start' running there, and can it reach the server's address?"
            )
        time.sleep(0.3 if missing else 0)


def await_end(opened: Any, number: str, processes: Sequence[subprocess.Popen[bytes]] = ()) -> Mapping[str, Any]:
    """Wait until a job has ended; returns what FLARE tells of it."""
    while True:
        refuse_ended(processes)
        about: Mapping[str, Any] = opened.get_job_meta(number)
        status = str(about.get("status", ""))
        if status.startswith(("FINISHED", "FAILED", "ABANDONED")):
            return about
        time.sleep(0.5)
