"""PyTorch Geometric's ``Data`` objects as graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.random import keys_of
from isthmus.data.pyg_labels import MASKS, label_names, learnt_labels, split_of
from isthmus.data.table_labels import edge_split_keys
from isthmus.data.whole_numbers import long_as, refuse_long, whole
from isthmus.graph.features import Features, SparseRows
from isthmus.graph.graph import Graph, Schema

if TYPE_CHECKING:
    from torch_geometric.data import Data

FIELDS = ("x", "y", "edge_index", "edge_attr", "time", "edge_y", "edge_label")
READ = {*FIELDS, "num_nodes", "edge_label_index", *MASKS}
FEW = 0.1  # share of entries that are not 0, up to which features are kept sparse
NARROW = 16  # columns below which sparse features would save nothing
_HETERO = (
    "from_pyg takes a Data object, not HeteroData: a graph here has one type of node, with one table of features. Make "
    "one of it with data.to_homogeneous(), where all types have equally many features; for one type alone take "
    "data.node_type_subgraph(['TYPE']).to_homogeneous(). Types of edges can stay as edge features: "
    "edge_attr = one_hot(edge_type)."
)


def from_pyg(
    data: Data,
    ids: Sequence[Any] | None = None,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    target: str | None = None,
    sparse: bool | None = None,
) -> Graph:
    """A PyG ``Data`` object as a graph: ``x``, ``y``, ``edge_index``, and if there, ``edge_attr``, ``time`` and masks.

    ``y`` [n] holds classes of nodes, ``y`` [n, T] yes/no tasks; ``edge_y`` (or ``edge_label``) [m] classes of edges. -1
    is an unknown label. Edges are learnt if only they have labels, or with ``target="edge"``; masks are then theirs.
    Masks are bool; without them, labelled nodes (or edges) are drawn 60/20/20 by public id. Labels and times must be
    whole numbers. Features of which at most a tenth are not 0 are kept as sparse rows; ``sparse`` says yes or no.
    """
    _refuse_other_objects(data)
    n = int(data.num_nodes)
    ends = _ends(data.edge_index)
    names = _names(ids, n)
    x = torch.ones(n, 1) if data.x is None else _node_rows(data.x, n, sparse)
    attr = None if data.edge_attr is None else _table("edge_attr", data.edge_attr, ends.shape[1], "edge")
    time = data.get("time")
    when = None if time is None else whole("time", long_as("time", time.cpu(), ends.shape[1], "edge"))
    found = learnt_labels(data, ends, n, target)
    keys = keys_of(names)
    drawn = edge_split_keys(keys, ends, when) if found.target == "edge" else keys
    split = split_of(data, found, drawn, seed)
    on_edges = found.target == "edge"
    return Graph(
        ids=names,
        x=x,
        edge_index=ends,
        schema=Schema(
            features=x.shape[1],
            labels=label_names(found.y, labels),
            task="tasks" if found.y is not None and found.y.dim() == 2 else "classes",
            target=found.target,
            edge_features=0 if attr is None else attr.shape[1],
            timed=when is not None,
        ),
        y=None if on_edges else found.y,
        split=None if on_edges else split,
        edge_attr=attr,
        edge_time=when,
        edge_y=found.y if on_edges else None,
        edge_split=split if on_edges else None,
        name="data",
        notes=(*found.notes, *_unread(data)),
    ).check()


def _refuse_other_objects(data: Any) -> None:
    """Raise for whatever is no ``Data`` object, or one without edges, nodes, or with fields that are no tensors."""
    from torch_geometric.data import Data, HeteroData  # takes 1.5 s, and nothing else here needs it

    if isinstance(data, HeteroData):
        raise IsthmusError(_HETERO)
    if not isinstance(data, Data):
        raise IsthmusError(
            f"from_pyg takes a torch_geometric Data object, not {type(data).__name__}; convert it first."
        )
    if data.edge_index is None or (data.x is None and data.num_nodes is None):
        raise IsthmusError("The Data object needs edge_index, and x or num_nodes.")
    for name in (*FIELDS, *MASKS):
        values = data.get(name)
        if values is None or (isinstance(values, Tensor) and (values.layout == torch.strided or name == "x")):
            continue
        kind = "sparse" if isinstance(values, Tensor) else type(values).__name__
        raise IsthmusError(f"{name} is {kind}; give a dense tensor, like {name}.to_dense() or torch.tensor({name}).")


def _unread(data: Data) -> tuple[str, ...]:
    """A sentence on what a ``Data`` object holds and a graph does not: weights of edges, positions, ..."""
    unread = sorted(set(data.keys()) - READ)
    return (
        (f"Of the Data object nothing reads {', '.join(unread)}; edge_attr holds features of edges.",) if unread else ()
    )


def _ends(edge_index: Any) -> Tensor:
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or len(edge_index) != 2:
        shape = tuple(edge_index.shape) if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise IsthmusError(f"edge_index is {shape}; it must be a tensor [2, edges] of node numbers.")
    return whole("edge_index", edge_index.cpu())


def _names(ids: Sequence[Any] | None, n: int) -> np.ndarray:
    """Public ids: those given, which must be whole numbers or text, one for each node, or row numbers."""
    if ids is None:
        return np.arange(n)
    names = np.asarray(ids)
    refuse_long("ids", names)
    if names.shape != (n,) or names.dtype.kind not in "iuUS":
        raise IsthmusError(
            f"ids are {names.dtype} {list(names.shape)}; give whole numbers or text, one for each of {n}."
        )
    return names.astype(np.int64) if names.dtype.kind in "iu" else names.astype(str)


def _table(name: str, values: Tensor, rows: int, what: str) -> Tensor:
    """Features as float32 [rows, features]; one number a row is one feature."""
    _refuse_complex(name, values)
    return long_as(name, values.cpu(), rows, what).float().reshape(rows, -1)


def _refuse_complex(name: str, values: Tensor) -> None:
    if values.is_complex():
        raise IsthmusError(f"{name} is {values.dtype}; give real numbers, such as both parts side by side.")


def _node_rows(x: Tensor, n: int, sparse: bool | None) -> Features:
    """Features of nodes, as sparse rows where that was asked for, or where few entries are not 0."""
    if x.layout == torch.strided:
        dense = _table("x", x, n, "node")
        few = dense.shape[1] >= NARROW and int(torch.count_nonzero(dense)) <= FEW * dense.numel()
        return SparseRows.from_dense(dense) if (few if sparse is None else sparse) else dense
    _refuse_complex("x", x)
    if x.dim() != 2 or x.dense_dim():
        raise IsthmusError(f"x is sparse, of shape {list(x.shape)}; give one row of numbers for each node.")
    rows = long_as("x", x.cpu(), n, "node").to_sparse_coo().coalesce()
    (row, column), value = rows.indices(), rows.values().float()
    ptr = torch.zeros(n + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(row, minlength=n), 0, out=ptr[1:])
    found = SparseRows(ptr, column, value, x.shape[1])
    return found.dense() if sparse is False else found
