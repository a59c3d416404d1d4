"""Who owns which node: partitioners that split one graph between silos.

A partitioner is one function in ``PARTITIONERS``; its key is what the user writes. The structural ones
(Louvain, METIS, random) see one independent graph at a time, as a ``Part``; those that split by labels or
attributes see the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.random import draw, keys_of, order, stream
from isthmus.graph.communities import fill_empty, louvain, metis, pack, simple_adjacency
from isthmus.graph.graph import Graph


@dataclass(frozen=True)
class Job:
    """What was asked for; ``argument`` is the text behind the colon."""

    graph: Graph
    silos: int
    seed: int
    argument: str


@dataclass(frozen=True)
class Part:
    """One independent graph, its rows numbered from 0."""

    keys: Tensor  # [n] public keys
    edges: np.ndarray  # [2, m] source and target
    silos: int
    seed: int


Partitioner = Callable[..., np.ndarray]


def partition(
    graph: Graph,
    how: str,
    silos: int,
    seed: int = 0,
    resolution: float | None = None,
    communities: int | None = None,
) -> Tensor:
    """Choose the silo that owns each node: [n] int64 in 0..silos-1, no silo empty.

    ``resolution`` belongs to Louvain (default 1), ``communities`` to METIS (default: straight into silos).
    """
    split, argument = _find(how)
    if silos < 1 or silos > graph.n:
        raise IsthmusError(f"Cannot split {graph.n} nodes between {silos} silos; choose 1 to {graph.n} silos.")
    given = {"resolution": resolution, "communities": communities}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options.keys() - signature(split).parameters.keys():
        raise IsthmusError(f"The partitioner '{how}' takes no {name}; leave it out.")
    owner = split(Job(graph, silos, seed, argument), **options)
    return torch.from_numpy(owner.astype(np.int64))


def check_owner(graph: Graph, owner: Tensor, silos: int) -> None:
    """Raise a clear error unless every node has one owner in 0..silos-1."""
    if owner.shape != (graph.n,):
        raise IsthmusError(f"The owners have shape {tuple(owner.shape)} for {graph.n} nodes; give each node one owner.")
    outside = (owner < 0) | (owner >= silos)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise IsthmusError(
            f"Node {graph.ids[row].item()!r} belongs to silo {int(owner[row])}; silos are numbered 0 to {silos - 1}."
        )


def _find(how: str) -> tuple[Partitioner, str]:
    name, _, argument = how.partition(":")
    for usage, split in PARTITIONERS.items():
        known, colon, _ = usage.partition(":")
        if known == name and (":" in how, bool(argument)) == (bool(colon), bool(colon)):
            return split, argument
        if known == name:
            raise IsthmusError(f"Write the partitioner as '{usage}', not '{how}'.")
    raise unknown("partitioner", how, PARTITIONERS)


def _by_component(split: Partitioner) -> Partitioner:
    """Split independent graphs one by one; silo i gets the i-th part of each."""

    @wraps(split)
    def each(job: Job, **options: float) -> np.ndarray:
        keys, edges = keys_of(job.graph.ids), job.graph.edge_index.numpy()
        if job.graph.component is None:
            return split(Part(keys, edges, job.silos, job.seed), **options)
        component = job.graph.component.numpy()
        owner, local = np.empty((2, job.graph.n), dtype=np.int64)
        for number in np.unique(component):
            rows = np.flatnonzero(component == number)
            if len(rows) < job.silos:
                raise IsthmusError(
                    f"Independent graph {number} has {len(rows)} nodes for {job.silos} silos; choose fewer."
                )
            local[rows] = np.arange(len(rows))
            inside = local[edges[:, component[edges[0]] == number]]
            owner[rows] = split(Part(keys[rows], inside, job.silos, job.seed), **options)
        return owner

    return each


def _random(part: Part) -> np.ndarray:
    """Deal the nodes out in an order that depends on their public ids alone; sizes differ by one at most."""
    owner = np.empty(len(part.keys), dtype=np.int64)
    owner[order(stream(part.seed, "random split"), part.keys).numpy()] = np.arange(len(part.keys)) % part.silos
    return owner


def _metis(part: Part, communities: int | None = None) -> np.ndarray:
    """Cut few edges into balanced parts: straight into the silos, or into communities that are packed."""
    adjacency = simple_adjacency(part.edges, len(part.keys))
    if communities is None:
        return metis(adjacency, part.silos, part.seed)
    if communities < part.silos:
        raise IsthmusError(f"{communities} METIS communities cannot fill {part.silos} silos; choose more communities.")
    return pack(metis(adjacency, min(communities, len(part.keys)), part.seed), part.silos)


def _louvain(part: Part, resolution: float = 1.0) -> np.ndarray:
    """Louvain's communities, none larger than an equal share, packed into silos of similar size."""
    if not 0 < resolution < float("inf"):
        raise IsthmusError(f"Louvain's resolution must be a positive number, not {resolution}.")
    adjacency = simple_adjacency(part.edges, len(part.keys))
    return pack(louvain(adjacency, len(part.keys) / part.silos, resolution, part.seed), part.silos)


def _label(job: Job) -> np.ndarray:
    """Dirichlet label skew: each class is dealt out in shares drawn from Dirichlet(ALPHA).

    The smaller ALPHA, the more skew. A node with several yes/no labels belongs to the class of its
    combination. The same shares hold in every independent graph.
    """
    alpha = _positive(job.argument)
    if job.graph.y is None:
        raise IsthmusError("A split by label needs node labels, and this graph has none; choose another partitioner.")
    known, code = np.unique(job.graph.y.numpy(), axis=0, return_inverse=True)
    shares = np.random.default_rng(job.seed).dirichlet(np.full(job.silos, alpha), size=len(known))
    bounds = np.cumsum(shares, axis=1)
    bounds[:, -1] = 1.0
    # Class c occupies [c, c + 1) of one line, cut at its shares; a node lies where its rank in it says.
    line = (bounds + np.arange(len(known))[:, None]).ravel()
    owner = np.searchsorted(line, code + _rank(job, code), side="right") - code * job.silos
    return fill_empty(owner, job.silos)


def _rank(job: Job, code: np.ndarray) -> np.ndarray:
    """Where each node stands in its class and graph, in shuffled order: strictly between 0 and 1."""
    component = job.graph.component
    group = code if component is None else code + component.numpy() * (int(code.max()) + 1)
    shuffled = np.lexsort((draw(stream(job.seed, "label split"), keys_of(job.graph.ids)).numpy(), group))
    size = np.bincount(group)
    start = np.cumsum(size) - size
    rank = np.empty(len(code))
    rank[shuffled] = (np.arange(len(code)) - start[group[shuffled]] + 0.5) / size[group[shuffled]]
    return rank


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        raise IsthmusError(f"label:ALPHA needs a positive number, not '{text}'; try label:0.5 (smaller: more skew).")
    return number


def _attribute(job: Job) -> np.ndarray:
    """One silo for each value of a column; with more values than silos, whole values are packed by size."""
    columns = job.graph.columns
    if not columns:
        raise IsthmusError("This graph has no attribute columns to split by; choose another partitioner.")
    if job.argument not in columns:
        raise unknown("attribute column", job.argument, columns)
    values, code = np.unique(columns[job.argument], return_inverse=True)
    if len(values) < job.silos:
        raise IsthmusError(
            f"Column '{job.argument}' has {len(values)} values for {job.silos} silos; "
            f"choose at most {len(values)} silos."
        )
    return code if len(values) == job.silos else pack(code, job.silos)


PARTITIONERS: dict[str, Partitioner] = {
    "louvain": _by_component(_louvain),
    "metis": _by_component(_metis),
    "random": _by_component(_random),
    "label:ALPHA": _label,
    "attribute:COLUMN": _attribute,
}
