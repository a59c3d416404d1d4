"""AMLSim's published samples: simulated bank transfers with planted money laundering.

A node is an account with its opening balance, an edge a transfer with amount and day. Accounts that took part in
laundering have the label "fraud". The step at which they did belongs to the label and is never a feature.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from isthmus.core.errors import IsthmusError
from isthmus.core.random import keys_of
from isthmus.data.columns import numbers, times
from isthmus.data.missing import missing_data_set
from isthmus.data.other_layouts import AMLSIM_FILES
from isthmus.data.split import random_split
from isthmus.data.tables import read_file
from isthmus.graph.graph import Graph, Schema

SAMPLES = {"amlsim": "20K_fanin200cycle200", "amlsim-fanin": "20K_fanin200"}
BANKS = 10  # the samples name no banks; accounts are dealt out by their last digit


def amlsim(name: str, folder: str | None = None, seed: int = 0, path: str = "") -> Graph:
    """The graph of one sample, split 60/20/20 at random; amounts are logarithms, because they span magnitudes.

    ``path`` is a folder with tables of AMLSim's layout that are to be read instead of the sample.
    """
    place = find_sample(name, folder, path)
    nodes, edges = (read_file(place / file) for file in AMLSIM_FILES)
    ids = times(nodes, "nodeid").numpy()
    ends = torch.stack([times(edges, "sourceNodeId"), times(edges, "targetNodeId")])
    return Graph(
        ids=ids,
        x=torch.from_numpy(np.log1p(numbers(nodes, "init_balance"))[:, None]),
        edge_index=_rows(ends, ids, place),
        schema=Schema(
            features=1,
            labels=("normal", "fraud"),
            edge_features=1,
            timed=True,
            feature_names=("log_balance",),
            edge_feature_names=("log_amount",),
        ),
        y=times(nodes, "isFraud"),
        split=random_split(keys_of(ids), seed),
        edge_attr=torch.from_numpy(np.log1p(numbers(edges, "value"))[:, None]),
        edge_time=times(edges, "time"),
        columns={"bank": ids % BANKS},
        name=name,
    ).check()


def find_sample(name: str, folder: str | None = None, path: str = "") -> Path:
    """The folder of a sample's two tables, or ``path`` where one is given; raises where a table is missing."""
    place = Path(path) if path else Path(folder or ".") / "AMLSim" / SAMPLES[name]
    for file in AMLSIM_FILES:
        if not (place / file).is_file():
            if path:
                raise IsthmusError(
                    f"There is no file {place / file}; data.path of {name} is a folder with both tables."
                )
            raise missing_data_set(name, place / file, "it cannot be downloaded")
    return place


def _rows(ends: torch.Tensor, ids: np.ndarray, place: Path) -> torch.Tensor:
    """The rows of nodes that account numbers [2, m] stand for; raises for an unknown account."""
    by_id = np.argsort(ids)
    rows = by_id[np.searchsorted(ids, ends.numpy(), sorter=by_id).clip(max=len(ids) - 1)]
    if (ids[rows] != ends.numpy()).any():
        raise IsthmusError(f"{place} has transfers of accounts that nodes.csv does not list; fetch the files again.")
    return torch.from_numpy(rows)
