"""Layer-wise exchange beside centralised training on the pattern graphs: the same losses, and what it costs in time.

    python benchmarks/layerwise.py --json docs/results/layerwise.json

Multi-PNA, 6 layers, hidden 64, batch 32, fanout 10/10/10/10/5/5, three graphs of 8192 nodes. Losses are compared in
float64 after each of a few steps; seconds a step are medians in float32, all in one run. Then the same on three hosts
over the loopback interface, with the seconds that each spends in the transport, waiting for the others included.
"""

import argparse
import multiprocessing
import os
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from measure import record

from isthmus.data.patterns import patterns
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.graph.partition import partition
from isthmus.methods.catalogue import get
from isthmus.nn.model import MODELS
from isthmus.train.loop import step
from isthmus.train.training import Training
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire

EXACT, HOSTS = "sync-sgd+fwd-bwd-le", 3
CASES = (("louvain", 5), ("louvain", 15), ("metis", 5), ("metis", 15), ("random", 15))


def open_run(
    graph: Graph, method: str, how: str, silos: int, dtype: torch.dtype = torch.float32, wire: Wire | None = None
) -> Training:
    owner = partition(graph, how, silos) if silos > 1 else torch.zeros(graph.n, dtype=torch.int64)
    wire = wire or LocalWire(silos)
    federation = open_federation(wire, [s for s in split_graph(graph, owner, silos) if s.number in wire.mine])
    settings = TrainConfig(epochs=1, batch=32, fanout=(10, 10, 10, 10, 5, 5), lr=1e-3, weight_decay=1e-4)
    return Training(federation, get(method), MODELS["multi-pna"], settings, dtype=dtype)


def run_steps(training: Training, steps: int) -> tuple[torch.Tensor, float, float]:
    """The losses, and medians of the seconds of a step and of those in the transport; the first step warms up."""
    stage, progress, wire = training.stage, training.progress, training.wire
    losses, seconds, waits = [], [], []
    for _, seeds in zip(range(steps), stage.epoch_seeds(progress), strict=False):
        started, waited = time.perf_counter(), wire.seconds
        step(stage, progress, seeds)
        seconds.append(time.perf_counter() - started)
        waits.append(wire.seconds - waited)
        losses.append(progress.last_loss)
    return torch.tensor(losses, dtype=torch.float64), statistics.median(seconds[1:]), statistics.median(waits[1:])


def host(rank: int, nodes: int, steps: int, port: int, answers: Any) -> None:
    """One of three hosts: its seconds a step, and how many of them went by in the transport."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(HOSTS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    wire = DistributedWire(HOSTS, timeout=120)
    training = open_run(patterns(nodes), EXACT, "louvain", HOSTS, wire=wire)
    _, seconds, waits = run_steps(training, steps + 1)
    wire.close_down()
    answers.put((rank, seconds, waits))


def on_hosts(nodes: int, steps: int) -> list[tuple[int, float, float]]:
    """Rank, seconds a step and seconds on the wire of each of three hosts on the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    hosts = [context.Process(target=host, args=(rank, nodes, steps, port, answers)) for rank in range(HOSTS)]
    for process in hosts:
        process.start()
    found = sorted(answers.get(timeout=600) for _ in hosts)
    for process in hosts:
        process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph = patterns(options.nodes)
    exact, *_ = run_steps(open_run(graph, "centralised", "", 1, torch.float64), options.steps)
    single, base, _ = run_steps(open_run(graph, "centralised", "", 1, torch.float32), options.steps + 1)
    own = float(((single[: len(exact)] - exact).abs() / exact).max())
    print(f"centralised           {base:.3f} s a step; float32 against float64: {own:.1e}")
    rows = []
    for how, silos in CASES:
        losses, *_ = run_steps(open_run(graph, EXACT, how, silos, torch.float64), options.steps)
        short, seconds, _ = run_steps(open_run(graph, EXACT, how, silos, torch.float32), options.steps + 1)
        away = float(((losses - exact).abs() / exact).max())
        away32 = float(((short[: len(exact)] - exact).abs() / exact).max())
        tax = seconds / base
        rows.append({"split": how, "silos": silos, "largest_relative_difference": away, "float32": away32, "tax": tax})
        print(
            f"{how:8} {silos:2} silos   {tax:.2f} x; largest difference of a loss {away:.1e}, in float32 {away32:.1e}"
        )
    _, one, _ = run_steps(open_run(graph, EXACT, "louvain", HOSTS), options.steps + 1)
    hosts = on_hosts(options.nodes, options.steps)
    print(f"louvain  {HOSTS} silos   in one process {one:.3f} s a step; on {HOSTS} hosts over loopback:")
    for rank, seconds_, waits in hosts:
        print(f"  host {rank}: {seconds_:.3f} s a step, {waits:.3f} s of them on the wire (waiting included)")
    record(
        options.json,
        f"{options.threads} thread(s)",
        steps=options.steps,
        centralised_seconds=base,
        centralised_float32=own,
        rows=rows,
        one_process_seconds=one,
        hosts=[{"host": r, "seconds": s, "wire_seconds": w} for r, s, w in hosts],
    )


if __name__ == "__main__":
    main()
