"""Who owns which node: partitioners that split one graph between silos.

A partitioner is one function in ``PARTITIONERS``; its key is what the user writes. Louvain, METIS and random see one
independent graph at a time, as a ``Part``; those that split by labels or attributes see the whole graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import BELOW, SERVER_NAME
from isthmus.core.name_lists import some_of
from isthmus.core.random import draw, keys_of, order, stream
from isthmus.core.silo_names import odd_name
from isthmus.graph.communities import fill_empty, louvain, metis, pack_into_silos, simple_adjacency
from isthmus.graph.graph import Graph


@dataclass(frozen=True)
class PartitionRequest:
    """What a partitioner is asked for; ``argument`` is the text after the colon, as in ``label:0.5``."""

    graph: Graph
    silos: int
    seed: int
    argument: str


@dataclass(frozen=True)
class Part:
    """One independent graph to be split, its rows numbered from 0."""

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
    """The silo that owns each node: [n] int64 in 0..silos-1; no silo is empty.

    ``how`` names a partitioner. ``resolution`` is an option of Louvain (default 1), ``communities`` of METIS (default:
    one part for each silo).
    """
    split, argument = find_partitioner(how)
    if silos < 1 or silos > graph.n:
        raise IsthmusError(f"Cannot split {graph.n} nodes between {silos} silos; choose 1 to {graph.n} silos.")
    given = {"resolution": resolution, "communities": communities}
    options = {name: value for name, value in given.items() if value is not None}
    for name in options.keys() - signature(split).parameters.keys():
        raise IsthmusError(f"The partitioner '{how}' takes no {name}; leave it out.")
    owner = split(PartitionRequest(graph, silos, seed, argument), **options)
    return torch.from_numpy(owner.astype(np.int64))


def attribute_of(how: str) -> str:
    """The column whose values a split goes by; empty where it goes by something else."""
    name, _, argument = how.partition(":")
    return argument if name == "attribute" else ""


def values_of(graph: Graph, how: str) -> list[str]:
    """The values of the column that a split goes by, in order; each can be a silo. Empty for other splits."""
    column = attribute_of(how)
    if not column:
        return []
    _check_column(graph, column)
    return [str(value) for value in np.unique(graph.columns[column])]


def silo_names(graph: Graph, how: str, silos: int) -> list[str]:
    """Names of all silos: those of a column's values, where each value is a silo and can name a folder."""
    values = values_of(graph, how)
    fit = all(re.fullmatch(r"\w[\w .-]{0,99}", value) and value != SERVER_NAME for value in values)
    if len(values) == silos and fit and not odd_name(values) and not any(value.startswith(BELOW) for value in values):
        return values
    return [f"silo-{number}" for number in range(silos)]


def note_on_names(graph: Graph, how: str, names: Sequence[str]) -> tuple[str, ...]:
    """A sentence where silos could be called by the values of a column, if folders could be called so."""
    values = values_of(graph, how)
    if len(values) != len(names) or values == list(names):
        return ()
    return (
        f"Silos are numbered, since not every value of '{attribute_of(how)}' can be the name of a folder on any disk: "
        f"{some_of([repr(value) for value in values])}.",
    )


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


def find_partitioner(how: str) -> tuple[Partitioner, str]:
    """The partitioner that a text such as ``label:0.5`` names, and the argument after the colon."""
    name, _, argument = how.partition(":")
    for usage, split in PARTITIONERS.items():
        known, colon, _ = usage.partition(":")
        if known == name and (":" in how, bool(argument)) == (bool(colon), bool(colon)):
            return split, argument
        if known == name:
            raise IsthmusError(f"Write the partitioner as '{usage}', not '{how}'.")
    raise unknown("partitioner", how, PARTITIONERS)


def _by_component(split: Partitioner) -> Partitioner:
    """A partitioner of a whole graph that splits each independent graph by itself; silo i gets part i of each."""

    @wraps(split)
    def each(request: PartitionRequest, **options: float) -> np.ndarray:
        keys, edges = keys_of(request.graph.ids), request.graph.edge_index.numpy()
        if request.graph.component is None:
            return split(Part(keys, edges, request.silos, request.seed), **options)
        component = request.graph.component.numpy()
        owner, local = np.empty((2, request.graph.n), dtype=np.int64)
        for number in np.unique(component):
            rows = np.flatnonzero(component == number)
            if len(rows) < request.silos:
                raise IsthmusError(
                    f"Independent graph {number} has {len(rows)} nodes for {request.silos} silos; choose fewer."
                )
            local[rows] = np.arange(len(rows))
            inside = local[edges[:, component[edges[0]] == number]]
            owner[rows] = split(Part(keys[rows], inside, request.silos, request.seed), **options)
        return owner

    return each


def _random(part: Part) -> np.ndarray:
    """The silo of each node, dealt out in a random order of public ids; sizes of silos differ by one at most."""
    owner = np.empty(len(part.keys), dtype=np.int64)
    owner[order(stream(part.seed, "random split"), part.keys).numpy()] = np.arange(len(part.keys)) % part.silos
    return owner


def _metis(part: Part, communities: int | None = None) -> np.ndarray:
    """The silo of each node by METIS: one part for each silo, or communities that are packed into silos."""
    adjacency = simple_adjacency(part.edges, len(part.keys))
    if communities is None:
        return metis(adjacency, part.silos, part.seed)
    if communities < part.silos:
        raise IsthmusError(f"{communities} METIS communities cannot fill {part.silos} silos; choose more communities.")
    return pack_into_silos(metis(adjacency, min(communities, len(part.keys)), part.seed), part.silos)


def _louvain(part: Part, resolution: float = 1.0) -> np.ndarray:
    """The silo of each node: Louvain's communities, none larger than an equal share, packed into silos."""
    if not 0 < resolution < float("inf"):
        raise IsthmusError(f"Louvain's resolution must be a positive number, not {resolution}.")
    adjacency = simple_adjacency(part.edges, len(part.keys))
    return pack_into_silos(louvain(adjacency, len(part.keys) / part.silos, resolution, part.seed), part.silos)


def _label(request: PartitionRequest) -> np.ndarray:
    """The silo of each node with Dirichlet label skew: classes are dealt out in shares drawn from Dirichlet(ALPHA).

    The smaller ALPHA, the more skew. Nodes with several yes/no labels form a class for each combination of labels. A
    class has one draw of shares, which holds in every independent graph.
    """
    alpha = _positive(request.argument)
    if request.graph.y is None:
        raise IsthmusError("A split by label needs node labels, and this graph has none; choose another partitioner.")
    known, code = np.unique(request.graph.y.numpy(), axis=0, return_inverse=True)
    shares = np.random.default_rng(request.seed).dirichlet(np.full(request.silos, alpha), size=len(known))
    bounds = np.cumsum(shares, axis=1)
    bounds[:, -1] = 1.0
    # Class c occupies [c, c + 1) of one line, cut at its shares; a node stands at c plus its rank in the class.
    line = (bounds + np.arange(len(known))[:, None]).ravel()
    owner = np.searchsorted(line, code + _rank(request, code), side="right") - code * request.silos
    return fill_empty(owner, request.silos)


def _rank(request: PartitionRequest, code: np.ndarray) -> np.ndarray:
    """The rank of each node in a shuffled order of its class (and independent graph), scaled to (0, 1): [n]."""
    component = request.graph.component
    group = code if component is None else code + component.numpy() * (int(code.max()) + 1)
    shuffled = np.lexsort((draw(stream(request.seed, "label split"), keys_of(request.graph.ids)).numpy(), group))
    size = np.bincount(group)
    start = np.cumsum(size) - size
    rank = np.empty(len(code))
    rank[shuffled] = (np.arange(len(code)) - start[group[shuffled]] + 0.5) / size[group[shuffled]]
    return rank


def _positive(text: str) -> float:
    """The positive number in a text; raises if it is none."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        raise IsthmusError(f"label:ALPHA needs a positive number, not '{text}'; try label:0.5 (smaller: more skew).")
    return number


def _check_column(graph: Graph, column: str) -> None:
    """Raise where a graph has no such column to split by."""
    if not graph.columns:
        raise IsthmusError("This graph has no attribute columns to split by; choose another partitioner.")
    if column not in graph.columns:
        raise unknown("attribute column", column, graph.columns)


def _attribute(request: PartitionRequest) -> np.ndarray:
    """The silo of each node by the value of a column; with more values than silos, values are packed by size."""
    _check_column(request.graph, request.argument)
    values, code = np.unique(request.graph.columns[request.argument], return_inverse=True)
    if len(values) < request.silos:
        raise IsthmusError(
            f"Column '{request.argument}' has {len(values)} values for {request.silos} silos; "
            f"choose at most {len(values)} silos."
        )
    return code if len(values) == request.silos else pack_into_silos(code, request.silos)


PARTITIONERS: dict[str, Partitioner] = {
    "louvain": _by_component(_louvain),
    "metis": _by_component(_metis),
    "random": _by_component(_random),
    "label:ALPHA": _label,
    "attribute:COLUMN": _attribute,
}
