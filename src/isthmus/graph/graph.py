"""A whole graph and its schema, before it is split between silos."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.encoding import Encoding
from isthmus.graph.features import Features, SparseRows, stored_values

UNUSED, TRAIN, VALID, TEST = 0, 1, 2, 3
SPLIT_NAMES = ("", "train", "valid", "test")


@dataclass(frozen=True)
class Schema:
    """The columns and labels of a graph, which all silos must share so that one model fits them all.

    ``task`` is ``classes`` (one of several labels) or ``tasks`` (several yes/no labels at once);
    ``labels`` names the classes or the tasks; ``target`` says what carries the label: ``node`` or ``edge``.
    """

    features: int
    labels: tuple[str, ...]
    task: str = "classes"
    target: str = "node"
    edge_features: int = 0
    timed: bool = False
    feature_names: tuple[str, ...] = ()
    edge_feature_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A directed multigraph with public ids; an undirected edge is stored as two directed ones.

    Shapes: n nodes, m edges, T tasks. ``y`` is [n] (class number, -1 unknown) or [n, T] (0, 1, -1 unknown).
    """

    ids: np.ndarray  # [n] public ids, int64 or str
    x: Features  # [n, features]
    edge_index: Tensor  # [2, m] source and target rows
    schema: Schema
    y: Tensor | None = None
    split: Tensor | None = None  # [n] int8: UNUSED, TRAIN, VALID, TEST
    edge_attr: Tensor | None = None  # [m, edge_features]
    edge_time: Tensor | None = None  # [m] int64
    edge_y: Tensor | None = None  # [m] class number of an edge, -1 unknown
    edge_split: Tensor | None = None  # [m] int8
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # node attributes to split by, never features
    component: Tensor | None = None  # [n] number of the independent graph; each such graph is split by itself
    name: str = "graph"
    notes: tuple[str, ...] = ()  # what the report should say of the data: columns and labels that are not used, ...
    edge_ids: np.ndarray | None = None  # [m] ids of edges, which go beside predictions and are never learnt from
    node_encoding: Encoding = ()  # the columns that features of nodes come from, where these are not simply numbers
    edge_encoding: Encoding = ()

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    @property
    def m(self) -> int:
        """Number of directed edges."""
        return int(self.edge_index.shape[1])

    def with_split(self, split: Tensor) -> Graph:
        """A copy of this graph with other training, validation and test nodes."""
        return replace(self, split=split.to(torch.int8))

    def check(self) -> Graph:
        """Raise a clear error for repeated ids, unknown ends, NaN or labels out of range; returns the graph itself."""
        _check_ids(self.ids)
        _check_whole(self)
        _check_edges(self)
        for what, x in (("node feature", self.x), ("edge feature", self.edge_attr)):
            _check_finite(what, x, self.ids if what == "node feature" else None)
        _check_labels("node", self.y, self.n, self.schema)
        _check_labels("edge", self.edge_y, self.m, self.schema)
        return self


def _check_ids(ids: np.ndarray) -> None:
    known, count = np.unique(ids, return_counts=True)
    if len(known) < len(ids):
        twice = known[count > 1]
        raise IsthmusError(
            f"{len(twice)} node ids appear more than once, for example {twice[0]!r}. "
            "A node has one row; remove the others."
        )


def _check_whole(graph: Graph) -> None:
    """Refuse fractions where numbers count or name something, and rows that are too few or too many."""
    nodes, edges = {"y": graph.y, "split": graph.split}, {"edge_y": graph.edge_y, "edge_split": graph.edge_split}
    ends = {"edge_index": graph.edge_index.T, "edge_time": graph.edge_time, "edge_attr": graph.edge_attr}
    for rows, named in ((graph.n, nodes), (graph.m, edges), (graph.m, ends)):
        for name, values in named.items():
            if values is None:
                continue
            if name != "edge_attr" and (values.is_floating_point() or values.is_complex()):
                raise IsthmusError(f"{name} is {values.dtype}; it must hold whole numbers, like {name}.long().")
            if name.endswith("split") and len(values) and not 0 <= int(values.min()) <= int(values.max()) <= TEST:
                raise IsthmusError(f"{name} holds {sorted(set(values.tolist()))}; allowed are 0 (unused) to {TEST}.")
            if len(values) != rows and not name.endswith("y"):  # labels have a message of their own
                raise IsthmusError(f"{name} has {len(values)} rows for {rows}; give one for each.")


def _check_edges(graph: Graph) -> None:
    if len(graph.x) != graph.n:
        raise IsthmusError(f"{graph.n} node ids but {len(graph.x)} feature rows; give one row for each node.")
    if graph.m and (int(graph.edge_index.min()) < 0 or int(graph.edge_index.max()) >= graph.n):
        bad = ((graph.edge_index < 0) | (graph.edge_index >= graph.n)).any(0).nonzero()[0]
        source, target = graph.edge_index[:, bad].flatten().tolist()
        raise IsthmusError(
            f"Edge {int(bad)} ({source} -> {target}) ends at an unknown node; nodes are numbered 0 to {graph.n - 1}."
        )


def _check_finite(what: str, x: Features | None, ids: np.ndarray | None) -> None:
    if x is None or bool(torch.isfinite(stored_values(x)).all()):
        return
    at = (~torch.isfinite(stored_values(x))).nonzero()[0]
    row = int(x.row[at[0]]) if isinstance(x, SparseRows) else int(at[0])
    name = repr(ids[row].item()) if ids is not None else f"row {row}"
    raise IsthmusError(f"A {what} of {name} is NaN or infinite; fill or remove such values before training.")


def _check_labels(what: str, y: Tensor | None, rows: int, schema: Schema) -> None:
    if y is None or not len(y):
        return
    if len(y) != rows:
        raise IsthmusError(f"{len(y)} {what} labels for {rows} {what}s; give one for each (-1 where unknown).")
    top = len(schema.labels) if schema.task == "classes" else 2
    low, high = int(y.min()), int(y.max())
    if low < -1 or high >= top:
        raise IsthmusError(
            f"{what.capitalize()} labels lie in {low}..{high}; allowed are 0..{top - 1}, and -1 for unknown."
        )


def natural(name: str) -> tuple[bool, float, str]:
    """The sort key of a label name: numbers come before words, and 2 before 10."""
    try:
        number = float(name)
    except ValueError:
        return True, 0.0, name
    return (False, number, name) if number == number else (True, 0.0, name)


_YES_OR_NO = {"0": "0", "1": "1", "false": "0", "true": "1", "no": "0", "yes": "1"}


def one_spelling(names: Iterable[str]) -> dict[str, str]:
    """Class names that are yes or no in more than one way (0, false, no), each with the 0 or 1 that stands for it.

    Empty where there is one way alone, or a class beside yes and no.
    """
    spelt = dict.fromkeys(names)
    known = {name: _YES_OR_NO.get(name.strip().casefold(), "") for name in spelt}
    ways = [{"0", "1"}, {"false", "true"}, {"no", "yes"}]
    used = [way for way in ways if any(name.strip().casefold() in way for name in spelt)]
    return known if len(used) > 1 and all(known.values()) else {}


def spelt_alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that differ in case or in blanks around them alone; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name.strip().casefold(), name)
        if first != name:
            return first, name
    return None


def distinct(names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The names themselves; raises where one is there twice, as two classes could not be told apart by it."""
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise IsthmusError(f"{what} has {twice!r} twice; a class has one name.")
    return names


def labelled(y: Tensor) -> Tensor:
    """Which rows of ``y`` have a label for at least one task: [n] bool."""
    return y >= 0 if y.dim() == 1 else (y >= 0).any(1)
