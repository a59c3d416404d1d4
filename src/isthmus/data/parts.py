"""Parts on disk: one folder for each silo, and how a real party brings its data.

``PARTS/federation.toml`` lists the silos in order (the same list for everybody; without it, the sub-folders that are
here). ``PARTS/<silo>/`` holds ``silo.toml`` (name, and optionally the schema), ``nodes`` and ``edges`` as Parquet or
CSV, in the columns of a user's own graph. A silo lists **every edge that touches a node it owns**; where the far end
belongs to somebody else, the column ``owner`` of the edge names that silo.

The optional ``[schema]`` of ``silo.toml`` says what a silo's own tables may not show: ``labels`` (those of the other
silos too), ``task`` (classes, tasks), ``target`` (node, edge), ``ids`` (integer, text), ``features`` (how many) and
``feature_names``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import compute
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.random import combine, keys_of
from isthmus.data.files import EDGE_COLUMNS, INTEGER, NODE_COLUMNS, features, id_text, label_columns, text_columns
from isthmus.data.members import read_toml
from isthmus.data.tables import Sheet, as_text, is_list, is_number, read_sheet, splits, times
from isthmus.graph.features import Features, SparseRows
from isthmus.graph.graph import UNUSED, Schema
from isthmus.graph.silo import Silo

_SCHEMA: dict[str, tuple[type, tuple[str, ...]]] = {  # key -> type, and the words to choose from, if any
    "task": (str, ("classes", "tasks")),
    "target": (str, ("node", "edge")),
    "ids": (str, ("integer", "text")),
    "labels": (list, ()),
    "features": (int, ()),
    "feature_names": (list, ()),
}


def read_part(root: Path, names: Sequence[str], number: int) -> Silo:
    """One silo's part; no other silo's folder is opened."""
    folder = root / names[number]
    if not folder.is_dir():
        raise IsthmusError(
            f"{root} has no folder '{names[number]}', which this host is to read; put that silo's part there."
        )
    meta = read_toml(folder / "silo.toml") if (folder / "silo.toml").is_file() else {}
    if str(meta.get("name", names[number])) != names[number]:
        raise IsthmusError(
            f"{folder / 'silo.toml'} is of '{meta['name']}', but the folder is '{names[number]}'; rename one."
        )
    declared = _declared(folder / "silo.toml", meta)
    tasks = [f"label:{task}" for task in declared.get("labels", ())] if declared.get("task") == "tasks" else []
    nodes = read_sheet(folder, "nodes", NODE_COLUMNS)
    edges = read_sheet(folder, "edges", ("source", "target", "label", "split", "owner"))
    ids, source, target = _typed_ids(nodes, edges, declared.get("ids"))
    ends, halo_ids, halo_owner = _ends(edges, ids, source, target, names, number)
    x, feature_names = _node_features(nodes, tasks, declared)
    edge_x, edge_names = features(edges, (*EDGE_COLUMNS, "owner"))
    time = times(edges, "time") if "time" in edges.names else None
    keys = keys_of(ids)
    y, split, labels = _task_labels(nodes, tasks) if tasks else label_columns(nodes, keys, 0, declared.get("labels"))
    both = torch.cat([keys, keys_of(halo_ids)])
    edge_keys = combine(combine(both[ends[0]], both[ends[1]]), torch.zeros_like(ends[0]) if time is None else time)
    edge_y, edge_split, edge_labels = label_columns(edges, edge_keys, 0, declared.get("labels"))
    by_edge = declared.get("target", "edge" if y is None and edge_y is not None else "node") == "edge"
    y, split = _or_unknown(None if by_edge else y, split, len(ids))
    edge_y, edge_split = _or_unknown(edge_y, edge_split, ends.shape[1])
    return Silo(
        number=number,
        name=names[number],
        schema=Schema(
            features=x.shape[1],
            labels=tuple(edge_labels if by_edge else labels),
            task="tasks" if tasks else "classes",
            target="edge" if by_edge else "node",
            edge_features=len(edge_names),
            timed=time is not None,
            feature_names=feature_names,
            edge_feature_names=edge_names,
        ),
        ids=ids,
        x=x,
        y=y,
        split=split,
        halo_ids=halo_ids,
        halo_owner=halo_owner,
        edge_index=ends,
        edge_attr=edge_x if edge_names else None,
        edge_time=time,
        edge_y=edge_y if by_edge else None,
        edge_split=edge_split if by_edge else None,
    )


def _declared(path: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """The ``[schema]`` of a silo, checked."""
    schema = meta.get("schema", {})
    if not isinstance(schema, dict):
        raise IsthmusError(f"{path}: schema is {schema!r}; it must be a table, [schema].")
    for key, value in schema.items():
        if key not in _SCHEMA:
            raise unknown(f"key in [schema] of {path}", key, _SCHEMA)
        kind, choices = _SCHEMA[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise IsthmusError(f"{path}: {key} in [schema] is {value!r}; it must be of type {kind.__name__}.")
        if choices and value not in choices:
            raise unknown(f"{key} in [schema] of {path}", value, choices)
    words = {key: [str(word) for word in schema[key]] for key in ("labels", "feature_names") if key in schema}
    return {**schema, **words}


def _or_unknown(y: Tensor | None, split: Tensor | None, rows: int) -> tuple[Tensor, Tensor]:
    """Labels and split; where there are none, every label is unknown and every row unused."""
    if y is None or split is None:
        return torch.full((rows,), -1), torch.full((rows,), UNUSED, dtype=torch.int8)
    return y, split


def _typed_ids(nodes: Sheet, edges: Sheet, kind: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids as int64 if all of them in this part are whole numbers and not declared to be text, else as text."""
    texts = [id_text(nodes, "id"), id_text(edges, "source"), id_text(edges, "target")]
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
    """Rows of both ends; far ends get the rows behind the owned ones, in the order of their public keys."""
    if len(np.unique(ids)) < len(ids):
        value, count = np.unique(ids, return_counts=True)
        raise IsthmusError(
            f"{edges.path.parent}: node id {value[count > 1][0].item()!r} appears twice; a node has one row."
        )
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
    """The number of the silo that owns the far end of each edge, -1 for inner edges."""
    given = as_text(edges.table["owner"]).fill_null("") if "owner" in edges.names else pa.array([""] * len(far))
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


def _node_features(nodes: Sheet, tasks: list[str], declared: dict[str, Any]) -> tuple[Features, tuple[str, ...]]:
    if "x_index" in nodes.names and is_list(nodes.table["x_index"]):
        return _sparse(nodes, declared), ()
    names = tuple(declared.get("feature_names", ()))
    if not len(nodes.table) and "x" in nodes.names and is_list(nodes.table["x"]):
        width = int(declared.get("features", 1))  # a silo without nodes: no list shows its length
        return torch.zeros(0, width), names or tuple(f"x{i}" for i in range(width))
    x, found = features(nodes, (*NODE_COLUMNS, *tasks, *text_columns(nodes)))
    if "x" in nodes.names and is_list(nodes.table["x"]) and len(names) == len(found):
        found = names  # a column of lists has no names of its own
    return (x, found) if found else (torch.ones(len(nodes.table), 1), ("one",))


def _sparse(nodes: Sheet, declared: dict[str, Any]) -> SparseRows:
    """Rows of column numbers (``x_index``) and the values there (``x_value``)."""
    if "features" not in declared:
        raise IsthmusError(
            f"{nodes.path} has sparse features (x_index); say how many there are with 'features' in the [schema] of "
            f"{nodes.path.parent / 'silo.toml'}."
        )
    width = int(declared["features"])
    index, value = (nodes.column(name).combine_chunks() for name in ("x_index", "x_value"))
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


def _task_labels(nodes: Sheet, tasks: list[str]) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Yes/no labels: [n, T] of 1, 0, and -1 where unknown."""
    y = np.stack([_yes_or_no(nodes, name) for name in tasks], 1)
    split = splits(nodes, "split") if "split" in nodes.names else torch.full((len(y),), UNUSED, dtype=torch.int8)
    return torch.from_numpy(y), split, tuple(name.removeprefix("label:") for name in tasks)


def _yes_or_no(nodes: Sheet, name: str) -> np.ndarray:
    column = nodes.column(name)
    if not is_number(column):
        raise nodes.wrong(name, 0, f"a label of type {column.type}", "write 1 (yes), 0 (no) or leave it empty")
    said = column.cast(pa.float64()).fill_null(-1).to_numpy()
    bad = np.flatnonzero(~np.isin(said, (-1, 0, 1)))
    if len(bad):
        raise nodes.wrong(name, int(bad[0]), f"the label {said[bad[0]]:g}", "write 1 (yes), 0 (no) or leave it empty")
    whole: np.ndarray = said.astype(np.int8)
    return whole
