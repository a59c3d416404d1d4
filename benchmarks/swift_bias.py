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
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.graph.partition import partition
from isthmus.methods.catalogue import get
from isthmus.nn.model import MODELS
from isthmus.sample.batches import Seeds
from isthmus.train.loop import step
from isthmus.train.passes import BatchMaker, make_maker
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire

SILOS, WIDTH, DEPTHS, AT = 10, 64, (1, 2, 3, 4, 5), (0, 20, 50)
SPLITS = ("metis", "random")


def gradient(training: Training, maker: BatchMaker, seeds: Seeds) -> Tensor:
    """Of the mean loss of all seeds, by all parameters."""
    site, work = training.stage.site, maker.make(seeds, training.progress.step)
    logits = forward(site.net, work.exchange, work.batch, site.passing(training=True, step=work.batch.step))
    losses = training.stage.objective.seed_losses(logits, work.batch)
    parameters = list(training.learner.classifier.sets.parameters.values())
    found = torch.autograd.grad(site.wire.close(losses.mean()), parameters)
    return torch.cat([each.flatten() for each in found])


def measure(graph: Graph, split: str, layers: int) -> list[dict[str, Any]]:
    parts = split_graph(graph, partition(graph, split, SILOS, SEED), SILOS)
    config = replace(MODELS["sage"], hidden=WIDTH, layers=layers, dropout=0.0)
    train = TrainConfig(epochs=AT[-1] + 1, lr=0.001, weight_decay=0.0)
    federation = open_federation(LocalWire(SILOS), parts, scale="rows")
    training = Training(federation, get("fedgnn-g"), config, train, SEED, dtype=torch.float64)
    stage, progress = training.stage, training.progress
    across, apart = stage.passes.across["train"], make_maker(stage.site, *stage.exchange.apart(stage.site.stack))
    found = []
    while progress.epoch < progress.epochs:
        for seeds in stage.epoch_seeds(progress):
            if progress.step in AT:
                true, local = (gradient(training, maker, seeds) for maker in (across, apart))
                bias = float((local - true).norm() / true.norm())
                cosine = float(torch.cosine_similarity(local, true, 0))
                found.append({"split": split, "layers": layers, "step": progress.step, "bias": bias, "cosine": cosine})
            step(stage, progress, seeds)
        progress.epoch += 1
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
