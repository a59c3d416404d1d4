"""What the benchmarks share: a child process for each configuration, its own peak memory, and a record of the run."""

from __future__ import annotations

import cProfile
import io
import json
import os
import platform
import pstats
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Job = dict[str, Any]
SEED = 0
WORDS = {1: "one thread", 2: "two threads"}


def in_child(script: str, job: Job, threads: int = 1) -> Job:
    """Run one configuration in a process of its own and return its answer.

    The caller must not have imported torch: a child's peak memory begins at its parent's.
    """
    command = [sys.executable, script, "--job", json.dumps(job)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: Job = json.loads(done.stdout.splitlines()[-1])
    return answer


def as_child(work: Callable[[Job], Job]) -> bool:
    """In a process that :func:`in_child` started: do the work, print the answer, and return True."""
    if len(sys.argv) != 3 or sys.argv[1] != "--job":
        return False
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    answer = work(json.loads(sys.argv[2]))
    print(json.dumps({**answer, "peak_mb": peak_mb()}))
    return True


def now() -> tuple[float, float]:
    """Seconds on the clock, and of processor time: the latter does not grow while other programs are served."""
    return time.perf_counter(), time.process_time()


def peak_mb() -> float:
    """The most memory that this process has held, or has held since :func:`forget_peak`."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak() -> None:
    """Start the peak anew from what is held now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def hot_spots(work: Callable[[], Any], lines: int = 15) -> list[str]:
    """The functions that take the most time themselves, as text."""
    profile = cProfile.Profile()
    profile.runcall(work)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(lines)
    return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]


def record(file: Path | None, threads: str, **numbers: Any) -> None:
    """Write numbers with what is needed to repeat them."""
    if file is None:
        return
    words = [word for i, word in enumerate(sys.argv) if "--json" not in (word, sys.argv[i - 1])]
    about = {
        "command": " ".join(["python", f"benchmarks/{Path(words[0]).name}", *words[1:]]),
        "seed": SEED,
        "hardware": f"{os.cpu_count()} cores {platform.machine()} ({_cpu()}), {threads}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "torch_geometric": version("torch_geometric"),
        "isthmus": _commit(),
        "date": date.today().isoformat(),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**about, **numbers}, indent=2) + "\n")


def _commit() -> str:
    """The commit that was measured, marked where files differ from it; the version outside a checkout."""
    spec = find_spec("isthmus")
    folder = Path(spec.origin).parent if spec and spec.origin else Path.cwd()
    words = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    return said.stdout.strip() or import_module("isthmus").__version__


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )
