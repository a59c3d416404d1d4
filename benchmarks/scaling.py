"""``python benchmarks/scaling.py``: test accuracy with features as they are, and with ``data.scale=auto``.

Four generated graphs whose features are dense words, or columns of sizes from 0.01 to 1000; with ``--data DIR`` also
Amazon Photo (dense words) and Coauthor CS (sparse words). GCN, five silos by Louvain, all settings the defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from measure import WORDS, record

import isthmus
from isthmus.core.random import keys_of
from isthmus.data.blocks import _edges
from isthmus.data.split import random_split
from isthmus.graph.graph import TEST, Graph, Schema
from isthmus.graph.silo import Silo

NODES, DEGREE, CLASSES, SILOS = 3000, 12, 8, 5
METHODS = ("local", "fedavg", "ce-fedgnn", "optimes")
PUBLIC = ("amazon-photo", "coauthor-cs")
Maker = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the public data sets; without it they are left out")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--set", action="append", default=[], help="key=value, a setting of every run")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        line
        for name in (*MAKERS, *(PUBLIC if options.data else ()))
        for method in options.methods
        for line in measure(name, method, options.data, options.seeds, dict(each.split("=", 1) for each in options.set))
    ]
    record(options.json, WORDS[1], lines=lines)


def measure(name: str, method: str, folder: str | None, seeds: int, more: dict[str, str]) -> list[dict[str, object]]:
    """Mean test accuracy of one method on one graph, by scale; printed as it is found."""
    found = []
    for scale in ("none", "rows", "auto"):
        if scale == "rows" and name not in ("words", *PUBLIC):
            continue  # rows of columns of all sorts have no sum that means anything
        scores, told, largest = [], set(), 0.0
        for seed in range(seeds):
            silos, largest = silos_of(name, folder, seed)
            settings = {"data.scale": scale, "train.evaluate_every": 5, **more}
            result = isthmus.fit(silos, method, "gcn", seed, settings=settings)
            scores.append(result.test.as_dict()["accuracy"] or 0.0)
            told |= {note.split(" (")[0] for note in result.training.federation.notes if "Node features" in note}
        line = {"graph": name, "largest class": largest, "method": method, "scale": scale, "accuracy": fmean(scores)}
        print(f"{name:14} {method:10} {scale:8} {100 * fmean(scores):5.1f} %", *told, flush=True)
        found.append({**line, "by seed": scores})
    return found


def silos_of(name: str, folder: str | None, seed: int) -> tuple[list[Silo], float]:
    """The silos of a graph, and the share of the largest class among test nodes."""
    graph = generated(MAKERS[name], seed) if name in MAKERS else isthmus.load(name, seed, folder)
    assert graph.y is not None and graph.split is not None
    asked = graph.y[graph.split == TEST]
    return isthmus.split(graph, "louvain", SILOS, seed), float(torch.bincount(asked).max() / len(asked))


def generated(make: Maker, seed: int) -> Graph:
    """A block model with one class of 37 % and seven smaller ones; ``make`` gives the features of labels."""
    rng = np.random.default_rng(seed)
    label = rng.choice(CLASSES, NODES, p=[0.37] + [0.09] * 7)
    source, target = _edges(label, NODES * DEGREE // 2, 0.7, rng)
    x = torch.from_numpy(make(label, rng).astype(np.float32))
    ends = np.stack([np.concatenate([source, target]), np.concatenate([target, source])])
    ids, labels = np.arange(NODES), tuple(map(str, range(CLASSES)))
    split = random_split(keys_of(ids), seed)
    return Graph(ids, x, torch.from_numpy(ends), Schema(x.shape[1], labels), torch.from_numpy(label), split).check()


def telling(label: np.ndarray, rng: np.random.Generator, width: int, signal: float) -> np.ndarray:
    """Standard normal columns with a mean for each class, a vector of length ``signal``."""
    mean = rng.normal(size=(CLASSES, width))
    mean *= signal / np.linalg.norm(mean, axis=1, keepdims=True)
    columns: np.ndarray = mean[label] + rng.normal(size=(len(label), width))
    return columns


def words(label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """767 words, of which a node has 35 %; each class has its own odds for a tenth of them."""
    odds = rng.normal(-0.7, 0.8, 767) + rng.normal(size=(CLASSES, 767)) * (rng.random(767) < 0.1)
    return rng.random((len(label), 767)) < 1 / (1 + np.exp(-odds[label]))


def sizes(label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """16 columns of sizes from 0.01 to 1000; those that tell most are the smallest."""
    columns: np.ndarray = telling(label, rng, 16, 1.5) * np.logspace(-2, 3, 16)
    return columns


def offsets(label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """16 columns far from 0, like years and temperatures in Kelvin."""
    columns: np.ndarray = telling(label, rng, 16, 1.5) * np.logspace(-2, 1, 16) + np.logspace(0, 3, 16)
    return columns


def bank(label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Customers: region and product as one-hots, age, income, a ratio near 0.01, and a rare large amount."""
    told = telling(label, rng, 6, 2.0)
    region, product = (np.eye(20)[(told[:, i] * 4 + 10).clip(0, 19).astype(int)] for i in (0, 1))
    age, income, ratio = 45 + 15 * told[:, 2], np.exp(10.5 + 0.6 * told[:, 3]), 0.01 + 0.003 * told[:, 4]
    amount = np.where(told[:, 5] > 1, np.exp(12 + told[:, 5]), 0)
    return np.column_stack([region, product, age, income, ratio, amount])


MAKERS: dict[str, Maker] = {"words": words, "sizes": sizes, "offsets": offsets, "bank": bank}


if __name__ == "__main__":
    main()
