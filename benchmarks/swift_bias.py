"""How far the gradient of silos that use their own neighbours alone is from the true one, against depth.

    python benchmarks/swift_bias.py --data DIR --json docs/results/swift_bias.json

Cora (DIR holds Planetoid/), six of ten nodes for training, ten silos, GraphSAGE of width 64 without dropout, full
batches, trained by FedGNN-G with Adam, learning rate 0.001. Before some steps both gradients of the same loss are taken
with the same parameters: along all edges, and along those within silos. Printed is |local - true| / |true|, and the
cosine between them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measure import SEED, WORDS, record
from torch import Tensor

from isthmus.data.public import planetoid
from isthmus.engine.forward import forward
from isthmus.engine.passes import Way
from isthmus.engine.settings import TrainConfig
from isthmus.engine.state import Run
from isthmus.federation.federation import open_federation
from isthmus.graph.graph import Graph
from isthmus.graph.partition import partition
from isthmus.graph.silo import split_graph
from isthmus.methods.catalogue import adjust, get
from isthmus.nn.model import MODELS
from isthmus.sample.batches import Seeds
from isthmus.train.loop import step
from isthmus.wire.base import LocalWire

SILOS, WIDTH, DEPTHS, AT = 10, 64, (1, 2, 3, 4, 5), (0, 20, 50)
SPLITS = ("metis", "random")


def gradient(run: Run, way: Way, seeds: Seeds) -> Tensor:
    """Of the mean loss of all seeds, by all parameters."""
    batch = way.batch(seeds, run.step)
    losses = run.objective.seed_losses(forward(run, batch, training=True), batch.y, None, run.minority)
    parameters = list(run.sets.parameters.values())
    found = torch.autograd.grad(run.wire.close(losses.mean()), parameters)
    return torch.cat([each.flatten() for each in found])


def measure(graph: Graph, split: str, layers: int) -> list[dict[str, Any]]:
    parts = split_graph(graph, partition(graph, split, SILOS, SEED), SILOS)
    method = adjust(get("fedgnn-g"), {"schedule": {"score": "own"}})  # so that there is a local way too
    config = replace(MODELS["sage"], hidden=WIDTH, layers=layers, dropout=0.0)
    train = TrainConfig(epochs=AT[-1] + 1, lr=0.001, weight_decay=0.0)
    run = Run(open_federation(LocalWire(SILOS), parts), method, config, train, SEED, dtype=torch.float64)
    found = []
    while run.epoch < run.epochs:
        for seeds in run.epoch_seeds():
            if run.step in AT:
                true, local = (gradient(run, way, seeds) for way in (run.ways.across["train"], run.ways.apart))
                bias = float((local - true).norm() / true.norm())
                cosine = float(torch.cosine_similarity(local, true, 0))
                found.append({"split": split, "layers": layers, "step": run.step, "bias": bias, "cosine": cosine})
            step(run, seeds)
        run.epoch += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    graph = planetoid("cora", options.data, masks="random")
    lines = [line for split in SPLITS for layers in DEPTHS for line in measure(graph, split, layers)]
    print("split   layers" + "".join(f"    before step {at + 1:3}" for at in AT))
    for split in SPLITS:
        for layers in DEPTHS:
            cells = [f"{line['bias']:.2f} (cos {line['cosine']:.2f})" for line in lines
                     if (line["split"], line["layers"]) == (split, layers)]  # fmt: skip
            print(f"{split:7} {layers:6}    " + "  ".join(cells))
    record(options.json, WORDS[torch.get_num_threads()], lines=lines)


if __name__ == "__main__":
    main()
