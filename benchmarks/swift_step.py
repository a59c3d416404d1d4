"""Seconds of an iteration of Swift-FedGNN on a block model of a million nodes, and where they go.

Twenty silos, 256 seeds each, fanouts 15 and 10, GraphSAGE of two layers, hidden 256. Sampling is all that makes a batch
of seeds; exchange is telling the server what joins what and all ways to it and back, in both passes; the rest computes.

    python benchmarks/swift_step.py --json docs/results/swift_step.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import SEED, Job, as_child, in_child, record
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from isthmus.federation.federation import Federation
    from isthmus.train.training import Training

SILOS = 20
METHODS = ("fedsage", "swift-fedgnn", "fedgnn-g")
TRAIN = {"epochs": 1, "batch": 256, "fanout": [15, 10]}
MODEL = {"name": "sage", "layers": 2, "hidden": 256}


def main() -> None:
    """Measure every split and method, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=20, help="that are timed, after two that warm up")
    parser.add_argument("--splits", nargs="+", default=["metis", "random"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    jobs = [{"nodes": options.nodes, "steps": options.steps, "split": split, "device": options.device}
            for split in options.splits]  # fmt: skip
    found = [in_child(__file__, job, options.threads) for job in jobs]
    _show(found, options)
    record(options.json, f"{options.threads} threads", nodes=options.nodes, silos=SILOS, train=TRAIN, runs=found)


def _show(found: list[Job], options: argparse.Namespace) -> None:
    names = ("seconds", "sampling", "exchange", "compute", "MB")
    table = Table("split", "method", *names, title=f"{options.nodes:,} nodes, {SILOS} silos, an iteration")
    for run in found:
        for name, told in run["methods"].items():
            shares = [f"{told[part] / told['seconds']:.0%}" for part in names[1:4]]
            table.add_row(run["split"], name, f"{told['seconds']:.3f}", *shares, f"{told['bytes'] / 1e6:.2f}")
    Console(width=120).print(table)


class Clock:
    """Adds up the time spent in some functions, each under a name; what one calls inside another counts once."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.seconds: dict[str, float] = {}
        self.wait, self._busy = wait, False

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time a part, unless it lies within another."""
        if self._busy:
            yield
            return
        self._busy = True
        self.wait()
        began = time.perf_counter()
        try:
            yield
        finally:
            self.wait()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
            self._busy = False

    def watch(self, owner: Any, function: str, name: str) -> None:
        """Time every call of ``owner.function``."""
        plain = getattr(owner, function)

        @wraps(plain)
        def timed(*arguments: Any, **named: Any) -> Any:
            with self.part(name):
                return plain(*arguments, **named)

        setattr(owner, function, staticmethod(timed) if function == "backward" else timed)


def work(job: Job) -> Job:
    """All methods with one split, in this process."""
    import torch

    from isthmus.data import blocks
    from isthmus.federation.federation import open_federation
    from isthmus.graph.cut import split_graph
    from isthmus.graph.partition import partition
    from isthmus.methods.exchange import swift as server
    from isthmus.train.passes import BatchMaker
    from isthmus.wire.local import LocalWire
    from isthmus.wire.relay import Relayed
    from isthmus.wire.wire import Wire

    graph = blocks(job["nodes"], degree=8.0, seed=SEED)
    owner = partition(graph, job["split"], SILOS, SEED)
    federation = open_federation(LocalWire(SILOS), split_graph(graph, owner, SILOS), SEED)
    clock = Clock(torch.cuda.synchronize if job["device"] == "cuda" else lambda: None)
    for place, function, name in (
        (BatchMaker, "make", "sampling"),
        (server, "reduce_for_others", "exchange"),
        (Wire, "merge", "exchange"),
        (Relayed, "backward", "exchange"),
    ):
        clock.watch(place, function, name)
    return {**job, "methods": {name: _method(federation, name, job, clock) for name in METHODS}}


def _method(federation: Federation, name: str, job: Job, clock: Clock) -> Job:
    from isthmus.runs.config import resolve
    from isthmus.train.training import Training

    config = resolve({"method": name, "seed": SEED, "model": MODEL, "train": TRAIN})
    training = Training(federation, config.method, config.model, config.train, SEED, job["device"])
    seeds = training.stage.epoch_seeds(training.progress)
    _steps(training, seeds, 2)
    clock.seconds = {}
    before = _bytes(training)
    clock.wait()
    began = time.perf_counter()
    _steps(training, seeds, job["steps"])
    clock.wait()
    total = (time.perf_counter() - began) / job["steps"]
    parts = {part: clock.seconds.get(part, 0.0) / job["steps"] for part in ("sampling", "exchange")}
    sent = (_bytes(training) - before) / job["steps"]
    return {"seconds": total, **parts, "compute": total - sum(parts.values()), "bytes": sent}


def _bytes(training: Training) -> int:
    kinds = training.wire.ledger.by_kind()
    return sum(kinds.get(kind, 0) for kind in ("partials", "adjoints", "ids"))


def _steps(training: Training, seeds: Iterator[Any], count: int) -> None:
    from isthmus.train.loop import step

    for _ in range(count):
        step(training.stage, training.progress, next(seeds))


if __name__ == "__main__" and not as_child(work):
    main()
