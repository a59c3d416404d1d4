"""What secret messages cost: seconds and memory of an epoch with rows in plain, in fixed point and as shares.

    python benchmarks/hifgl.py --data DIR --json docs/results/hifgl.json
    python benchmarks/hifgl.py --million --json docs/results/hifgl-million.json

Five silos at random, every node a device, a GCN, full batch, one thread; beside the paper's seconds (a V100) and
gigabytes. Seconds are of processor time and of the clock, the median over epochs after the first, without validation.
``--predictions``: how many predicted classes of test nodes fixed point changes. ``--million``: one epoch of a million
devices on a block graph of four million directed edges, ten silos, hidden 32.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import SEED, WORDS, Job, as_child, in_child, now, peak_mb, record

if TYPE_CHECKING:
    from isthmus.train.training import Training

CHAINS = {"plain": "masks", "fixed point": "fixed-point,masks", "shares": "fixed-point,shares,masks"}
EPOCHS = 6  # the first is not counted
MILLION = {"data": "blocks", "nodes": 1_000_000, "degree": 4.0, "silos": 10, "hidden": 32, "epochs": 1}


def main() -> None:
    """Measure what was asked for, print it, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="the folder of public data sets")
    parser.add_argument("--sweeps", action="store_true", help="also all numbers of layers and widths of the paper")
    parser.add_argument("--predictions", type=int, default=0, metavar="SEEDS", help="count changed predictions on Cora")
    parser.add_argument("--million", action="store_true", help="one epoch of a million devices instead")
    parser.add_argument("--nodes", type=int, default=MILLION["nodes"], help="devices of --million")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    if options.million:
        found = [in_child(__file__, {**MILLION, "nodes": options.nodes, "chain": "shares"})]
        print(found[0])
    elif options.predictions:
        found = [in_child(__file__, _job(options.data, "cora", seed=seed)) for seed in range(options.predictions)]
        for each in found:
            print(f"seed {each['seed']}: {each['changed']} of {each['nodes']} predictions of test nodes changed")
    else:
        found = [_measured(job) for job in _jobs(options.data, options.sweeps)]
    record(options.json, WORDS[1], runs=found)


def _job(folder: str, data: str, **changes: Any) -> Job:
    return {"folder": folder, "data": data, "silos": 5, "hidden": 64, "layers": 2, "epochs": EPOCHS, **changes}


def _jobs(folder: str, sweeps: bool) -> list[Job]:
    """The configurations to measure: both graphs of the paper with each chain, and with shares its sweeps."""
    jobs = [_job(folder, data, chain=chain) for data in ("citeseer", "pubmed") for chain in CHAINS]
    if sweeps:
        jobs += [_job(folder, "citeseer", layers=count, chain="shares") for count in (1, 4, 8, 16)]
        jobs += [_job(folder, "pubmed", hidden=width, chain="shares") for width in (4, 8, 16, 32, 128)]
    return jobs


def _measured(job: Job) -> Job:
    """One configuration in a process of its own, with the paper's numbers where it has them; a line is printed."""
    found = {
        **{key: job[key] for key in ("data", "layers", "hidden", "chain")},
        **in_child(__file__, job),
        **_paper(job),
    }
    words = f"{job['data']:9} layers {job['layers']:2}  hidden {job['hidden']:3}  {job['chain']:11}"
    paper = f"paper: {found['paper_seconds']} s, {found['paper_gb']} GB"
    print(f"{words} {found['cpu_seconds']:.4f} s  {found['peak_mb']:,.0f} MB  ({paper})")
    return found


def _paper(job: Job) -> Job:
    """The paper's seconds and gigabytes of a configuration; nothing where it has none."""
    what, value = (
        ("hidden (PubMed)", job["hidden"]) if job["data"] == "pubmed" else ("layers (CiteSeer)", job["layers"])
    )
    text = resources.files("isthmus.studies").joinpath("tables", "hifgl_cost.csv").read_text()
    for line in csv.DictReader(text.splitlines()):
        if (line["what"], line["value"]) == (what, str(value)):
            return {"paper_seconds": float(line["epoch_seconds"]), "paper_gb": float(line["memory_gb"])}
    return {}


def work(job: Job) -> Job:
    """One configuration in this process: predictions with and without fixed point, or the seconds of epochs."""
    if "chain" not in job:
        return _changed(job)
    began = now()
    training = opened(job, CHAINS[job["chain"]])
    ready, held = now(), peak_mb()
    epochs = _epochs(training)
    counted = epochs[1:] or epochs
    return {
        "seconds": statistics.median(wall for wall, _ in counted),
        "cpu_seconds": statistics.median(cpu for _, cpu in counted),
        "opening_seconds": ready[0] - began[0],
        "opening_mb": held,
    }


def opened(job: Job, protect: str) -> Training:
    """A run that is ready for its first step."""
    from isthmus.data import load
    from isthmus.federation.federation import open_federation
    from isthmus.graph.cut import split_graph
    from isthmus.graph.partition import partition
    from isthmus.protect.secrets import Noise, secrets_from_seed
    from isthmus.runs.config import resolve
    from isthmus.train.training import Training
    from isthmus.wire.local import LocalWire

    seed = job.get("seed", SEED)
    options = {"masks": "random"} if "folder" in job else {"degree": job["degree"], "nodes": job["nodes"]}
    graph = load(job["data"], folder=job.get("folder"), seed=seed, **options)
    silos = split_graph(graph, partition(graph, "random", job["silos"], seed), job["silos"])
    model = {"name": "gcn", "hidden": job["hidden"], "layers": job.get("layers", 2)}
    train = {"epochs": job["epochs"], "evaluate_every": job["epochs"], "decay": 0.9, "decay_every": 4}
    config = resolve({"method": "hifgl", "protect": protect, "seed": seed, "model": model, "train": train})
    wire = LocalWire(job["silos"])
    wire.protect, wire.noise = config.method.chain, Noise(secrets_from_seed(seed, wire.mine))
    federation = open_federation(wire, silos, seed, cross=config.method.cross, level=config.method.level)
    return Training(federation, config.method, config.model, config.train, seed)


def _epochs(training: Training) -> list[tuple[float, float]]:
    """Seconds of every epoch without validation, on the clock and of the processor."""
    from isthmus.testing.runs import walk

    seconds, last = [], now()
    for _ in walk(training):
        here = now()
        seconds.append((here[0] - last[0], here[1] - last[1]))
        last = here
    return seconds


def _changed(job: Job) -> Job:
    """How many predicted classes of test nodes differ between plain sums and fixed point after 50 epochs."""
    from isthmus.graph.graph import TEST
    from isthmus.train.loop import train

    found = []
    for chain in ("plain", "fixed point"):
        result = train(opened({**job, "epochs": 50}, CHAINS[chain]))
        scorer = result.training.stage.judges[0].scorer
        logits, _, _ = scorer.logits(TEST)
        found.append(logits.argmax(1))
    return {"seed": job["seed"], "changed": int((found[0] != found[1]).sum()), "nodes": len(found[0])}


if __name__ == "__main__" and not as_child(work):
    main()
