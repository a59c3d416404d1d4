"""A user's own graph: a folder with a table of nodes and a table of edges, in Parquet or CSV.

``nodes`` has the column ``id`` and optionally ``label`` and ``split`` (train, valid, test or empty). ``edges`` has
``source`` and ``target`` and optionally ``id``, ``label``, ``split`` and ``time``. Every other column of numbers is a
feature, a column ``x`` of lists several; a column of few words is a feature for each of them. Columns named as
attributes serve to split the graph between silos and never become features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.attempts import attempt, go_on_if_complete, problems_so_far
from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import is_folder
from isthmus.core.random import keys_of
from isthmus.data.columns import note_on_labels, note_on_rare_labels, refuse_label_columns, times
from isthmus.data.feature_columns import IMPUTE, Reading, TableFeatures, table_features
from isthmus.data.ids import INTEGER, check_unique, edge_ids, id_text, rows_of
from isthmus.data.other_layouts import refuse_other_layouts
from isthmus.data.table_labels import both_labelled, edge_split_keys, label_columns, read_labels
from isthmus.data.tables import Sheet, as_text, is_text, read_sheet
from isthmus.graph.graph import Graph, Schema

NODE_COLUMNS = ("id", "label", "split")
EDGE_COLUMNS = ("id", "source", "target", "label", "split", "time")
EDGE_TEXTS = ("id", "source", "target", "label", "split")  # read as text, whatever they look like


def load_folder(
    folder: str,
    seed: int = 0,
    attributes: tuple[str, ...] = (),
    target: str | None = None,
    categories: int = 20,
    missing: str = IMPUTE,
    words: tuple[str, ...] = (),
    rarest: int = 1,
) -> Graph:
    """The graph in the tables ``nodes`` and ``edges`` of a folder.

    ``attributes`` names columns of nodes to split by instead of learning from them; ``target`` says whether nodes or
    edges carry the label (default: edges if only they do). ``categories``, ``missing``, ``words`` and
    ``rarest`` are those of :class:`Reading`. Without a column ``split`` rows are drawn 60/20/20 by public id. Rows
    without a label are unused. Nodes without features get a single 1.
    """
    attributes = (attributes,) if isinstance(attributes, str) else tuple(attributes)
    words = (words,) if isinstance(words, str) else tuple(words)
    reading, before = Reading(categories, missing, words, rarest).check(), problems_so_far()
    nodes, edges = _sheets(Path(folder), attributes)
    found = _columns(nodes, edges, attributes, reading)
    go_on_if_complete(before)
    graph = _unlabelled(found, Path(folder).resolve().name)
    kept = {name: _values(nodes, name) for name in dict.fromkeys((*attributes, *text_columns(nodes)))}
    notes = *graph.notes, *_notes_on_labels(nodes, edges, target, rarest)
    return _labelled(replace(graph, columns=kept, notes=notes), nodes, edges, seed, target).check()


@dataclass(frozen=True)
class _FolderColumns:
    """The columns of nodes and edges that are neither labels nor splits."""

    ids: np.ndarray  # [n]
    source: Tensor  # [m] rows
    target: Tensor  # [m] rows
    of_nodes: TableFeatures
    of_edges: TableFeatures
    time: Tensor | None  # [m]
    edge_ids: np.ndarray | None  # [m]


def _columns(nodes: Sheet, edges: Sheet, attributes: tuple[str, ...], reading: Reading) -> _FolderColumns:
    """Everything but labels and splits, which are looked at too, so that their problems are named with all others."""
    attempt(partial(reading.check_words, nodes, edges), None)
    ids, source, end = attempt(partial(_ids, nodes, edges), (np.zeros(0), torch.zeros(0), torch.zeros(0)))
    of_nodes = table_features(nodes, (*NODE_COLUMNS, *attributes), reading)
    of_edges = table_features(edges, EDGE_COLUMNS, reading)
    time = attempt(partial(times, edges, "time"), None) if "time" in edges.names else None
    named = attempt(partial(edge_ids, edges), None)
    for sheet in (nodes, edges):
        attempt(partial(read_labels, sheet), None)
    return _FolderColumns(ids, source, end, of_nodes, of_edges, time, named)


def _unlabelled(found: _FolderColumns, name: str) -> Graph:
    """The graph of some columns, as yet without labels; nodes without features get a single 1."""
    nodes, edges = found.of_nodes, found.of_edges
    schema = Schema(
        features=max(len(nodes.names), 1),
        labels=(),
        edge_features=len(edges.names),
        timed=found.time is not None,
        feature_names=nodes.names or ("one",),
        edge_feature_names=edges.names,
    )
    return Graph(
        ids=found.ids,
        x=nodes.x if nodes.names else torch.ones(len(found.ids), 1),
        edge_index=torch.stack([found.source, found.target]),
        schema=schema,
        edge_attr=edges.x if edges.names else None,
        edge_time=found.time,
        name=name,
        notes=(*nodes.notes, *edges.notes),
        edge_ids=found.edge_ids,
        node_encoding=nodes.encoding,
        edge_encoding=edges.encoding,
    )


def _notes_on_labels(nodes: Sheet, edges: Sheet, target: str | None, rarest: int) -> tuple[str, ...]:
    """Sentences on labels of nodes and edges: on those that are not learnt, that may be no classes, that are rare."""
    learnt = edges if (target or ("node" if "label" in nodes.names else "edge")) == "edge" else nodes
    return (
        *(both_labelled(nodes, edges) if target is None else ()),
        *(note for sheet in (nodes, edges) for note in note_on_labels(sheet)),
        *note_on_rare_labels(learnt, rarest),
    )


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


def find_folder(folder: str) -> None:
    """Raise if there is no such folder, or if its files are of a layout that another data set reads."""
    refuse_other_layouts(Path(folder))
    if not is_folder(Path(folder)):
        raise IsthmusError(f"There is no folder {folder}; give one that holds nodes and edges as .parquet or .csv.")


def _sheets(folder: Path, attributes: tuple[str, ...]) -> tuple[Sheet, Sheet]:
    """The tables of nodes and of edges in a folder; raises if one is missing, or has no such attribute."""
    find_folder(str(folder))
    before = problems_so_far()
    read_nodes = partial(read_sheet, folder, "nodes", (*NODE_COLUMNS, *attributes))
    found = attempt(read_nodes, None), attempt(partial(read_sheet, folder, "edges", EDGE_TEXTS), None)
    go_on_if_complete(before)
    nodes, edges = (sheet for sheet in found if sheet is not None)
    if not len(nodes.table):
        raise IsthmusError(f"{nodes.path} has no rows; a graph needs nodes.")
    for sheet in (nodes, edges):
        attempt(partial(refuse_label_columns, sheet), None)
    for name in attributes:
        if name not in nodes.names:
            raise unknown(f"attribute column of {nodes.path.name}", name, set(nodes.names) - set(NODE_COLUMNS))
    return nodes, edges


def _ids(nodes: Sheet, edges: Sheet) -> tuple[np.ndarray, Tensor, Tensor]:
    """Public ids (int64 if all are whole numbers, else text), and the rows of all sources and of all targets."""
    import pyarrow as pa
    from pyarrow import compute

    before = problems_so_far()
    places = ((nodes, "id"), (edges, "source"), (edges, "target"))
    texts = [attempt(partial(id_text, sheet, name), None) for sheet, name in places]
    go_on_if_complete(before)
    columns = texts
    if all(compute.all(compute.match_substring_regex(text, INTEGER), min_count=0).as_py() for text in texts):
        try:
            columns = [text.cast(pa.int64()) for text in texts]
        except pa.ArrowInvalid:  # beyond 64 bits: text after all
            pass
    ids = columns[0]
    attempt(partial(check_unique, nodes, ids), None)
    ends = zip(("source", "target"), columns[1:], strict=True)
    rows = [attempt(partial(rows_of, edges, name, column, ids), torch.zeros(0)) for name, column in ends]
    plain = ids.to_numpy()
    return plain if plain.dtype == np.int64 else plain.astype(str), rows[0], rows[1]


def text_columns(nodes: Sheet) -> list[str]:
    """Names of all columns of text, which serve to split by and never become features."""
    return [name for name in nodes.names if name not in NODE_COLUMNS and is_text(nodes.table[name])]


def _values(nodes: Sheet, name: str) -> np.ndarray:
    """An attribute column: [n] whole numbers as they are, anything else as text (empty where missing)."""
    from pyarrow import types

    column = nodes.table[name]
    if types.is_integer(column.type) and not column.null_count:
        whole: np.ndarray = column.to_numpy()
        return whole
    return np.asarray(as_text(nodes, name).fill_null("").to_pylist(), dtype=str)


def _by_edge(target: str | None, y: Any, edge_y: Any, folder: Path) -> bool:
    """Whether edges (rather than nodes) carry the label to learn; raises if the chosen ones have no labels."""
    if target not in (None, "node", "edge"):
        raise unknown("target", target, ("node", "edge"))
    chosen = target or ("edge" if y is None and edge_y is not None else "node")
    if target is not None and (y if target == "node" else edge_y) is None:
        raise IsthmusError(f"The {target}s in {folder} have no column 'label'; add one, or choose another target.")
    return chosen == "edge"
