"""Writing the parts of silos: one folder for each, in the format that :mod:`isthmus.data.parts` reads."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.files import private, writing
from isthmus.data.members import is_parts
from isthmus.graph.encoding import told_columns
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import SPLIT_NAMES, Schema
from isthmus.graph.silo import Silo

WIDE = 64  # more features than this go into one list column


def write_parts(silos: Sequence[Silo], root: Path, overwrite: bool = False) -> None:
    """Write one folder for each silo, and federation.toml, which lists them.

    Everything is written into a hidden folder first and moved into place at the end.
    """
    with writing(root):
        root.exists()  # refuses names that are longer than any folder's can be
    if root.exists() and not root.is_dir():
        raise IsthmusError(f"'{root}' is a file; choose another --out.")
    if root.exists() and any(root.iterdir()):
        if not overwrite:
            raise IsthmusError(
                f"'{root}' is not empty; choose another --out, or use --overwrite to replace the parts in it."
            )
        if not is_parts(str(root)):
            raise IsthmusError(f"'{root}' holds files but no parts; --overwrite will not delete it.")
    beside = root.absolute().with_name(f".{root.absolute().name}.unfinished")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with writing(root), private():  # a part is its owner's alone
            beside.mkdir(parents=True)
            _write_all(silos, beside)
            shutil.rmtree(root, ignore_errors=True)
            beside.rename(root)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_all(silos: Sequence[Silo], root: Path) -> None:
    names = [silo.name for silo in silos]
    for silo in silos:
        folder = root / silo.name
        folder.mkdir()
        pq.write_table(_node_table(silo), folder / "nodes.parquet")
        pq.write_table(_edge_table(silo, names), folder / "edges.parquet")
        (folder / "silo.toml").write_text(tomli_w.dumps(_about(silo)))
    (root / "federation.toml").write_text(tomli_w.dumps({"silos": names}))


def _about(silo: Silo) -> dict[str, Any]:
    """The content of a silo's silo.toml."""
    notes = {"notes": list(silo.notes)} if silo.notes else {}
    encodings = {"node_columns": silo.node_encoding, "edge_columns": silo.edge_encoding}
    columns = {key: told_columns(columns) for key, columns in encodings.items() if columns}
    return {"name": silo.name, **notes, "schema": _declared(silo), **columns}


def _declared(silo: Silo) -> dict[str, Any]:
    """The ``[schema]`` of a silo's silo.toml."""
    schema = silo.schema
    names = list(_feature_names(schema)) if not isinstance(silo.x, SparseRows) else []
    return {
        "task": schema.task, "target": schema.target, "labels": list(schema.labels),
        "features": schema.features, "feature_names": names,
        "ids": "integer" if np.issubdtype(silo.ids.dtype, np.integer) else "text",
    }  # fmt: skip


def _feature_names(schema: Schema) -> tuple[str, ...]:
    return schema.feature_names or tuple(f"x{i}" for i in range(schema.features))


def _words(values: Tensor, names: Sequence[str]) -> pa.Array:
    """Numbers as the words that they stand for; null for -1."""
    return pa.array([names[v] if v >= 0 else None for v in values.tolist()], pa.string())


def _node_table(silo: Silo) -> pa.Table:
    """The table of a silo's owned nodes: ids, splits, labels and features."""
    columns: dict[str, Any] = {"id": _id_array(silo.ids), "split": _words(silo.split, SPLIT_NAMES)}
    if silo.schema.task == "tasks":
        columns |= {f"label:{t}": silo.y[:, i].numpy() for i, t in enumerate(silo.schema.labels)}
    elif silo.schema.target == "node":
        columns["label"] = _words(silo.y, silo.schema.labels)
    if isinstance(silo.x, SparseRows):
        offsets = pa.array(silo.x.ptr.numpy(), pa.int32())
        columns["x_index"] = pa.ListArray.from_arrays(offsets, silo.x.index.numpy().astype(np.int32))
        columns["x_value"] = pa.ListArray.from_arrays(offsets, silo.x.value.numpy())
    elif silo.schema.features > WIDE:
        columns["x"] = pa.FixedSizeListArray.from_arrays(silo.x.contiguous().reshape(-1).numpy(), silo.schema.features)
    else:
        _add(columns, {name: silo.x[:, i].numpy() for i, name in enumerate(_feature_names(silo.schema))})
    return pa.table(columns)


def _add(columns: dict[str, Any], features: dict[str, Any]) -> None:
    """Add columns of features; raises if one is called like a column that has a meaning of its own."""
    for name in features:
        if name in columns:
            raise IsthmusError(f"A feature is called '{name}', which means something else in a part; rename it.")
    columns |= features


def _edge_table(silo: Silo, names: Sequence[str]) -> pa.Table:
    """The table of all edges that touch a silo's nodes; ``names`` are those of all silos, by number."""
    ids = np.concatenate([silo.ids, silo.halo_ids])
    owner = torch.cat([torch.full((silo.n,), -1), silo.halo_owner])
    columns: dict[str, Any] = {
        "source": _id_array(ids[silo.edge_index[0].numpy()]),
        "target": _id_array(ids[silo.edge_index[1].numpy()]),
        "owner": _words(owner[silo.edge_index].max(0).values, names),
    }
    if silo.edge_ids is not None:
        columns["id"] = _id_array(silo.edge_ids)
    if silo.edge_time is not None:
        columns["time"] = silo.edge_time.numpy()
    if silo.edge_y is not None and silo.edge_split is not None:
        columns |= {
            "label": _words(silo.edge_y, silo.schema.labels),
            "split": _words(silo.edge_split, SPLIT_NAMES),
        }
    if silo.edge_attr is not None:
        edge_names = silo.schema.edge_feature_names or tuple(f"e{i}" for i in range(silo.schema.edge_features))
        _add(columns, {name: silo.edge_attr[:, i].numpy() for i, name in enumerate(edge_names)})
    return pa.table(columns)


def _id_array(ids: np.ndarray) -> pa.Array:
    return pa.array(ids, pa.int64()) if np.issubdtype(ids.dtype, np.integer) else pa.array(ids.tolist(), pa.string())
