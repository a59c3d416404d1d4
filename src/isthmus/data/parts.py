"""Reading the part of a silo: a folder with tables of the nodes that it owns and of their edges.

``PARTS/federation.toml`` lists the silos in order; every party has the same list. Without it, the silos are the
sub-folders of ``PARTS``. ``PARTS/<silo>/`` holds ``silo.toml`` (name, and optionally the schema), ``nodes`` and
``edges`` as Parquet or CSV, with the columns that :mod:`isthmus.data.files` describes. A silo lists **every edge that
touches a node it owns**; where the far end belongs to another silo, the column ``owner`` of the edge names that silo.

The optional ``[schema]`` of ``silo.toml`` states what a silo's own tables may not show: ``labels`` (of all silos),
``task`` (classes, tasks), ``target`` (node, edge), ``ids`` (integer, text), ``features`` (how many),
``feature_names``, and ``attributes``: columns that are no features. What contradicts the tables is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.attempts import attempt, go_on_if_complete, problems_so_far
from isthmus.core.random import keys_of
from isthmus.data.columns import times
from isthmus.data.feature_columns import Reading, TableFeatures, table_features
from isthmus.data.files import EDGE_COLUMNS, NODE_COLUMNS
from isthmus.data.ids import edge_ids
from isthmus.data.members import check_inside
from isthmus.data.part_columns import PartLabels, node_features, part_labels, part_notes
from isthmus.data.part_ends import IdsAndEnds, ids_and_ends
from isthmus.data.part_schema import check_features, check_labels, declared_schema, kept_columns, kept_notes
from isthmus.data.table_labels import edge_split_keys, read_labels
from isthmus.data.tables import Sheet, read_sheet
from isthmus.graph.encoding import Encoding
from isthmus.graph.features import Features
from isthmus.graph.graph import Schema
from isthmus.graph.silo import Silo

EDGE_TEXTS = ("id", "source", "target", "label", "split", "owner")  # read as text, whatever they look like
_USUAL = Reading()
_NO_FEATURES: tuple[Features, TableFeatures] = torch.zeros(0, 0), TableFeatures(torch.zeros(0, 0), ())


def read_part(root: Path, names: Sequence[str], number: int, reading: Reading = _USUAL) -> Silo:
    """Silo ``number`` of the silos ``names``, read from its folder below ``root``; no other silo's folder is opened."""
    folder = root / names[number]
    for path in sorted(folder.glob("*.*")):
        check_inside(root, path)
    tables, kept = _tables(folder, names[number]), kept_columns(folder, names[number])
    reading = _without_kept(reading, kept)
    found = _columns(tables, reading, names, number)
    check_features(tables.nodes, tables.declared, found.x.shape[1], found.of_nodes.names)
    silo = _silo(number, names[number], tables, found)
    notes = *kept_notes(folder, names[number]), *found.of_nodes.notes, *found.of_edges.notes
    return replace(
        silo,
        notes=(*notes, *part_notes(tables.nodes, tables.edges, tables.declared, reading.rarest)),
        node_encoding=kept[0] or _varying(found.of_nodes.encoding, tables.declared),
        edge_encoding=kept[1] or _varying(found.of_edges.encoding, tables.declared),
    )


@dataclass(frozen=True)
class _PartTables:
    """The tables of a part, what its silo.toml declares of them, and the columns of yes/no labels (``tasks``)."""

    nodes: Sheet
    edges: Sheet
    declared: dict[str, Any]
    tasks: list[str]


@dataclass(frozen=True)
class _PartColumns:
    """The columns of a part that are neither labels nor splits."""

    at: IdsAndEnds
    x: Features  # [n, features]
    of_nodes: TableFeatures
    of_edges: TableFeatures
    time: Tensor | None  # [m]
    edge_ids: np.ndarray | None  # [m]


def _tables(folder: Path, name: str) -> _PartTables:
    """The tables in the folder of the part of silo ``name``."""
    declared = declared_schema(folder, name)
    tasks = [f"label:{task}" for task in declared.get("labels", ())] if declared.get("task") == "tasks" else []
    return _PartTables(*_sheets(folder, declared), declared, tasks)


def _columns(tables: _PartTables, reading: Reading, names: Sequence[str], number: int) -> _PartColumns:
    """Everything but labels and splits, which are looked at too, so that their problems are named with all others."""
    nodes, edges, declared, before = tables.nodes, tables.edges, tables.declared, problems_so_far()
    attempt(partial(reading.check_words, nodes, edges), None)
    attempt(partial(check_labels, nodes, edges, tables.tasks, declared), None)
    at = attempt(partial(ids_and_ends, nodes, edges, declared, names, number), None)
    x, of_nodes = attempt(partial(node_features, nodes, tables.tasks, declared, reading), _NO_FEATURES)
    of_edges = table_features(edges, (*EDGE_COLUMNS, "owner"), reading)
    time = attempt(partial(times, edges, "time"), None) if "time" in edges.names else None
    named = attempt(partial(edge_ids, edges), None)
    for sheet in (nodes, edges):
        attempt(partial(read_labels, sheet, declared.get("labels")), None)
    go_on_if_complete(before)
    assert at is not None
    return _PartColumns(at, x, of_nodes, of_edges, time, named)


def _silo(number: int, name: str, tables: _PartTables, found: _PartColumns) -> Silo:
    """The silo of a part, as yet without notes and without the columns that its features come from."""
    labels = _labels(tables, found)
    return Silo(
        number=number,
        name=name,
        schema=_schema(tables, found, labels),
        ids=found.at.ids,
        x=found.x,
        y=labels.y,
        split=labels.split,
        halo_ids=found.at.halo_ids,
        halo_owner=found.at.halo_owner,
        edge_index=found.at.ends,
        edge_attr=found.of_edges.x if found.of_edges.names else None,
        edge_time=found.time,
        edge_y=labels.edge_y,
        edge_split=labels.edge_split,
        edge_ids=found.edge_ids,
    )


def _labels(tables: _PartTables, found: _PartColumns) -> PartLabels:
    """The labels of a part's nodes or of its edges; without a column ``split`` public keys draw the split."""
    keys = keys_of(found.at.ids)
    edge_keys = edge_split_keys(torch.cat([keys, keys_of(found.at.halo_ids)]), found.at.ends, found.time)
    return part_labels(tables.nodes, tables.edges, tables.tasks, tables.declared, keys, edge_keys)


def _schema(tables: _PartTables, found: _PartColumns, labels: PartLabels) -> Schema:
    """The schema that a part's own tables show."""
    return Schema(
        features=found.x.shape[1],
        labels=labels.names,
        task="tasks" if tables.tasks else "classes",
        target="node" if labels.edge_y is None else "edge",
        edge_features=len(found.of_edges.names),
        timed=found.time is not None,
        feature_names=found.of_nodes.names,
        edge_feature_names=found.of_edges.names,
    )


def _varying(columns: Encoding, declared: dict[str, Any]) -> Encoding:
    """Columns of a part; where silo.toml declares names of features, these are features whatever they hold."""
    if "feature_names" not in declared:
        return columns
    varying = tuple(replace(column, constant=False) for column in columns)
    return () if all(column.plain for column in varying) else varying


def _without_kept(reading: Reading, kept: Sequence[Encoding]) -> Reading:
    """How to read a part that 'isthmus split' wrote: a feature for each word is there already, named in silo.toml."""
    written = {column.name for columns in kept for column in columns}
    return replace(reading, words=tuple(name for name in reading.words if name not in written))


def _sheets(folder: Path, declared: dict[str, Any]) -> tuple[Sheet, Sheet]:
    """The tables of nodes and of edges of a part."""
    before = problems_so_far()
    read_nodes = partial(read_sheet, folder, "nodes", (*NODE_COLUMNS, *declared.get("attributes", ())))
    nodes, edges = attempt(read_nodes, None), attempt(partial(read_sheet, folder, "edges", EDGE_TEXTS), None)
    go_on_if_complete(before)
    assert nodes is not None and edges is not None
    return nodes, edges
