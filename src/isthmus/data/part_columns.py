"""Features and labels of a silo's part, from the columns of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import compute
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.data.columns import note_on_labels, note_on_rare_labels, splits
from isthmus.data.feature_columns import Reading, TableFeatures, table_features
from isthmus.data.files import NODE_COLUMNS
from isthmus.data.table_labels import both_labelled, label_columns
from isthmus.data.tables import Sheet, is_list, is_number
from isthmus.graph.encoding import EMPTY, Encoding, TableColumn
from isthmus.graph.features import Features, SparseRows
from isthmus.graph.graph import UNUSED


def node_features(
    nodes: Sheet, tasks: list[str], declared: dict[str, Any], reading: Reading
) -> tuple[Features, TableFeatures]:
    """The features of nodes, dense or sparse, and the columns that they come from; a 1 where there are none."""
    rows = len(nodes.table)
    if "x_index" in nodes.names and is_list(nodes.table["x_index"]):
        x = _sparse(nodes, declared)
        return x, TableFeatures(torch.zeros(rows, 0), _numbered(declared.get("feature_names", ())))
    names = tuple(declared.get("feature_names", ()))
    if not rows and "x" in nodes.names and is_list(nodes.table["x"]):
        width = int(declared.get("features", 1))  # a silo without nodes: no list shows its length
        return _alone(torch.zeros(0, width), names or tuple(f"x{i}" for i in range(width)))
    found = table_features(nodes, (*NODE_COLUMNS, *tasks, *declared.get("attributes", ())), reading)
    if "x" in nodes.names and is_list(nodes.table["x"]) and len(names) == len(found.names):
        found = TableFeatures(found.x, _numbered(names), found.notes)  # a column of lists has no names of its own
    if not found.names and not rows and "features" in declared:  # a silo without nodes need not show columns
        return _alone(torch.zeros(0, declared["features"]), names)
    if found.names or any(column.kind == EMPTY for column in found.columns):
        return found.x, found
    return torch.ones(rows, 1), TableFeatures(torch.ones(rows, 1), (TableColumn("one"),), found.notes)


def _numbered(names: Sequence[str]) -> Encoding:
    return tuple(map(TableColumn, names))


def _alone(x: Tensor, names: Sequence[str]) -> tuple[Tensor, TableFeatures]:
    """Features of a table without rows, by the names that were declared."""
    return x, TableFeatures(x, _numbered(names))


def part_notes(nodes: Sheet, edges: Sheet, declared: dict[str, Any], rarest: int) -> tuple[str, ...]:
    """Sentences on labels of a part that training does not use, that may be none, or that hardly a row has.

    Raises for a label that fewer than ``rarest`` rows have, unless silo.toml declares the labels.
    """
    both = both_labelled(nodes, edges) if "target" not in declared else ()
    odd = () if "labels" in declared else (note for sheet in (nodes, edges) for note in note_on_labels(sheet))
    of_edges = declared.get("target", "edge" if "label" not in nodes.names else "node") == "edge"
    rare = () if "labels" in declared else note_on_rare_labels(edges if of_edges else nodes, rarest)
    return (*both, *odd, *rare)


def _sparse(nodes: Sheet, declared: dict[str, Any]) -> SparseRows:
    """Sparse features from lists of column numbers (``x_index``) and lists of values (``x_value``)."""
    if "features" not in declared:
        raise IsthmusError(
            f"{nodes.path} has sparse features (x_index); say how many there are with 'features' in the [schema] of "
            f"{nodes.path.parent / 'silo.toml'}."
        )
    width = int(declared["features"])
    index, value = (nodes.column(name).combine_chunks() for name in ("x_index", "x_value"))
    for name, column, wanted in (("x_index", index, "whole numbers"), ("x_value", value, "numbers")):
        inner = compute.list_flatten(column) if is_list(column) else column
        if not is_list(column) or not (is_number(inner) and (pa.types.is_integer(inner.type) or name == "x_value")):
            raise nodes.wrong(name, 0, f"a column of {column.type}", f"give every row a list of {wanted}")
    length, other = (
        compute.list_value_length(part).fill_null(0).to_numpy(zero_copy_only=False) for part in (index, value)
    )
    uneven = np.flatnonzero(length != other)
    if len(uneven):
        row = int(uneven[0])
        raise nodes.wrong("x_value", row, f"{other[row]} values for {length[row]} columns", "give one for each")
    at, worth = (compute.list_flatten(part).to_numpy(zero_copy_only=False) for part in (index, value))
    row_of = np.repeat(np.arange(len(length)), length)
    for name, bad, what, todo in (
        ("x_index", (at < 0) | (at >= width), "a column outside 0..{}", "correct it, or 'features' in silo.toml"),
        ("x_value", ~np.isfinite(worth.astype(np.float32)), "a NaN or infinite value", "fill or remove it"),
    ):
        if bad.any():
            raise nodes.wrong(name, int(row_of[bad][0]), what.format(width - 1), todo)
    ptr = torch.from_numpy(np.concatenate([[0], np.cumsum(length)]).astype(np.int64))
    return SparseRows(ptr, torch.from_numpy(at.astype(np.int64)), torch.from_numpy(worth.astype(np.float32)), width)


@dataclass(frozen=True)
class PartLabels:
    """Labels and splits of a part; those of edges are None where nodes carry the label."""

    names: tuple[str, ...]
    y: Tensor  # [n] or [n, T]
    split: Tensor  # [n] int8
    edge_y: Tensor | None  # [m]
    edge_split: Tensor | None  # [m] int8


def part_labels(
    nodes: Sheet, edges: Sheet, tasks: list[str], declared: dict[str, Any], keys: Tensor, edge_keys: Tensor
) -> PartLabels:
    """The labels of a part's nodes or of its edges; ``tasks`` are the columns of yes/no labels, if any."""
    given = declared.get("labels")
    y, split, names = _task_labels(nodes, tasks) if tasks else label_columns(nodes, keys, 0, given)
    edge_y, edge_split, edge_names = label_columns(edges, edge_keys, 0, given)
    if declared.get("target", "edge" if y is None and edge_y is not None else "node") == "edge":
        nothing = _or_unknown(None, None, len(keys))
        return PartLabels(tuple(edge_names), *nothing, *_or_unknown(edge_y, edge_split, len(edge_keys)))
    return PartLabels(tuple(names), *_or_unknown(y, split, len(keys)), None, None)


def _or_unknown(y: Tensor | None, split: Tensor | None, rows: int) -> tuple[Tensor, Tensor]:
    """Labels and split of ``rows`` rows; where there are none, every label is unknown and every row unused."""
    if y is None or split is None:
        return torch.full((rows,), -1), torch.full((rows,), UNUSED, dtype=torch.int8)
    return y, split


def _task_labels(nodes: Sheet, tasks: list[str]) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Yes/no labels ([n, T] of 1, 0, and -1 where unknown), split, and the names of the tasks."""
    y = np.stack([_yes_or_no(nodes, name) for name in tasks], 1)
    split = splits(nodes, "split") if "split" in nodes.names else torch.full((len(y),), UNUSED, dtype=torch.int8)
    return torch.from_numpy(y), split, tuple(name.removeprefix("label:") for name in tasks)


def _yes_or_no(nodes: Sheet, name: str) -> np.ndarray:
    """A column of yes/no labels: [n] int8 of 1, 0, and -1 where empty."""
    column = nodes.column(name)
    if not is_number(column):
        raise nodes.wrong(name, 0, f"a label of type {column.type}", "write 1 (yes), 0 (no) or leave it empty")
    said = column.cast(pa.float64(), safe=False).fill_null(-1).to_numpy()
    bad = np.flatnonzero(~np.isin(said, (-1, 0, 1)))
    if len(bad):
        raise nodes.wrong(name, int(bad[0]), f"the label {said[bad[0]]:g}", "write 1 (yes), 0 (no) or leave it empty")
    whole: np.ndarray = said.astype(np.int8)
    return whole
