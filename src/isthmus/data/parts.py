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
import pyarrow as pa
import torch
from pyarrow import compute
from torch import Tensor

from isthmus.core.attempts import attempt, go_on_if_complete, problems_so_far
from isthmus.core.random import keys_of
from isthmus.data.columns import times
from isthmus.data.feature_columns import Reading, TableFeatures, table_features
from isthmus.data.files import EDGE_COLUMNS, NODE_COLUMNS
from isthmus.data.ids import INTEGER, check_unique, edge_ids, id_text
from isthmus.data.members import check_inside
from isthmus.data.part_columns import PartLabels, node_features, part_labels, part_notes
from isthmus.data.part_schema import check_features, check_ids, check_labels, declared_schema, kept_columns, kept_notes
from isthmus.data.table_labels import edge_split_keys, read_labels
from isthmus.data.tables import Sheet, as_text, read_sheet
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

    at: _IdsAndEnds
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
    at = attempt(partial(_ids_and_ends, nodes, edges, declared, names, number), None)
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


@dataclass(frozen=True)
class _IdsAndEnds:
    """Ids of owned nodes [n], the rows of each edge's ends [2, m], and ids and owners of halo nodes [h]."""

    ids: np.ndarray
    ends: Tensor
    halo_ids: np.ndarray
    halo_owner: Tensor


def _ids_and_ends(
    nodes: Sheet, edges: Sheet, declared: dict[str, Any], names: Sequence[str], number: int
) -> _IdsAndEnds:
    """Ids and ends of edges, checked; raises for ids that are missing, repeated, or of no owner."""
    before = problems_so_far()
    for sheet, columns in ((nodes, ("id",)), (edges, ("source", "target"))):
        attempt(partial(check_ids, sheet, columns, declared), None)
    typed = attempt(partial(_typed_ids, nodes, edges, declared.get("ids")), None)
    go_on_if_complete(before)
    assert typed is not None
    return _IdsAndEnds(typed[0], *_ends(edges, *typed, names, number))


def _typed_ids(nodes: Sheet, edges: Sheet, kind: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids of nodes, of edges' sources and of edges' targets.

    They are int64 if all ids of this part are whole numbers and not declared to be text, else text.
    """
    before, places = problems_so_far(), ((nodes, "id"), (edges, "source"), (edges, "target"))
    texts = [attempt(partial(id_text, sheet, name), None) for sheet, name in places]
    if texts[0] is not None:
        attempt(partial(check_unique, nodes, texts[0]), None)
    go_on_if_complete(before)
    if kind != "text" and all(
        compute.all(compute.match_substring_regex(text, INTEGER), min_count=0).as_py() for text in texts
    ):
        try:
            a, b, c = (text.cast(pa.int64()).to_numpy() for text in texts)
            return a, b, c
        except pa.ArrowInvalid:  # beyond 64 bits: text after all
            pass
    a, b, c = (np.asarray(text.to_pylist(), dtype=str) for text in texts)
    return a, b, c


def _ends(
    edges: Sheet, ids: np.ndarray, source: np.ndarray, target: np.ndarray, names: Sequence[str], number: int
) -> tuple[Tensor, np.ndarray, Tensor]:
    """The rows of each edge's ends [2, m], and ids and owners of halo nodes.

    Halo nodes are the far ends that other silos own; their rows follow the owned ones, in the order of public keys.
    """
    every, place = np.unique(np.concatenate([ids, source, target]), return_inverse=True)
    own, source_at, target_at = np.split(place, [len(ids), len(ids) + len(source)])
    row = np.full(len(every), -1)
    row[own] = np.arange(len(ids))
    far_source, far_target = row[source_at] < 0, row[target_at] < 0
    owner = _owner_numbers(edges, names, far_source | far_target, far_source & far_target, number)
    far = np.where(far_source, source_at, target_at)[far_source | far_target]
    far_owner = owner[far_source | far_target]
    halo, first = np.unique(far, return_index=True)
    owner_of = np.full(len(every), -1)
    owner_of[halo] = far_owner[first]
    clash = np.flatnonzero(owner_of[far] != far_owner)
    if len(clash):
        at = int(np.flatnonzero(far_source | far_target)[clash[0]])
        raise edges.wrong(
            "owner",
            at,
            f"node {every[far[clash[0]]].item()!r} has another owner in an earlier edge",
            "a node has one owner",
        )
    halo = halo[np.argsort(keys_of(every[halo]).numpy(), kind="stable")]
    row[halo] = np.arange(len(halo)) + len(ids)
    ends = torch.from_numpy(np.stack([row[source_at], row[target_at]]))
    return ends, every[halo], torch.from_numpy(owner_of[halo])


def _owner_numbers(edges: Sheet, names: Sequence[str], far: np.ndarray, both: np.ndarray, number: int) -> np.ndarray:
    """The number of the silo that owns the far end of each edge, -1 for inner edges: [m].

    ``far`` marks edges with one or two ends that this silo does not own, ``both`` those with two.
    """
    given = as_text(edges, "owner").fill_null("") if "owner" in edges.names else pa.array([""] * len(far), pa.string())
    place = compute.index_in(given, value_set=pa.array(names, pa.string())).fill_null(-1).to_numpy()
    problems = (
        (both, "neither end is a node of this silo", "list only edges that touch owned nodes"),
        (far & (place < 0), "the far end's owner is {!r}", f"name one of the silos: {', '.join(names)}"),
        (
            far & (place == number),
            "the far end's owner is this silo, which has no such node",
            "add the node or correct the owner",
        ),
        (~far & (place >= 0), "an owner is named, but both ends are nodes of this silo", "leave it empty"),
    )
    for wrong, what, todo in problems:
        at = np.flatnonzero(wrong)
        if len(at):
            raise edges.wrong("owner", int(at[0]), what.format(given[int(at[0])].as_py()), todo)
    numbers_of_owners: np.ndarray = place.astype(np.int64)
    return numbers_of_owners
