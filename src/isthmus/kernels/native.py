"""The C kernels as a library, compiled on first use by the machine's own C compiler and kept in a cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCES = ("kernels.c", "draw.c", "sums.c", "chacha.c", "shares.c", "moments.c", "scale.c", "activate.c")
FLAGS = ("-O3", "-std=c11", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")


class NoCompiler(Exception):
    """The C kernels could not be compiled; the message tells the user why."""


@cache
def library() -> ctypes.CDLL:
    """The library of C kernels, from the cache or compiled now; raises NoCompiler where that fails."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if not command or shutil.which(command[0]) is None:
        raise NoCompiler(f"no C compiler '{command[0] if command else ''}' on this machine")
    folder = Path(__file__).parent
    # Built for this very processor, so a cache that several machines see must tell them apart.
    made_for = [*command, *FLAGS, platform.machine(), _processor(), *((folder / s).read_text() for s in SOURCES)]
    name = f"kernels-{hashlib.sha256(chr(0).join(made_for).encode()).hexdigest()[:16]}.so"
    for cache_folder in (_cache_folder(), Path(tempfile.gettempdir(), f"isthmus-{_user()}")):
        try:
            cache_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if cache_folder.stat().st_uid == _user():  # never load what somebody else may have put there
                return _load(command, folder / SOURCES[0], cache_folder / name)
        except OSError as error:
            problem = error
    raise NoCompiler(f"no folder to keep compiled code in ({problem})")


def _load(command: list[str], source: Path, target: Path) -> ctypes.CDLL:
    """The library at ``target``; compiled from ``source`` where it is missing or damaged."""
    if target.is_file():
        try:
            return ctypes.CDLL(str(target))
        except OSError:
            target.unlink()  # damaged: made anew
    _compile(command, source, target)
    return ctypes.CDLL(str(target))


def _compile(command: list[str], source: Path, target: Path) -> None:
    """Compile into a temporary folder and move the library to ``target``: another process may be compiling it too."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder, target.name)
        for tuned in (("-march=native",), ()):
            words = [*command, *FLAGS, *tuned, str(source), "-o", str(made), "-lm"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                os.replace(made, target)
                return
    raise NoCompiler(f"'{shlex.join(command)}' failed: {done.stderr.strip()[-300:]}")


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "isthmus")


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _processor() -> str:
    """The features of the processor, where the system lists them, else its name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
