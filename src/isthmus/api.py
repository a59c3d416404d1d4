"""The same from Python: a graph and an owner vector in, a trained model and its scores out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch_geometric.data import Data

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import write_atomic
from isthmus.core.random import keys_of
from isthmus.core.version import VERSION
from isthmus.data.split import random_split
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, UNUSED, VALID, Graph, Schema
from isthmus.graph.partition import partition
from isthmus.graph.silo import Silo, merge, split_graph
from isthmus.graph.stack import Stack
from isthmus.launch.host import open_run
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.method import AXES, Method
from isthmus.protect.base import Mechanism
from isthmus.runs.config import resolve
from isthmus.runs.recipe import full_key, merge_into, nest
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
    method: str | Method = "fedavg",
    model: str = "sage",
    seed: int = 0,
    dtype: str = "float32",
    settings: Mapping[str, Any] | None = None,
    watcher: Watcher | None = None,
    **parts: Any,
) -> Result:
    """Train a model over silos in this process.

    ``method`` is a name of the catalogue, or a :class:`Method` of your own. ``parts`` swap parts of a method of one
    phase: ``exchange``, ``schedule``, ``sync``, ``objective`` (a name, or a part), ``protect`` (a name such as
    ``"gaussian,int8"``, a mechanism, or a sequence of them) and ``score``. ``settings`` are the keys of the command
    line's ``--set``, as tables or dotted: ``{"train": {"epochs": 50}, "sync.local_epochs": 3}``.
    """
    recipe: dict[str, Any] = {"seed": seed, "dtype": dtype, "model": {"name": model}}
    for key, value in (settings or {}).items():
        merge_into(recipe, nest(key if isinstance(value, Mapping) else full_key(key), value))
    base = catalogue.get(method) if isinstance(method, str) else method
    config = resolve(recipe, _with_parts(base, parts))
    config = replace(config, data=replace(config.data, silos=len(silos)))
    whole = [merge(silos)] if config.method.merged else list(silos)
    return train(open_run(config, LocalWire(len(whole), config.method.chain), whole), watcher)


def _with_parts(method: Method, parts: Mapping[str, Any]) -> Method:
    """The method with parts swapped: by name, or for parts of the caller's own."""
    words = {key: value for key, value in parts.items() if isinstance(value, str) or key == "score"}
    named = {key: value if key == "score" else {"name": value} for key, value in words.items()}
    method = compose(method, named)
    for axis, part in parts.items():
        if axis not in (*AXES, "protect", "score"):
            raise unknown("part", axis, (*AXES, "protect", "score"))
        if axis in words:
            continue
        if axis == "protect":
            method = replace(method, protect=(part,) if isinstance(part, Mechanism) else tuple(part))
        elif len(method.phases) > 1:
            raise IsthmusError(
                f"Method '{method.name}' has several phases; give fit a Method with {axis} in the phase it belongs to."
            )
        else:
            method = method.with_phase(method.phases[0].name, **{axis: part})
    return method


@dataclass(frozen=True)
class Predictions:
    """What a model says of the scored nodes (or edges), silo after silo."""

    labels: tuple[str, ...]  # names of classes, or of tasks
    silo: list[str]  # [n]
    ids: list[Any]  # [n] public ids of nodes, or (source, target) of edges
    probabilities: Tensor  # [n, labels]
    y: Tensor  # [n] or [n, labels]; -1 unknown


def predict(result: Result, split: str = "test") -> Predictions:
    """Predictions of a trained model for a split of the silos it was trained over, scored as its method scores."""
    if split not in SPLIT_NAMES[1:]:
        raise unknown("split", split, SPLIT_NAMES[1:])
    scorer, wire = result.training.stage.scorer, result.training.wire
    stack, schema = scorer.layout.stack, scorer.site.schema
    logits, y, index = scorer.logits(SPLIT_NAMES.index(split))
    ids = [name for silo in scorer.site.federation.silos for name in _all_ids(silo)[: _rows(stack, silo)]]
    at = index if schema.target == "node" else stack.ends[1][index]
    whose = [wire.party(stack.silos[place]) for place in stack.silo_of(at).tolist()]
    if schema.target == "node":
        named = [ids[row] for row in index.tolist()]
    else:
        named = [(ids[source], ids[target]) for source, target in stack.ends[:, index].T.tolist()]
    chance = logits.sigmoid() if schema.task == "tasks" else logits.softmax(1)
    return Predictions(schema.labels, whose, named, chance, y)


def _all_ids(silo: Silo) -> list[Any]:
    """Public ids of owned nodes, then of the halo."""
    return [*silo.ids.tolist(), *silo.halo_ids.tolist()]


def _rows(stack: Stack, silo: Silo) -> int:
    """How many rows a silo has in a stack: owned ones, and its halo where the view keeps it."""
    place = stack.silos.index(silo.number)
    return stack.ptr[place + 1] - stack.ptr[place]


def save(result: Result, path: str | Path, silo: int = 0) -> None:
    """Write a trained model as a safetensors file; where silos have models of their own, that of one silo."""
    live = result.training.learner.everything()
    chosen = {name: t[min(silo, len(t) - 1)][None].detach().cpu().contiguous() for name, t in live.items()}
    about = {"isthmus": VERSION, "labels": json.dumps(result.training.federation.schema.labels)}
    write_atomic(Path(path), safetensors.torch.save(chosen, about))
