"""Labels and masks of PyTorch Geometric's ``Data`` objects: of nodes, or of edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.data.split import random_split
from isthmus.data.whole_numbers import long_as, whole
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID, distinct, labelled

if TYPE_CHECKING:
    from torch_geometric.data import Data

MASKS = {"train_mask": TRAIN, "val_mask": VALID, "test_mask": TEST}


@dataclass(frozen=True)
class Learnt:
    """The labels that are learnt, of nodes or of edges (None: there are none), and notes on others."""

    target: str
    y: Tensor | None
    rows: int
    notes: tuple[str, ...] = ()


def learnt_labels(data: Data, ends: Tensor, n: int, target: str | None) -> Learnt:
    """The labels of nodes or of edges that are learnt, as far as there are any."""
    m = ends.shape[1]
    if target not in (None, "node", "edge"):
        raise unknown("target", target, ("node", "edge"))
    of_edges = _edge_labels(data, ends)
    chosen = target or ("edge" if data.y is None and of_edges is not None else "node")
    if target == "edge" and of_edges is None:
        raise IsthmusError("target is 'edge', but the Data object has no labels of edges; put them into data.edge_y.")
    if chosen == "edge":
        return Learnt("edge", of_edges, m)
    y = None if data.y is None else _node_labels(data.y.cpu(), n, m)
    if of_edges is None:
        return Learnt("node", y, n)
    known = int(labelled(of_edges).sum())
    note = f"Nodes and edges have labels; {known:,} of edges are not used (from_pyg(..., target='edge') learns them)."
    return Learnt("node", y, n, (note,))


def _edge_labels(data: Data, ends: Tensor) -> Tensor | None:
    """Classes of edges, under either of two names; raises for labels of other pairs than the graph's edges."""
    given = [name for name in ("edge_y", "edge_label") if data.get(name) is not None]
    if not given:
        return None
    if len(given) > 1:
        raise IsthmusError("The Data object has edge_y and edge_label; keep the one that holds the classes of edges.")
    name, pairs = given[0], data.get("edge_label_index")
    if pairs is not None and not torch.equal(pairs.cpu(), ends):
        raise IsthmusError(
            "edge_label_index has other pairs than edge_index, as RandomLinkSplit draws them to predict whether "
            "an edge exists. Here edges that exist have classes: one for each column of edge_index, in data.edge_y."
        )
    y = data[name].cpu()
    if y.shape != (ends.shape[1],):
        raise IsthmusError(f"{name} has the shape {list(y.shape)}; give one class for each of {ends.shape[1]} edges.")
    return whole(name, y)


def _node_labels(y: Tensor, n: int, m: int) -> Tensor:
    if y.dim() not in (1, 2):
        raise IsthmusError(f"y has the shape {list(y.shape)}; give [n] classes, or [n, tasks] of yes and no.")
    if len(y) == m != n:
        raise IsthmusError(
            f"y has the shape {list(y.shape)} for {n} nodes, and there are {m} edges; labels of edges go into "
            "data.edge_y."
        )
    return whole("y", long_as("y", y, n, "node"))


def label_names(y: Tensor | None, names: Sequence[str] | None) -> tuple[str, ...]:
    """Names of classes or tasks: those given, else numbers from 0 on."""
    if names is not None:
        return distinct(tuple(map(str, names)), "labels")
    if y is None or not y.numel():
        return ()
    most = y.shape[1] if y.dim() == 2 else int(y.max()) + 1
    if y.dim() == 1 and most > len(y):
        raise IsthmusError(
            f"y has the class {most - 1:,} among {len(y):,} nodes; number classes from 0 on, as y.unique("
            "return_inverse=True)[1] does, or name all of them with labels=[...]."
        )
    return tuple(map(str, range(most)))


def split_of(data: Data, found: Learnt, keys: Tensor, seed: int) -> Tensor:
    """What trains, validates and tests: by masks where there are any, else drawn by public keys."""
    if any(name in data for name in MASKS):
        return _masks(data, found)
    known = torch.zeros(found.rows, dtype=torch.bool) if found.y is None else labelled(found.y)
    return random_split(keys, seed, known)


def _masks(data: Data, found: Learnt) -> Tensor:
    """The split by masks; raises for masks that hold numbers, several splits, or one node or edge twice."""
    split = torch.full((found.rows,), UNUSED, dtype=torch.int8)
    for name, value in MASKS.items():
        if name not in data:
            continue
        mask = data[name].cpu()
        if mask.dtype != torch.bool or mask.shape != (found.rows,):
            raise IsthmusError(
                f"{name} is {mask.dtype} {list(mask.shape)}; give bool [{found.rows}], an entry for each "
                f"{found.target}, like mask.bool() or one column of it."
            )
        twice = int((mask & (split != UNUSED)).sum())
        if twice:
            raise IsthmusError(
                f"{twice:,} {found.target}s are in {name} and in another mask; each of them has one of the masks."
            )
        split[mask] = value
    return split
