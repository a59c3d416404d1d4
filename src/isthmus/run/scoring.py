"""What ``isthmus score`` does: predictions of a trained model for new data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.evaluate import predict
from isthmus.graph.graph import TEST
from isthmus.graph.silo import Silo, merge
from isthmus.run.config import merge_into, parse_set, resolve
from isthmus.run.folder import RunFolder
from isthmus.run.host import load_silos, open_run
from isthmus.train import Run
from isthmus.wire.base import LocalWire


def score_command(
    run_folder: str, data: str, sets: tuple[str, ...], out: Path | None, silo: int | None
) -> tuple[Path, int]:
    """Score every node (or edge) of new data with a run's model; labels in the data are not needed."""
    folder = RunFolder.open(run_folder)
    recipe = merge_into(folder.config, {"method": "centralised", "data": {"name": data}})
    for axis in ("exchange", "sync", "objective", "protect"):
        recipe.pop(axis, None)  # a single party predicts: nothing crosses
    trained_on = recipe["data"]
    recipe["data"] = {
        "name": data,
        "scale": trained_on.get("scale", "none"),
        "folder": trained_on.get("folder", ""),
    }
    config = resolve(merge_into(recipe, parse_set(sets)))
    part = _as_seeds(merge(load_silos(config.data, merged=False)), _labels(folder))
    run = open_run(config, LocalWire(1), [part])
    _load(run, folder, silo)
    logits, _, index = predict(run, TEST)
    path = out or folder.path / "predictions.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(_table(run, part, logits, index), path)
    return path, len(index)


def _labels(folder: RunFolder) -> tuple[str, ...]:
    """The labels that the model was trained with, kept beside its weights."""
    return tuple(folder.metrics["labels"])


def _as_seeds(part: Silo, labels: tuple[str, ...]) -> Silo:
    """The same part with every row to be scored: labels of the new data are set aside."""
    from dataclasses import replace

    schema = replace(part.schema, labels=labels)
    wide = (part.n, len(labels)) if schema.task == "tasks" else (part.n,)
    y = torch.zeros(wide, dtype=torch.int64)
    split = torch.full((part.n,), TEST, dtype=torch.int8)
    if len(split):
        split[0] = 1  # a run has at least one training seed; nothing is trained here
    m = part.edge_index.shape[1]
    edge_split = torch.full((m,), TEST, dtype=torch.int8)
    return replace(
        part, schema=schema, y=y, split=split, edge_y=torch.zeros(m, dtype=torch.int64), edge_split=edge_split
    )


def _load(run: Run, folder: RunFolder, silo: int | None) -> None:
    name = "model.safetensors" if silo is None else f"model-silo-{silo}.safetensors"
    if not (folder.path / name).is_file():
        raise IsthmusError(
            f"{folder.path} has no {name}; silos have models of their own only in local and fedper runs."
        )
    stored = load_file(folder.path / name)
    for key, live in run.sets.everything().items():
        if key not in stored or stored[key].shape != live.shape:
            raise IsthmusError(
                f"The model of {folder.path} does not fit this data ({key}); "
                "features and labels must be those it was trained with."
            )
        live.copy_(stored[key])


def _table(run: Run, part: Silo, logits: Tensor, index: Tensor) -> pa.Table:
    columns: dict[str, Any] = {}
    if run.schema.target == "node":
        columns["id"] = part.ids[index.numpy()].tolist()
    else:
        ids, ends = np.asarray(part.ids), run.stack.ends[:, index].numpy()
        columns |= {"source": ids[ends[0]].tolist(), "target": ids[ends[1]].tolist()}
    if run.schema.task == "tasks":
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(run.schema.labels, logits.sigmoid().T, strict=True)}
    else:
        chance = logits.softmax(1)
        columns["prediction"] = [run.schema.labels[i] for i in chance.argmax(1).tolist()]
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(run.schema.labels, chance.T, strict=True)}
    return pa.table(columns)
