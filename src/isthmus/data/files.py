"""A user's own graph: a folder with a table of nodes and a table of edges, in Parquet or CSV.

``nodes`` has the column ``id`` and optionally ``label`` and ``split`` (train, valid, test or empty). Every other column
of numbers is a feature; a column ``x`` of lists holds several features. Columns of text, and those named as attributes,
serve to split the graph between silos and never become features. ``edges`` has ``source`` and ``target`` and optionally
``label``, ``split`` and ``time``; every other column must hold numbers and is an edge feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import is_folder
from isthmus.core.random import combine, keys_of
from isthmus.data.columns import (
    check_text_column,
    labels,
    lists,
    note_on_labels,
    numbers,
    refuse_label_columns,
    splits,
    times,
)
from isthmus.data.split import random_split
from isthmus.data.tables import ArrowColumn, Sheet, as_text, is_list, is_number, is_text, read_sheet
from isthmus.graph.graph import UNUSED, Graph, Schema

NODE_COLUMNS = ("id", "label", "split")
EDGE_COLUMNS = ("source", "target", "label", "split", "time")
INTEGER = "^(0|-?[1-9][0-9]{0,18})$"  # no leading zeros: 007 is a name, not a number


def load_folder(folder: str, seed: int = 0, attributes: tuple[str, ...] = (), target: str | None = None) -> Graph:
    """The graph in the tables ``nodes`` and ``edges`` of a folder.

    ``attributes`` names columns of numbers to split by instead of learning from them; ``target`` says whether nodes or
    edges carry the label (default: edges if only they do). Without a column ``split`` rows are drawn 60/20/20 by public
    id. Rows without a label are unused. Nodes without features get a single 1.
    """
    attributes = (attributes,) if isinstance(attributes, str) else tuple(attributes)
    nodes, edges = _sheets(Path(folder), attributes)
    ids, source, end = _ids(nodes, edges)
    edge_index = torch.stack([source, end])
    words = [name for name in text_columns(nodes) if name not in attributes]
    notes = [check_text_column(nodes, name, f"use --set data.attributes={name}") for name in words]
    kept = (*attributes, *words)
    x, names = features(nodes, (*NODE_COLUMNS, *kept))
    edge_x, edge_names = features(edges, EDGE_COLUMNS)
    time = times(edges, "time") if "time" in edges.names else None
    schema = Schema(
        features=max(len(names), 1),
        labels=(),
        edge_features=len(edge_names),
        timed=time is not None,
        feature_names=names or ("one",),
        edge_feature_names=edge_names,
    )
    graph = Graph(
        ids=ids,
        x=x if names else torch.ones(len(ids), 1),
        edge_index=edge_index,
        schema=schema,
        edge_attr=edge_x if edge_names else None,
        edge_time=time,
        columns={name: _values(nodes, name) for name in kept},
        name=Path(folder).resolve().name,
        notes=(
            *filter(None, notes),
            *unused_text(nodes, [name for name, note in zip(words, notes, strict=True) if not note]),
            *(both_labelled(nodes, edges) if target is None else ()),
            *(note for sheet in (nodes, edges) for note in note_on_labels(sheet)),
        ),
    )
    return _labelled(graph, nodes, edges, seed, target).check()


def _labelled(graph: Graph, nodes: Sheet, edges: Sheet, seed: int, target: str | None) -> Graph:
    """The graph with the labels and the split of its nodes or of its edges."""
    keys = keys_of(graph.ids)
    y, split, classes = label_columns(nodes, keys, seed)
    edge_keys = edge_split_keys(keys, graph.edge_index, graph.edge_time)
    edge_y, edge_split, edge_classes = label_columns(edges, edge_keys, seed)
    if _by_edge(target, y, edge_y, nodes.path.parent):
        schema = replace(graph.schema, labels=edge_classes, target="edge")
        return replace(graph, schema=schema, edge_y=edge_y, edge_split=edge_split)
    return replace(graph, schema=replace(graph.schema, labels=classes), y=y, split=split)


def edge_split_keys(keys: Tensor, ends: Tensor, time: Tensor | None) -> Tensor:
    """The public key by which each edge is drawn for training, validation or test: [m].

    ``keys`` are the public keys of all rows, ``ends`` [2, m] the rows of each edge's source and target.
    """
    return combine(combine(keys[ends[0]], keys[ends[1]]), torch.zeros_like(ends[0]) if time is None else time)


def find_folder(folder: str) -> None:
    """Raise if there is no such folder."""
    if not is_folder(Path(folder)):
        raise IsthmusError(f"There is no folder {folder}; give one that holds nodes and edges as .parquet or .csv.")


def _sheets(folder: Path, attributes: tuple[str, ...]) -> tuple[Sheet, Sheet]:
    """The tables of nodes and of edges in a folder; raises if one is missing, or has no such attribute."""
    find_folder(str(folder))
    nodes = read_sheet(folder, "nodes", (*NODE_COLUMNS, *attributes))
    edges = read_sheet(folder, "edges", ("source", "target", "label", "split"))
    if not len(nodes.table):
        raise IsthmusError(f"{nodes.path} has no rows; a graph needs nodes.")
    for sheet in (nodes, edges):
        refuse_label_columns(sheet)
    for name in attributes:
        if name not in nodes.names:
            raise unknown(f"attribute column of {nodes.path.name}", name, set(nodes.names) - set(NODE_COLUMNS))
    return nodes, edges


def _ids(nodes: Sheet, edges: Sheet) -> tuple[np.ndarray, Tensor, Tensor]:
    """Public ids (int64 if all are whole numbers, else text), and the rows of all sources and of all targets."""
    import pyarrow as pa
    from pyarrow import compute

    places = ((nodes, "id"), (edges, "source"), (edges, "target"))
    texts = [id_text(sheet, name) for sheet, name in places]
    columns = texts
    if all(compute.all(compute.match_substring_regex(text, INTEGER), min_count=0).as_py() for text in texts):
        try:
            columns = [text.cast(pa.int64()) for text in texts]
        except pa.ArrowInvalid:  # beyond 64 bits: text after all
            pass
    ids = columns[0]
    _check_unique(nodes, ids)
    rows = [_rows(edges, name, column, ids) for (_, name), column in zip(places[1:], columns[1:], strict=True)]
    plain = ids.to_numpy()
    return plain if plain.dtype == np.int64 else plain.astype(str), rows[0], rows[1]


def id_text(sheet: Sheet, name: str) -> ArrowColumn:
    """A column of ids as text; raises where an id is missing or neither text nor a whole number."""
    from pyarrow import compute, types

    column = sheet.column(name)
    if len(column) and not (is_text(column) or types.is_integer(column.type)):
        raise sheet.wrong(
            name, 0, f"{column[0].as_py()!r} ({column.type}) cannot be an id", "use whole numbers or text"
        )
    text = as_text(sheet, name).fill_null("")
    empty = np.flatnonzero(compute.equal(text, "").to_numpy())
    if len(empty):
        raise sheet.wrong(name, int(empty[0]), "a missing id", "give every row an id")
    return text


def _check_unique(nodes: Sheet, ids: ArrowColumn) -> None:
    """Raise if an id stands in two rows of the table of nodes."""
    from pyarrow import compute

    counts = compute.value_counts(ids)
    twice = counts.filter(compute.greater(counts.field("counts"), 1))
    if len(twice):
        value = twice[0]["values"].as_py()
        rows = np.flatnonzero(compute.equal(ids, value).to_numpy()) + 1
        raise IsthmusError(
            f"{nodes.path}, column 'id': {value!r} appears in rows {rows[0]} and {rows[1]} "
            f"({len(twice)} such ids); a node has one row: remove the others."
        )


def _rows(edges: Sheet, name: str, ends: ArrowColumn, ids: ArrowColumn) -> Tensor:
    """The row of each end of an edge among the ids of nodes: [m] int64; raises for an unknown id."""
    from pyarrow import compute

    row = compute.index_in(ends, value_set=ids)
    if row.null_count:
        at = int(np.flatnonzero(row.is_null().to_numpy())[0])
        what = f"{ends[at].as_py()!r} is not among the ids of the nodes"
        raise edges.wrong(name, at, what, "add the node or remove the edge")
    return torch.from_numpy(row.to_numpy().astype(np.int64))


def text_columns(nodes: Sheet) -> list[str]:
    """Names of all columns of text, which serve to split by and never become features."""
    return [name for name in nodes.names if name not in NODE_COLUMNS and is_text(nodes.table[name])]


def unused_text(nodes: Sheet, names: Sequence[str]) -> tuple[str, ...]:
    """A sentence on the named columns of text, none of which is a feature; nothing where there are none."""
    return (f"{nodes.path}: {', '.join(names)}: text, and no feature.",) if names else ()


def features(sheet: Sheet, without: tuple[str, ...]) -> tuple[Tensor, tuple[str, ...]]:
    """All columns but those named in ``without`` as features, [rows, features] float32, and the features' names."""
    parts: list[np.ndarray] = []
    names: list[str] = []
    for name in sheet.names:
        column = sheet.table[name]
        if name in without:
            continue
        if name == "x" and is_list(column) and len(column):
            parts.append(lists(sheet, name))
            names += [f"x{number}" for number in range(parts[-1].shape[1])]
        elif is_number(column):
            parts.append(numbers(sheet, name)[:, None])
            names.append(name)
        else:
            example = f", for example {column[0].as_py()!r}" if len(column) else ""
            raise IsthmusError(
                f"{sheet.path}, column '{name}' holds {column.type}{example}; turn it into numbers or remove it."
            )
    joined = np.concatenate(parts, axis=1) if parts else np.empty((len(sheet.table), 0), dtype=np.float32)
    return torch.from_numpy(joined), tuple(names)


def _values(nodes: Sheet, name: str) -> np.ndarray:
    """An attribute column: [n] whole numbers as they are, anything else as text (empty where missing)."""
    from pyarrow import types

    column = nodes.table[name]
    if types.is_integer(column.type) and not column.null_count:
        whole: np.ndarray = column.to_numpy()
        return whole
    return np.asarray(as_text(nodes, name).fill_null("").to_pylist(), dtype=str)


def label_columns(
    sheet: Sheet, keys: Tensor, seed: int, declared: Sequence[str] | None = None
) -> tuple[Tensor | None, Tensor | None, tuple[str, ...]]:
    """Class numbers, split and class names of a table; None for the first two where it has no column ``label``.

    ``declared`` are the class names that silo.toml lists; without it they are those of the table. ``keys`` and ``seed``
    draw a random split where the table has no column ``split``.
    """
    if "label" not in sheet.names:
        return None, None, tuple(declared or ())
    y, classes = labels(sheet, "label", declared or ())
    if declared is not None:
        strange = sorted(set(classes) - set(declared))
        if strange:
            raise IsthmusError(
                f"{sheet.path}, column 'label': '{strange[0]}' is not among the declared labels "
                f"({', '.join(declared)}); add it to silo.toml or correct the label."
            )
        y = torch.tensor([*(list(declared).index(name) for name in classes), -1])[y]
        classes = tuple(declared)
    if "split" not in sheet.names:
        return y, random_split(keys, seed, y >= 0), classes
    return y, splits(sheet, "split").where(y >= 0, UNUSED), classes


def both_labelled(nodes: Sheet, edges: Sheet) -> tuple[str, ...]:
    """A sentence where nodes and edges both have labels, and nobody has said which are to be learnt."""
    if "label" not in nodes.names or "label" not in edges.names:
        return ()
    unused = len(edges.table) - edges.table["label"].null_count
    return (
        f"{nodes.path.parent}: nodes and edges have labels; {unused:,} of edges are not used (target = edge does).",
    )


def _by_edge(target: str | None, y: Any, edge_y: Any, folder: Path) -> bool:
    """Whether edges (rather than nodes) carry the label to learn; raises if the chosen ones have no labels."""
    if target not in (None, "node", "edge"):
        raise unknown("target", target, ("node", "edge"))
    chosen = target or ("edge" if y is None and edge_y is not None else "node")
    if target is not None and (y if target == "node" else edge_y) is None:
        raise IsthmusError(f"The {target}s in {folder} have no column 'label'; add one, or choose another target.")
    return chosen == "edge"
