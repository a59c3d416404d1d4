"""Seconds per step of a run whose silos have policies, beside one without: rules alone, and with a budget booked.

Each setting runs in a process of its own, one after the other, several times; the lowest median of a step counts,
because a busy machine only ever adds time. Rows leave at every layer of every step, forwards and backwards.

    python benchmarks/policies.py --json docs/results/policies.json
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from measure import SEED, Job, as_child, in_child, now, record
from rich.console import Console
from rich.table import Table

STEPS, WARM = 40, 10
NODES, SILOS = 2000, (5,)
BUDGETS = "".join(f"[budget.{unit}]\nepsilon = 1e12\ndelta = 1e-5\n" for unit in ("row", "node"))
SETTINGS = {
    "none": "no policy",
    "open": "open",
    "bank": "bank without its budget: rules alone",
    "budget": "bank, with two budgets, booked and flushed",
}


def main() -> None:
    """Time every setting and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=tuple(SETTINGS), help="one setting alone")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    chosen = [options.only] if options.only else list(SETTINGS)
    table = Table("silos", "policy", "ms a step", "CPU ms a step", "of no policy (CPU)", title="One step, one thread")
    found: dict[str, dict[str, Any]] = {}
    for silos in SILOS:
        jobs = [{"policy": name, "silos": silos} for _ in range(options.repeats) for name in chosen]
        runs = [(job["policy"], in_child(__file__, job)) for job in jobs]
        best = {
            name: {key: min(run[key] for of, run in runs if of == name) for key in ("seconds", "cpu_seconds")}
            for name in chosen
        }
        first = best[chosen[0]]["cpu_seconds"]
        for name, each in best.items():
            times = (f"{1e3 * each[key]:.2f}" for key in ("seconds", "cpu_seconds"))
            table.add_row(str(silos), SETTINGS[name], *times, f"{each['cpu_seconds'] / first:.3f}")
        found[str(silos)] = best
    Console(width=120).print(table)
    record(options.json, "one thread", seconds=found)


def _time(job: Job) -> Job:
    """Median seconds of a step of one setting."""
    from isthmus.launch.host import run_over
    from isthmus.launch.start import Start
    from isthmus.runs.config import resolve
    from isthmus.runs.folder import RunFolder
    from isthmus.train.watcher import Watcher
    from isthmus.wire.local import LocalWire

    marks: list[tuple[float, float]] = []

    class Clock(Watcher):
        def on_step(self, progress: Any, loss: float) -> None:
            marks.append(now())

    noise = {"clip": 1.0, "sigma": 1.0, "clip_adjoints": 1.0, "sigma_adjoints": 1.0}
    noise |= {f"{what}_gradients": 1.0 for what in ("clip", "sigma")}
    config = resolve(
        {
            "method": "sync-sgd+fwd-bwd-le",
            "seed": SEED,
            "data": {"name": "blocks", "nodes": NODES, "silos": job["silos"]},
            "model": {"name": "gcn", "hidden": 64, "norm": "none"},
            "train": {"epochs": STEPS, "evaluate_every": STEPS, "checkpoint_every": STEPS, "statistics": "own"},
            "protect": noise,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        out = RunFolder.create(Path(folder, "run"), resume=False, overwrite=False)
        named = {} if job["policy"] == "none" else {"policy": _policy(job["policy"], Path(folder))}
        run_over(LocalWire(job["silos"], config.method.chain), Start(config, out, watcher=Clock(), **named))
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(marks[WARM:])]
    return {"seconds": median(each[0] for each in steps), "cpu_seconds": median(each[1] for each in steps)}


def _policy(name: str, folder: Path) -> str:
    """The name or the file of a policy: that of the bank without its budget, or with two that nothing exceeds."""
    if name == "open":
        return name
    from isthmus.policy.reading import preset_text

    path = folder / "policy.toml"
    path.write_text(preset_text("bank").split("[budget.row]")[0] + (BUDGETS if name == "budget" else ""))
    return str(path)


if __name__ == "__main__" and not as_child(_time):
    main()
