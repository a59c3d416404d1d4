"""Layer-wise exchange beside centralised training on the pattern graphs: the same losses, and what it costs in time.

    python benchmarks/layerwise.py --json docs/results/layerwise.json

Multi-PNA, 6 layers, hidden 64, batch 32, fanout 10/10/10/10/5/5, three graphs of 8192 nodes. Losses are compared in
float64 after each of a few steps; seconds a step are medians in float32, all in one run.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from isthmus.data.patterns import patterns
from isthmus.federation import open_federation
from isthmus.graph.graph import Graph
from isthmus.graph.partition import partition
from isthmus.graph.silo import split_graph
from isthmus.methods import get
from isthmus.nn.model import MODELS
from isthmus.settings import TrainConfig
from isthmus.state import Run
from isthmus.train import step
from isthmus.wire.base import LocalWire

EXACT = "sync-sgd+fwd-bwd-le"
CASES = (("louvain", 5), ("louvain", 15), ("metis", 5), ("metis", 15), ("random", 15))


def open_run(graph: Graph, method: str, how: str, silos: int, dtype: torch.dtype) -> Run:
    owner = partition(graph, how, silos) if silos > 1 else torch.zeros(graph.n, dtype=torch.int64)
    federation = open_federation(LocalWire(silos), split_graph(graph, owner, silos))
    settings = TrainConfig(epochs=1, batch=32, fanout=(10, 10, 10, 10, 5, 5), lr=1e-3, weight_decay=1e-4)
    return Run(federation, get(method), MODELS["multi-pna"], settings, dtype=dtype)


def run_steps(run: Run, steps: int) -> tuple[torch.Tensor, list[float]]:
    losses, seconds = [], []
    for _, seeds in zip(range(steps), run.epoch_seeds(), strict=False):
        started = time.perf_counter()
        step(run, seeds)
        seconds.append(time.perf_counter() - started)
        losses.append(run.last_loss)
    return torch.tensor(losses, dtype=torch.float64), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph = patterns(options.nodes)
    exact, _ = run_steps(open_run(graph, "centralised", "", 1, torch.float64), options.steps)
    single, seconds = run_steps(open_run(graph, "centralised", "", 1, torch.float32), options.steps + 1)
    base = statistics.median(seconds[1:])
    own = float(((single[: len(exact)] - exact).abs() / exact).max())
    print(f"centralised           {base:.3f} s a step; float32 against float64: {own:.1e}")
    rows = []
    for how, silos in CASES:
        losses, _ = run_steps(open_run(graph, EXACT, how, silos, torch.float64), options.steps)
        short, seconds = run_steps(open_run(graph, EXACT, how, silos, torch.float32), options.steps + 1)
        away = float(((losses - exact).abs() / exact).max())
        away32 = float(((short[: len(exact)] - exact).abs() / exact).max())
        tax = statistics.median(seconds[1:]) / base
        rows.append({"split": how, "silos": silos, "largest_relative_difference": away, "float32": away32, "tax": tax})
        print(
            f"{how:8} {silos:2} silos   {tax:.2f} x; largest difference of a loss {away:.1e}, in float32 {away32:.1e}"
        )
    if options.json:
        machine = f"{options.threads} thread(s), torch {torch.__version__}"
        result = {"command": "python benchmarks/layerwise.py", "seed": 0, "machine": machine, "steps": options.steps}
        result |= {"centralised_seconds": base, "centralised_float32": own, "rows": rows}
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
