"""Predictions of a trained model as a table with ids, written as CSV or Parquet by the suffix of the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import writing
from isthmus.graph.graph import TEST, TRAIN
from isthmus.train.scorers import Scorer
from isthmus.train.training import Training

SUFFIXES = (".csv", ".parquet")


def check_suffix(path: Path) -> None:
    """Refuse a file whose suffix names no format of predictions."""
    if path.suffix.lower() not in SUFFIXES:
        raise unknown("format of --out", path.suffix or path.name, SUFFIXES)


def write_table(table: Any, path: Path) -> None:
    """Write an Arrow table in the format that the suffix names."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        (pc.write_csv if path.suffix.lower() == ".csv" else pq.write_table)(table, path)


def predictions(training: Training, scorer: Scorer) -> Any:
    """Predictions for every node (or edge) of this host's silos that was put into a split, in the order of the data."""
    import pyarrow as pa

    logits, index = _logits(scorer)
    ids, schema, stack = _row_ids(training, scorer), training.federation.schema, scorer.layout.stack
    columns: dict[str, Any] = {}
    if schema.target == "node":
        columns["id"] = ids[index.numpy()].tolist()
    else:
        ends = stack.ends.cpu()[:, index].numpy()
        columns |= {"source": ids[ends[0]].tolist(), "target": ids[ends[1]].tolist()}
    if schema.task == "tasks":
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(schema.labels, logits.sigmoid().T, strict=True)}
    else:
        chance = logits.softmax(1)
        columns["prediction"] = [schema.labels[i] for i in chance.argmax(1).tolist()]
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(schema.labels, chance.T, strict=True)}
    return pa.table(columns)


def _logits(scorer: Scorer) -> tuple[Tensor, Tensor]:
    """Logits and stack row (or edge number) of every node (or edge), in the order of the data."""
    parts = [scorer.logits(split) for split in (TRAIN, TEST)]
    logits, index = torch.cat([part[0] for part in parts]), torch.cat([part[2] for part in parts])
    order = torch.argsort(index)
    return logits[order].cpu(), index[order].cpu()


def _row_ids(training: Training, scorer: Scorer) -> np.ndarray:
    """The public id of every row of a stack: of each silo the owned nodes, then its far ends where it keeps them."""
    ptr = scorer.layout.stack.ptr
    each = [
        np.concatenate([np.asarray(silo.ids, dtype=object), np.asarray(silo.halo_ids, dtype=object)])[: b - a]
        for silo, a, b in zip(training.federation.silos, ptr[:-1], ptr[1:], strict=True)
    ]
    found: np.ndarray = np.concatenate([*each, np.zeros(0, dtype=object)])
    return found


def refuse_nothing(rows: int, data: str, target: str) -> None:
    """Raise where data has nothing to score."""
    if not rows:
        raise IsthmusError(f"{data} has no {target}s, so there is nothing to score.")
