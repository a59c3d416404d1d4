"""Predictions of a trained model as a table with ids, written as CSV or Parquet by the suffix of the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import writing
from isthmus.graph.graph import TEST, TRAIN, UNUSED
from isthmus.graph.silo import BY_SOURCE, Silo, changed
from isthmus.train.scorers import Scorer, open_scorer
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
    """Predictions for every node (or edge) of this host's silos that was put into a split, in the order of the data.

    Nodes have their id beside them; edges their own id where the data has one, their ends, and their time.
    """
    import pyarrow as pa

    logits, index = _logits(scorer)
    schema = training.federation.schema
    columns = _names(training, scorer, index.numpy())
    if schema.task == "tasks":
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(schema.labels, logits.sigmoid().T, strict=True)}
    else:
        chance = logits.softmax(1)
        columns["prediction"] = pa.array([schema.labels[i] for i in chance.argmax(1).tolist()], pa.string())
        columns |= {f"probability:{n}": p.numpy() for n, p in zip(schema.labels, chance.T, strict=True)}
    return pa.table(columns)


def outgoing(training: Training) -> Any:
    """Predictions for edges of this host's silos that end in another silo, which the target's owner has for itself."""
    federation, stage = training.federation, training.stage
    taught = [_by_source(silo) for silo in federation.silos]
    site = replace(stage.site, layout=replace(stage.layout, federation=replace(federation, silos=taught)))
    return predictions(training, open_scorer("across", site, stage.exchange, stage.passes))


def _by_source(silo: Silo) -> Silo:
    """A silo whose edges to others are scored by the owner of their source, and no others are."""
    m = silo.edge_index.shape[1]
    leaves = silo.edge_index[1] >= silo.n
    arrives = silo.edge_index[0] >= silo.n
    split = torch.where(leaves | arrives, TEST, UNUSED).to(torch.int8)
    return changed(silo, edge_split=split, edge_teacher=torch.full((m,), BY_SOURCE, dtype=torch.int8))


def _names(training: Training, scorer: Scorer, index: np.ndarray) -> dict[str, Any]:
    """What tells scored nodes, or edges, apart: ids, and of edges also ends and times, where the data has these."""
    ids, stack = _row_ids(training, scorer), scorer.layout.stack
    if training.federation.schema.target == "node":
        return {"id": ids[index].tolist()}
    ends = stack.ends.cpu().numpy()[:, index]
    names = {"source": ids[ends[0]].tolist(), "target": ids[ends[1]].tolist()}
    own = _of_edges(training, scorer, "edge_ids")
    times = _of_edges(training, scorer, "edge_time")
    return {
        **({} if own is None else {"id": own[index].tolist()}),
        **names,
        **({} if times is None else {"time": times[index].astype(np.int64)}),
    }


def _of_edges(training: Training, scorer: Scorer, field: str) -> np.ndarray | None:
    """One field of all edges of a stack, in its order; None where a silo does not have it."""
    silos, inner = training.federation.silos, scorer.layout.view == "drop"
    parts = [getattr(silo, field) for silo in silos]
    if not parts or any(part is None for part in parts):
        return None
    kept = [~silo.crosses.numpy() if inner else slice(None) for silo in silos]
    return np.concatenate([np.asarray(part)[k] for part, k in zip(parts, kept, strict=True)])


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
