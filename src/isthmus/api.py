"""The same from Python: a graph and an owner vector in, a trained model and its scores out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from isthmus.core.errors import IsthmusError
from isthmus.core.random import keys_of
from isthmus.data.split import random_split
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID, Graph, Schema
from isthmus.graph.partition import partition
from isthmus.graph.silo import Silo, merge, split_graph
from isthmus.launch.host import open_run
from isthmus.runs.config import resolve
from isthmus.runs.recipe import merge_into, nest
from isthmus.train.loop import Result, Watcher, train
from isthmus.wire.local import LocalWire


def from_pyg(data: Data, ids: Sequence[Any] | None = None, labels: Sequence[str] | None = None, seed: int = 0) -> Graph:
    """A PyG ``Data`` object as a graph: ``x``, ``y``, ``edge_index``, and if there, ``edge_attr``, ``time`` and masks.

    Without masks, labelled nodes are drawn 60/20/20 by public id. ``y`` [n] holds classes, ``y`` [n, T] yes/no tasks.
    """
    if data.edge_index is None or (data.x is None and data.num_nodes is None):
        raise IsthmusError("The Data object needs edge_index, and x or num_nodes.")
    n = int(data.num_nodes)
    names = np.asarray(ids) if ids is not None else np.arange(n)
    y = None if data.y is None else data.y.cpu()
    x = torch.ones(n, 1) if data.x is None else data.x.cpu().float()
    attr = None if data.edge_attr is None else data.edge_attr.cpu().float().reshape(data.edge_index.shape[1], -1)
    time = data.get("time")
    return Graph(
        ids=names,
        x=x,
        edge_index=data.edge_index.cpu(),
        schema=Schema(
            features=x.shape[1],
            labels=_labels(y, labels),
            task="tasks" if y is not None and y.dim() == 2 else "classes",
            edge_features=0 if attr is None else attr.shape[1],
            timed=time is not None,
        ),
        y=y,
        split=_masks(data, n) if "train_mask" in data else random_split(keys_of(names), seed, _known(y, n)),
        edge_attr=attr,
        edge_time=None if time is None else time.cpu().long(),
        name="data",
    ).check()


def _labels(y: Tensor | None, names: Sequence[str] | None) -> tuple[str, ...]:
    if names is not None:
        return tuple(map(str, names))
    if y is None:
        return ()
    return tuple(str(i) for i in range(y.shape[1] if y.dim() == 2 else int(y.max()) + 1))


def _known(y: Tensor | None, n: int) -> Tensor:
    if y is None:
        return torch.zeros(n, dtype=torch.bool)
    return (y >= 0).any(1) if y.dim() == 2 else y >= 0


def _masks(data: Data, n: int) -> Tensor:
    split = torch.full((n,), UNUSED, dtype=torch.int8)
    for name, value in (("train_mask", TRAIN), ("val_mask", VALID), ("test_mask", TEST)):
        if name in data:
            split[data[name].cpu()] = value
    return split


def split(graph: Graph, how: str | Tensor | Sequence[int], silos: int | None = None, seed: int = 0) -> list[Silo]:
    """Cut a graph into silos: by an owner vector, or by a partitioner (``louvain``, ``metis``, ``random``, ...)."""
    if isinstance(how, str):
        count = 5 if silos is None else silos
        return split_graph(graph, partition(graph, how, count, seed), count)
    owner = torch.as_tensor(how, dtype=torch.int64)
    count = silos if silos is not None else int(owner.max()) + 1 if len(owner) else 1
    return split_graph(graph, owner, count)


def fit(
    silos: Sequence[Silo],
    method: str = "fedavg",
    model: str = "sage",
    seed: int = 0,
    dtype: str = "float32",
    settings: Mapping[str, Any] | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """Train a model over silos in this process.

    ``settings`` are the keys of the command line's ``--set``, as tables or dotted:
    ``{"train": {"epochs": 50}, "sync.local_epochs": 3}``.
    """
    recipe: dict[str, Any] = {"method": method, "seed": seed, "dtype": dtype, "model": {"name": model}}
    for key, value in (settings or {}).items():
        merge_into(recipe, nest(key, value))
    config = resolve(recipe)
    config = replace(config, data=replace(config.data, silos=len(silos)))
    parts = [merge(silos)] if config.method.merged else list(silos)
    return train(open_run(config, LocalWire(len(parts), config.method.chain), parts), watcher)
