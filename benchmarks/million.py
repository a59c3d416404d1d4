"""Seconds and peak memory of every stage on a block model of a million nodes, eight million directed edges, ten silos.

The stages: make the graph, choose owners, cut it, shake hands, lay out the run, train one sampled epoch (GraphSAGE,
hidden 64, batches of 1,024 a silo, fanouts 10 and 10, federated averaging), score the validation nodes. A random split
cuts nine edges of ten, METIS as few as it can; the handshake is dear for the one, the epoch for the other.

    python benchmarks/million.py --json docs/results/million.json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from measure import SEED, WORDS, Job, as_child, forget_peak, hot_spots, in_child, now, peak_mb, record
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from isthmus.graph.graph import Graph
    from isthmus.train.progress import Progress
    from isthmus.train.training import Training

_T = TypeVar("_T")
SILOS = 10
SPLITS = ("random", "metis")
THREADS = (1, 2)
TRAIN = {"epochs": 1, "batch": 1024, "fanout": [10, 10]}


def main() -> None:
    """Measure every split and number of threads, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3, help="the quickest counts, stage by stage")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--profile", choices=SPLITS, help="print the hot spots of the sampled epoch instead")
    options = parser.parse_args()
    if options.profile:
        job = {"nodes": options.nodes, "split": options.profile, "profile": True}
        print("\n".join(in_child(__file__, job)["profile"]))
        return
    jobs = [(how, threads) for how in SPLITS for threads in THREADS]
    tries = [
        [in_child(__file__, {"nodes": options.nodes, "split": how}, threads) for how, threads in jobs]
        for _ in range(options.repeats)
    ]
    found = [
        {"split": how, "threads": threads, **_best(list(runs))}
        for (how, threads), runs in zip(jobs, zip(*tries, strict=True), strict=True)
    ]
    _show(found, options.nodes)
    record(options.json, "one and two threads", nodes=options.nodes, silos=SILOS, train=TRAIN, runs=found)


def _best(runs: list[Job]) -> Job:
    """The run with each stage's numbers from the repeat that was quickest at it."""
    stages = {
        name: min((run["stages"][name] for run in runs), key=lambda stage: stage["seconds"])
        for name in runs[0]["stages"]
    }
    return {**runs[0], "stages": stages}


def _show(found: list[Job], nodes: int) -> None:
    table = Table("stage", title=f"{nodes:,} nodes over {SILOS} silos: seconds, and peak MB", title_justify="left")
    for run in found:
        table.add_column(f"{run['split']}, {WORDS[run['threads']]}", justify="right")
    for stage in found[0]["stages"]:
        cells = [run["stages"][stage] for run in found]
        table.add_row(stage, *(f"{cell['seconds']:.2f}  {cell['peak_mb']:6,.0f}" for cell in cells))
    for name in ("cross_edges", "halo_rows", "steps"):
        table.add_row(name.replace("_", " "), *(f"{run[name]:,}" for run in found))
    Console(width=140).print(table)


class Stages:
    """Times what it runs, and notes the memory that the process held at most meanwhile."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, float]] = {}

    def run(self, name: str, work: Callable[[], _T]) -> _T:
        """Run one stage."""
        forget_peak()
        began = now()
        result = work()
        seconds, processor = (after - before for before, after in zip(began, now(), strict=True))
        self.note(name, seconds)
        self.seen[name]["processor"] = processor
        return result

    def note(self, name: str, seconds: float) -> None:
        """Keep a stage that ends now."""
        self.seen[name] = {"seconds": seconds, "peak_mb": peak_mb()}


def work(job: Job) -> Job:
    """All stages with one split, in this process."""
    stages = Stages()
    graph, training = set_up(job, stages)
    if job.get("profile"):
        return {"profile": hot_spots(lambda: _epoch(training, stages))}
    _epoch(training, stages)
    silos = training.federation.silos
    return {
        "stages": stages.seen,
        "edges": graph.m,
        "cross_edges": sum(int((silo.crosses & (silo.edge_index[1] < silo.n)).sum()) for silo in silos),
        "halo_rows": sum(silo.h for silo in silos),
        "steps": training.progress.step,
    }


def set_up(job: Job, stages: Stages) -> tuple[Graph, Training]:
    """All stages before the first step."""
    import torch._dynamo  # noqa: F401 - which the first optimiser would load: no part of any stage

    from isthmus.data import blocks
    from isthmus.federation.federation import open_federation
    from isthmus.graph.cut import split_graph
    from isthmus.graph.partition import partition
    from isthmus.runs.config import resolve
    from isthmus.train.training import Training
    from isthmus.wire.local import LocalWire

    stages.run("nothing yet", lambda: None)
    graph = stages.run("make the graph", lambda: blocks(job["nodes"], degree=8.0, seed=SEED))
    owner = stages.run("partition", lambda: partition(graph, job["split"], SILOS, SEED))
    silos = stages.run("split_graph", lambda: split_graph(graph, owner, SILOS))
    wire = LocalWire(SILOS)
    federation = stages.run("handshake", lambda: open_federation(wire, silos, SEED))
    model = {"name": "sage", "layers": 2, "hidden": 64}
    config = resolve({"method": "fedavg", "seed": SEED, "model": model, "train": TRAIN})
    parts = federation, config.method, config.model, config.train, SEED
    return graph, stages.run("lay out the run", lambda: Training(*parts))


def _epoch(training: Training, stages: Stages) -> None:
    """One epoch: steps with the average at their end, then the scores of the validation nodes."""
    from isthmus.train.loop import train
    from isthmus.train.watcher import Watcher

    class Enough(Exception):
        """The epoch is over; the scores of a finished run are not wanted."""

    class Clock(Watcher):
        """Notes when the last step and the scores are done."""

        def on_step(self, progress: Progress, loss: float) -> None:
            """Once a step; the last one stands."""
            stages.note("one epoch", time.perf_counter() - began)

        def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
            """After the scores."""
            stages.note("validation", time.perf_counter() - began - stages.seen["one epoch"]["seconds"])
            raise Enough

    forget_peak()
    began = time.perf_counter()
    with suppress(Enough):
        train(training, Clock())


if __name__ == "__main__" and not as_child(work):
    main()
