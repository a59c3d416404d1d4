"""What a shorter number format on the wire costs in score: float32 beside bfloat16, with the same seeds.

    python benchmarks/number_format.py --json docs/results/number_format.json

Pattern graphs of 4096 nodes over 5 silos (Louvain, resolution 3), sync-sgd+fwd-bwd-le with joint batches; Multi-PNA
with 3 layers. Embeddings and adjoints travel in the given format, everything else as it is.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from measure import SEED, WORDS, record

from isthmus.data.patterns import patterns
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.graph.partition import partition
from isthmus.methods.catalogue import get
from isthmus.methods.compose import compose
from isthmus.nn.model import MODELS
from isthmus.train.loop import train
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire

SILOS, LAYERS, METHOD = 5, 3, "sync-sgd+fwd-bwd-le"
FORMATS = ("float32", "bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph = patterns(options.nodes, seed=SEED)
    owner = partition(graph, "louvain", SILOS, SEED, resolution=3.0)
    found = {
        name: [measure(graph, owner, name, seed, options.epochs) for seed in range(options.seeds)] for name in FORMATS
    }
    for name, runs in found.items():
        scores = [100 * run["macro_pr_auc"] for run in runs]
        rows = statistics.mean(run["bytes"]["embeddings"] + run["bytes"]["adjoints"] for run in runs)
        print(
            f"{name:9} macro PR-AUC {statistics.mean(scores):.2f} ± {statistics.pstdev(scores):.2f} "
            f"({', '.join(f'{score:.2f}' for score in scores)}); embeddings and adjoints {rows / 1e6:.1f} MB"
        )
    record(options.json, WORDS[options.threads], method=METHOD, silos=SILOS, layers=LAYERS, runs=found)


def measure(graph: Graph, owner: torch.Tensor, number_format: str, seed: int, epochs: int) -> dict[str, Any]:
    """Train, select on validation, score on test."""
    method = compose(get(METHOD), {"protect": {"format": number_format}})
    federation = open_federation(LocalWire(SILOS, method.chain), split_graph(graph, owner, SILOS), SEED)
    settings = TrainConfig(epochs=epochs, batch=32, fanout=(10,), lr=1e-3, weight_decay=1e-4, evaluate_every=5)
    model = replace(MODELS["multi-pna"], layers=LAYERS)
    result = train(Training(federation, method, model, settings, seed))
    loss = [line["loss"] for line in result.history if "valid" not in line][-1]
    score = result.test.as_dict()["macro_pr_auc"]
    return {
        "seed": seed,
        "macro_pr_auc": score,
        "last_loss": loss,
        "bytes": result.bytes,
        "seconds": result.training.progress.seconds,
    }


if __name__ == "__main__":
    main()
