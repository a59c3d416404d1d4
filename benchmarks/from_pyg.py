"""Cora by ``from_pyg``: processor seconds per round of FedAvg, with features as dense rows and as sparse ones.

Ten silos by Louvain, two GCN layers, hidden 64; a round is an epoch, an average of parameters and a validation. A run
of each kind follows the other in one process, and the median round of every run counts; printed is the median of runs,
and the ratio of each dense run to the sparse run right after it.

    python benchmarks/from_pyg.py --data FOLDER
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measure import SEED, record
from torch_geometric.data import Data

import isthmus
from isthmus.data import load
from isthmus.graph.features import SparseRows
from isthmus.train.watcher import Watcher

SILOS, WARM, ROUNDS = 10, 5, 40
SETTINGS = {"train.epochs": WARM + ROUNDS, "model.hidden": 64, "sync.local_epochs": 1, "data.scale": "none"}


class Clock(Watcher):
    """Notes when each epoch ends, in processor time, which does not grow while other programs are served."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_epoch(self, progress: Any, lines: list[dict[str, Any]]) -> None:
        """Note the time."""
        self.ends.append(time.process_time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the public data sets (default: ISTHMUS_DATA)")
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = cora(options.data)
    silos = {
        kind: isthmus.split(isthmus.from_pyg(data, sparse=sparse), "louvain", SILOS)
        for kind, sparse in (("dense", False), ("sparse", None))
    }
    assert isinstance(silos["sparse"][0].x, SparseRows)  # by default
    found: dict[str, list[float]] = {kind: [] for kind in silos}
    for _ in range(options.runs):
        for kind in silos:
            found[kind].append(seconds(silos[kind]))
    ratios = sorted(a / b for a, b in zip(found["dense"], found["sparse"], strict=True))
    for kind, each in found.items():
        print(f"{kind}: {median(each):.4f} processor seconds a round ({min(each):.4f} to {max(each):.4f})")
    print(f"dense / sparse: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    record(options.json, "one thread", seconds_per_round=found, ratio=median(ratios))


def cora(folder: str | None) -> Data:
    """Cora as PyTorch Geometric has it: dense features and masks."""
    graph = load("cora", seed=SEED, masks="random", folder=folder or os.environ.get("ISTHMUS_DATA"))
    assert isinstance(graph.x, SparseRows) and graph.split is not None
    masks = {f"{name}_mask": graph.split == number for number, name in enumerate(("train", "val", "test"), 1)}
    return Data(x=graph.x.dense(), y=graph.y, edge_index=graph.edge_index, **masks)


def seconds(silos: list[Any]) -> float:
    """The median round of one run, without the first ones."""
    clock = Clock()
    isthmus.fit(silos, "fedavg", "gcn", settings=SETTINGS, watcher=clock)
    return median(b - a for a, b in pairwise(clock.ends[WARM:]))


if __name__ == "__main__":
    main()
