"""PyTorch Geometric's ``Data`` as a graph; what would have to be cut or guessed is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.random import keys_of
from isthmus.data.split import random_split
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID, Graph, Schema, distinct, labelled

if TYPE_CHECKING:
    from torch_geometric.data import Data

FIELDS = ("x", "y", "edge_index", "edge_attr", "time")
MASKS = {"train_mask": TRAIN, "val_mask": VALID, "test_mask": TEST}
READ = {*FIELDS, "num_nodes", *MASKS}


def from_pyg(data: Data, ids: Sequence[Any] | None = None, labels: Sequence[str] | None = None, seed: int = 0) -> Graph:
    """A PyG ``Data`` object as a graph: ``x``, ``y``, ``edge_index``, and if there, ``edge_attr``, ``time`` and masks.

    Without masks, labelled nodes are drawn 60/20/20 by public id. ``y`` [n] holds classes, ``y`` [n, T] yes/no tasks;
    -1 is an unknown label. Labels and times must be whole numbers, and masks bool [n].
    """
    from torch_geometric.data import Data  # takes 1.5 s, and nothing else here needs it

    if not isinstance(data, Data):
        raise IsthmusError(
            f"from_pyg takes a torch_geometric Data object, not {type(data).__name__}; convert it first."
        )
    if data.edge_index is None or (data.x is None and data.num_nodes is None):
        raise IsthmusError("The Data object needs edge_index, and x or num_nodes.")
    for name in (*FIELDS, *MASKS):
        _refuse_other_arrays(name, data.get(name))
    n = int(data.num_nodes)
    ends = _ends(data.edge_index)
    names = _names(ids, n)
    y = None if data.y is None else _labels(data.y.cpu(), n)
    x = torch.ones(n, 1) if data.x is None else _table("x", data.x, n, "node")
    attr = None if data.edge_attr is None else _table("edge_attr", data.edge_attr, ends.shape[1], "edge")
    time = data.get("time")
    when = None if time is None else _whole("time", _long_as("time", time.cpu(), ends.shape[1], "edge"))
    masked = any(name in data for name in MASKS)
    known = torch.zeros(n, dtype=torch.bool) if y is None else labelled(y)
    return Graph(
        ids=names,
        x=x,
        edge_index=ends,
        schema=Schema(
            features=x.shape[1],
            labels=_label_names(y, labels),
            task="tasks" if y is not None and y.dim() == 2 else "classes",
            edge_features=0 if attr is None else attr.shape[1],
            timed=when is not None,
        ),
        y=y,
        split=_masks(data, n) if masked else random_split(keys_of(names), seed, known),
        edge_attr=attr,
        edge_time=when,
        name="data",
        notes=_unread(data),
    ).check()


def _refuse_other_arrays(name: str, values: Any) -> None:
    """Raise for a field of a ``Data`` object that is there, and is no dense tensor."""
    if values is not None and (not isinstance(values, Tensor) or values.layout != torch.strided):
        kind = "sparse" if isinstance(values, Tensor) else type(values).__name__
        raise IsthmusError(f"{name} is {kind}; give a dense tensor, like {name}.to_dense() or torch.tensor({name}).")


def _unread(data: Data) -> tuple[str, ...]:
    """A sentence on what a ``Data`` object holds and a graph does not: weights of edges, positions, ..."""
    unread = sorted(set(data.keys()) - READ)
    return (
        (f"Of the Data object nothing reads {', '.join(unread)}; edge_attr holds features of edges.",) if unread else ()
    )


def whole_numbers(name: str, values: Any) -> Tensor:
    """Values as int64; raises for a fraction, NaN or infinity, which would be cut to some other number."""
    try:
        given = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise IsthmusError(f"{name} cannot be read as whole numbers: {error}.") from error
    return _whole(name, given)


def _whole(name: str, values: Tensor) -> Tensor:
    if values.is_complex() or (values.dtype == torch.bool and name in ("time", "edge_index")):
        raise IsthmusError(f"{name} is {values.dtype}; give whole numbers.")
    if values.is_floating_point():
        odd = (~torch.isfinite(values) | (values != values.floor())).nonzero()
        if len(odd):
            row = tuple(odd[0].tolist())
            shown = float(values[row])
            raise IsthmusError(
                f"{name}[{', '.join(map(str, row))}] is {shown:g}, which is no whole number ({len(odd):,} such); give "
                "whole numbers, and -1 for an unknown label."
            )
    _refuse_long(name, values.double().numpy() if values.is_floating_point() else values.numpy())
    return values.long()


def _refuse_long(name: str, values: np.ndarray) -> None:
    """Raise for a whole number beyond 63 bits, which would wrap around to some other one."""
    if values.dtype.kind not in "uf" or not values.size:
        return
    low, high = (each.item() for each in (values.min(), values.max()))
    if high >= 2**63 or low < -(2**63):
        shown = high if high >= 2**63 else low
        raise IsthmusError(f"{name} has {shown:.17g}, which does not fit into 64 bits; count from a later start.")


def _ends(edge_index: Any) -> Tensor:
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or len(edge_index) != 2:
        shape = tuple(edge_index.shape) if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise IsthmusError(f"edge_index is {shape}; it must be a tensor [2, edges] of node numbers.")
    return _whole("edge_index", edge_index.cpu())


def _names(ids: Sequence[Any] | None, n: int) -> np.ndarray:
    """Public ids: those given, which must be whole numbers or text, one for each node, or row numbers."""
    if ids is None:
        return np.arange(n)
    names = np.asarray(ids)
    _refuse_long("ids", names)
    if names.shape != (n,) or names.dtype.kind not in "iuUS":
        raise IsthmusError(
            f"ids are {names.dtype} {list(names.shape)}; give whole numbers or text, one for each of {n}."
        )
    return names.astype(np.int64) if names.dtype.kind in "iu" else names.astype(str)


def _long_as(name: str, values: Tensor, rows: int, what: str) -> Tensor:
    if values.dim() == 0 or len(values) != rows:
        raise IsthmusError(f"{name} has the shape {list(values.shape)} for {rows} {what}s; give one row for each.")
    return values


def _table(name: str, values: Tensor, rows: int, what: str) -> Tensor:
    """Features as float32 [rows, features]; one number a row is one feature."""
    if values.is_complex():
        raise IsthmusError(f"{name} is {values.dtype}; give real numbers, such as both parts side by side.")
    return _long_as(name, values.cpu(), rows, what).float().reshape(rows, -1)


def _labels(y: Tensor, n: int) -> Tensor:
    if y.dim() not in (1, 2):
        raise IsthmusError(f"y has the shape {list(y.shape)}; give [n] classes, or [n, tasks] of yes and no.")
    return _whole("y", _long_as("y", y, n, "node"))


def _label_names(y: Tensor | None, names: Sequence[str] | None) -> tuple[str, ...]:
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


def _masks(data: Data, n: int) -> Tensor:
    """The split by masks; raises for masks that hold numbers, several splits, or one node twice."""
    split = torch.full((n,), UNUSED, dtype=torch.int8)
    for name, value in MASKS.items():
        if name not in data:
            continue
        mask = data[name].cpu()
        if mask.dtype != torch.bool or mask.shape != (n,):
            raise IsthmusError(
                f"{name} is {mask.dtype} {list(mask.shape)}; give bool [{n}], like mask.bool() or one column of it."
            )
        twice = int((mask & (split != UNUSED)).sum())
        if twice:
            raise IsthmusError(f"{twice:,} nodes are in {name} and in another mask; a node has one of them.")
        split[mask] = value
    return split
