"""Seconds a round of FED-PUB on Cora: ten silos, one thread, float32, beside FedAvg on the same model.

The model is the authors': two GCN layers of 128 hidden units and a linear head; a round is one epoch of full batches,
one mixing by the server, and a score on the validation nodes. Each method runs in a process of its own; of several
repeats the quickest counts, because a busy machine only ever adds time.

    python benchmarks/fed_pub.py --data FOLDER --json docs/results/fed_pub.json
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from measure import SEED, Job, as_child, hot_spots, in_child, now, record

if TYPE_CHECKING:
    from isthmus.train.progress import Progress

SILOS, ROUNDS, WARM = 10, 60, 10
METHODS = {"fedavg": "FedAvg", "fed-pub": "FED-PUB"}


def main() -> None:
    """Time both methods and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", help="folder of the public data sets (default: ISTHMUS_DATA)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--profile", choices=tuple(METHODS), help="print the hot spots of one method instead")
    options = parser.parse_args()
    if options.data:
        os.environ["ISTHMUS_DATA"] = options.data
    if options.profile:
        print("\n".join(in_child(__file__, {"method": options.profile, "profile": True})["profile"]))
        return
    found: dict[str, Job] = {}
    for method, title in METHODS.items():
        tries = [in_child(__file__, {"method": method}) for _ in range(options.repeats)]
        found[method] = {key: min(each[key] for each in tries) for key in ("seconds", "cpu_seconds", "peak_mb")}
        told = found[method]
        clock, processor = told["seconds"], told["cpu_seconds"]
        print(f"{title:8} {clock:.4f} s a round, {processor:.4f} of the processor, {told['peak_mb']:.0f} MB at most")
    record(options.json, "one thread", cora_ten_silos=found)


def work(job: Job) -> Job:
    """One method, in this process: the median of seconds a round after the warm-up."""
    from isthmus.api import fit, split
    from isthmus.data import load
    from isthmus.train.watcher import Watcher

    class Clock(Watcher):
        """Notes when an epoch, which is a round here, ends."""

        def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
            """Once an epoch."""
            ends.append(now())

    ends: list[tuple[float, float]] = []
    silos = split(load("cora", seed=SEED, masks="random"), "louvain", SILOS, SEED)
    model = {"layers": 2, "hidden": 128, "dropout": 0.5, "embed": False}
    settings = {"model": model, "train": {"epochs": WARM + ROUNDS}}

    def run() -> None:
        fit(silos, job["method"], "gcn", SEED, settings=settings, watcher=Clock())

    if job.get("profile"):
        return {"profile": hot_spots(run)}
    run()
    clock, processor = (median(b - a for a, b in pairwise(kind)) for kind in zip(*ends[WARM - 1 :], strict=True))
    return {"seconds": clock, "cpu_seconds": processor}


if __name__ == "__main__" and not as_child(work):
    main()
