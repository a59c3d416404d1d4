"""Seconds, bytes and memory of methods that generate missing neighbours: Cora, ten silos, one thread, float32.

The first phase is FedSage+'s 20 epochs of generators, or FedDEP's 50 of encoders and the grouping of their rows; a
round is one epoch of full batches with a mean of parameters and a score on the validation nodes. Of all seconds and
bytes there is also a mean over the epochs of both phases, and over those in which generators learn: FedSage+'s first
20, and FedDEP's rounds. Each method runs in a process of its own; of several repeats the quickest counts, because a
busy machine only ever adds time. Beside FedSage+ stands what a public library took for it on the same graph, also with
ten silos and one thread: 17.6 s of generators, 0.241 s a round, 3.6 GiB.

    python benchmarks/generators.py --data FOLDER --json docs/results/generators.json
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

SILOS, ROUNDS = 10, 40
METHODS = ("fedsage+", "feddep", "feddep-no-prototypes", "feddep-no-generator")
PUBLIC = {"before": 17.6, "round": 0.241, "peak_mb": 3.6 * 1024}


def main() -> None:
    """Time all methods, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", help="folder of the public data sets (default: ISTHMUS_DATA)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--profile", choices=METHODS, help="print the hot spots of one method instead")
    options = parser.parse_args()
    if options.data:
        os.environ["ISTHMUS_DATA"] = options.data
    if options.profile:
        print("\n".join(in_child(__file__, {"method": options.profile, "profile": True})["profile"]))
        return
    found: dict[str, Job] = {}
    for method in METHODS:
        tries = [in_child(__file__, {"method": method}) for _ in range(options.repeats)]
        found[method] = told = {key: min(each[key] for each in tries) for key in tries[0]}
        seconds = f"{told['before']:7.2f} s of the first phase, {told['round']:.4f} s a round"
        print(f"{method:22} {seconds}, {told['mb']:8.1f} MB sent, {told['peak_mb']:.0f} MB at most")
        mean = f"{told['epoch']:.4f} s and {told['epoch_mb']:.1f} MB"
        print(f"{'':22} an epoch of both phases: {mean}; while generators learn: {told['generator_epoch']:.4f} s")
    times = ", ".join(f"{key} {PUBLIC[key] / found['fedsage+'][key]:.1f}" for key in PUBLIC)
    print(f"The public library's FedSage+ as a multiple of ours: {times}")
    record(options.json, "one thread", cora_ten_silos=found, public_library=PUBLIC)


def work(job: Job) -> Job:
    """One method, in this process: processor seconds of the first phase and of a round, and megabytes sent."""
    from isthmus.api import fit, split
    from isthmus.data import load
    from isthmus.methods import catalogue
    from isthmus.train.watcher import Watcher

    class Clock(Watcher):
        """Notes when an epoch ends."""

        def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
            """Once an epoch."""
            ends.append(now()[1])

    method = catalogue.get(job["method"])
    before = sum(phase.epochs for phase in method.phases[:-1])
    silos = split(load("cora", seed=SEED, masks="random"), "louvain", SILOS, SEED)
    settings = {"model": {"layers": 2, "hidden": 128}, "train": {"epochs": before + ROUNDS}}
    start = now()[1]
    ends: list[float] = []
    sent = list[int]()

    def run() -> None:
        result = fit(silos, job["method"], method.model or "sage", SEED, settings=settings, watcher=Clock())
        sent.append(sum(result.bytes.values()))

    if job.get("profile"):
        return {"profile": hot_spots(run)}
    run()
    round_ = median(b - a for a, b in pairwise(ends[before:]))
    first = ends[before] - start - round_ if before else 0.0  # with what is done between the phases
    epochs, learnt_first = before + ROUNDS, method.phases[0].net == "local"
    return {
        "before": first,
        "round": round_,
        "mb": sent[0] / 1e6,
        "epoch": (ends[-1] - start) / epochs,
        "epoch_mb": sent[0] / 1e6 / epochs,
        "generator_epoch": first / before if learnt_first else round_,
    }


if __name__ == "__main__" and not as_child(work):
    main()
