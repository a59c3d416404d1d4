"""A stochastic block model of any size: classes that tend to link among themselves, and weak features."""

from __future__ import annotations

import numpy as np
import torch

from isthmus.core.errors import IsthmusError
from isthmus.core.random import keys_of
from isthmus.data.split import random_split
from isthmus.graph.graph import Graph, Schema

BANKS = 10


def blocks(
    nodes: int = 10_000,
    classes: int = 8,
    degree: float = 16.0,
    homophily: float = 0.8,
    features: int = 32,
    signal: float = 0.8,
    train: float = 0.6,
    seed: int = 0,
) -> Graph:
    """A random undirected simple graph whose nodes have ``degree`` neighbours on average.

    A share ``homophily`` of the edges lies within classes. A feature row is the class mean, a vector of
    length ``signal``, plus standard normal noise: too weak to tell a node's class on its own, clear enough
    in the mean over its neighbours. The column ``bank`` has nothing to do with the class, so that splitting
    by it cuts most edges; splitting by ``class`` cuts few. A share ``train`` of the nodes is for training, the rest
    is halved between validation and test.
    """
    _check(nodes, classes, degree, homophily, features)
    rng = np.random.default_rng(seed)
    label = rng.permutation(np.arange(nodes) % classes)
    source, target = _edges(label, round(nodes * degree / 2), homophily, rng)
    mean = rng.normal(size=(classes, features))
    mean *= signal / np.linalg.norm(mean, axis=1, keepdims=True)
    x = mean.astype(np.float32)[label] + rng.standard_normal((nodes, features), dtype=np.float32)
    ids = np.arange(nodes)
    return Graph(
        ids=ids,
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(np.stack([np.concatenate([source, target]), np.concatenate([target, source])])),
        schema=Schema(features, tuple(map(str, range(classes)))),
        y=torch.from_numpy(label),
        split=random_split(keys_of(ids), seed, train=train),
        columns={"class": label, "bank": rng.integers(BANKS, size=nodes)},
        name="blocks",
    ).check()


def _check(nodes: int, classes: int, degree: float, homophily: float, features: int) -> None:
    """Raise a clear error for a block model that cannot be drawn."""
    if classes < 1 or features < 1 or nodes < 4 * classes:
        raise IsthmusError(
            "blocks needs a class, a feature and four nodes for each class; "
            f"got nodes={nodes}, classes={classes}, features={features}."
        )
    # Above this density the pairs of one class run out, and drawing fresh ones never ends.
    most = nodes / classes / 2
    if not 0 < degree <= most:
        raise IsthmusError(
            f"blocks with {nodes} nodes and {classes} classes takes degrees up to {most:g}, not {degree}."
        )
    if not 0 <= homophily <= 1 or (classes == 1 and homophily < 1):
        raise IsthmusError(
            f"homophily is the share of edges within classes, 0 to 1 (1 for a single class), not {homophily}."
        )


def _edges(label: np.ndarray, wanted: int, homophily: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """``wanted`` distinct pairs of different nodes, in the order drawn: the first and the second node of each."""
    nodes, classes = len(label), int(label.max()) + 1
    by_class = np.argsort(label, kind="stable")
    begin = np.searchsorted(label[by_class], np.arange(classes + 1))
    code = np.empty(0, dtype=np.int64)
    while len(code) < wanted:
        source = rng.integers(nodes, size=wanted + wanted // 50 + 16)
        other = (label[source] + rng.integers(1, max(classes, 2), size=len(source))) % classes
        into = np.where(rng.random(len(source)) < homophily, label[source], other)
        target = by_class[rng.integers(begin[into], begin[into + 1])]
        low, high = np.minimum(source, target), np.maximum(source, target)
        code = np.concatenate([code, (low * nodes + high)[low != high]])
        first = np.unique(code, return_index=True)[1]
        code = code[np.sort(first)]
    return code[:wanted] // nodes, code[:wanted] % nodes
