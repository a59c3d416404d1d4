"""The ``silo.toml`` of a part: what it declares, checked, and held against what the tables of the part show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import compute

from isthmus.core.errors import IsthmusError, unknown
from isthmus.data.columns import refuse_label_columns
from isthmus.data.ids import INTEGER, id_text
from isthmus.data.members import read_toml
from isthmus.data.tables import Sheet
from isthmus.graph.encoding import Encoding, as_columns
from isthmus.graph.graph import distinct

_SCHEMA: dict[str, tuple[type, tuple[str, ...]]] = {  # key -> type, and the words to choose from, if any
    "task": (str, ("classes", "tasks")),
    "target": (str, ("node", "edge")),
    "ids": (str, ("integer", "text")),
    "labels": (list, ()),
    "features": (int, ()),
    "feature_names": (list, ()),
    "attributes": (list, ()),
}


def declared_schema(folder: Path, name: str) -> dict[str, Any]:
    """The ``[schema]`` of a silo's ``silo.toml``, checked; empty where it has none."""
    path = folder / "silo.toml"
    schema = _silo_toml(folder, name).get("schema", {})
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
    lists = [key for key, (kind, _) in _SCHEMA.items() if kind is list and key in schema]
    declared = {**schema, **{key: [str(word) for word in schema[key]] for key in lists}}
    _check_within(path, declared)
    return declared


def kept_notes(folder: Path, name: str) -> tuple[str, ...]:
    """What ``isthmus split`` has found to say of the data that it wrote a part of."""
    notes = _silo_toml(folder, name).get("notes", [])
    return tuple(map(str, notes)) if isinstance(notes, list) else ()


def kept_columns(folder: Path, name: str) -> tuple[Encoding, Encoding]:
    """The columns of nodes and of edges that ``isthmus split`` has turned into features; nothing in a part by hand."""
    about = _silo_toml(folder, name)
    try:
        nodes, edges = (as_columns(about.get(key, ())) for key in ("node_columns", "edge_columns"))
    except (TypeError, KeyError) as error:
        toml = folder / "silo.toml"
        raise IsthmusError(f"{toml} has node_columns or edge_columns that 'isthmus split' has not written.") from error
    return nodes, edges


def _check_within(path: Path, declared: dict[str, Any]) -> None:
    """Raise where keys of one ``[schema]`` contradict each other."""
    names, features = declared.get("feature_names"), declared.get("features")
    distinct(tuple(declared.get("labels", ())), f"{path}: labels")
    if features is not None and features < 1:
        raise IsthmusError(f"{path}: features is {features}; a part has at least one.")
    if names and features is not None and len(names) != features:
        raise IsthmusError(f"{path} declares features = {features} and {len(names)} feature_names; correct one.")
    if declared.get("task") == "tasks" and not declared.get("labels"):
        raise IsthmusError(f'{path} declares task = "tasks" without labels; list the tasks, like labels = ["C2"].')
    if declared.get("task") == "tasks" and declared.get("target") == "edge":
        raise IsthmusError(f'{path} declares task = "tasks" and target = "edge"; yes/no labels are of nodes alone.')


def _silo_toml(folder: Path, name: str) -> dict[str, Any]:
    """The content of a silo's ``silo.toml``; raises if the folder is missing or belongs to another silo."""
    if not folder.is_dir():
        raise IsthmusError(
            f"{folder.parent} has no folder '{name}', which this host is to read; put that silo's part there."
        )
    path = folder / "silo.toml"
    meta = read_toml(path) if path.is_file() else {}
    if str(meta.get("name", name)) != name:
        raise IsthmusError(f"{path} is of '{meta['name']}', but the folder is '{name}'; rename one.")
    return meta


def check_labels(nodes: Sheet, edges: Sheet, tasks: list[str], declared: dict[str, Any]) -> None:
    """Raise where the declared task or target contradicts the columns of labels."""
    toml = nodes.path.parent / "silo.toml"
    refuse_label_columns(nodes, tasks)
    refuse_label_columns(edges)
    if tasks and "label" in nodes.names:
        raise IsthmusError(f"{nodes.path} has a column 'label', but {toml} declares task = \"tasks\"; remove one.")
    target = declared.get("target")
    of = {"node": "label" in nodes.names or bool(tasks), "edge": "label" in edges.names}
    other = {"node": "edge", "edge": "node"}
    if target and not of[target] and of[other[target]]:
        raise IsthmusError(
            f'{toml} declares target = "{target}", but only the {other[target]}s of the part have labels; correct it.'
        )


def check_features(nodes: Sheet, declared: dict[str, Any], width: int, names: tuple[str, ...]) -> None:
    """Raise where the declared number or names of features contradict the columns of the table of nodes."""
    toml = nodes.path.parent / "silo.toml"
    wanted = declared.get("features", width)
    if wanted != width:
        have = f" ({', '.join(names[:8])}{', ...' if len(names) > 8 else ''})" if names else ""
        raise IsthmusError(f"{toml} declares features = {wanted}, but {nodes.path} has {width}{have}; correct one.")
    told = tuple(declared.get("feature_names", ()))
    if told and names and told != names:
        mine, theirs = next(((a, b) for a, b in zip(told, names, strict=False) if a != b), (len(told), len(names)))
        raise IsthmusError(
            f"{toml} declares the feature {mine!r} where {nodes.path} has {theirs!r}; give them one name and order."
        )


def check_ids(sheet: Sheet, columns: tuple[str, ...], declared: dict[str, Any]) -> None:
    """Raise for an id that is no whole number, where ``ids`` are declared to be."""
    if declared.get("ids") != "integer":
        return
    for name in columns:
        text = id_text(sheet, name)
        odd = np.flatnonzero(~compute.match_substring_regex(text, INTEGER).to_numpy())
        if len(odd):
            row = int(odd[0])
            what = f"the id {text[row].as_py()!r} is no whole number, but silo.toml declares integer ids"
            raise sheet.wrong(name, row, what, 'correct it, or declare ids = "text"')
