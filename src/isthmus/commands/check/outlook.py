"""What a run would do with data: columns and what becomes of them, labels of each silo, scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from isthmus.federation.federation import Federation
from isthmus.graph.encoding import EMPTY, NUMBER, WORDS, Encoding, TableColumn, feature_names, plain_columns
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID
from isthmus.graph.silo import BY_SOURCE, Silo

SPLITS = (TRAIN, VALID, TEST)


def columns_of(silos: Sequence[Silo], federation: Federation | None) -> list[dict[str, Any]]:
    """Every column of nodes and edges: its kind, its features, missing cells by silo, and why it is not used."""
    found: list[dict[str, Any]] = []
    for table, encoding, names, features in (
        ("nodes", "node_encoding", "feature_names", "x"),
        ("edges", "edge_encoding", "edge_feature_names", "edge_attr"),
    ):
        agreed = federation.silos if federation is not None and federation.silos else silos
        columns: Encoding = next((getattr(s, encoding) for s in agreed if getattr(s, encoding)), ())
        for column in columns or plain_columns(getattr(silos[0].schema, names), 1):
            gaps = {silo.name: _gaps(silo, encoding, features, column.name) for silo in silos}
            found.append(
                {
                    "table": table,
                    "column": column.name,
                    "kind": column.kind,
                    "features": list(column.features),
                    "missing": {name: count for name, count in gaps.items() if count},
                    "what": _what(column),
                    "why": column.why,
                }
            )
    return found


def _what(column: TableColumn) -> str:
    """What becomes of a column, in words."""
    marked = ", gaps filled and marked" if column.gaps else ""
    words = f"{len(column.features) - column.gaps} features, one a word"
    named = {NUMBER: "a feature", WORDS: words, EMPTY: "nothing, it is empty"}
    if column.constant:
        return "a feature, unless all cells of all silos are alike, as they are here"
    return named.get(column.kind, "no feature") + marked


def _gaps(silo: Silo, encoding: str, features: str, column: str) -> int:
    """How many cells of a column a silo lacks."""
    columns, x = getattr(silo, encoding), getattr(silo, features)
    names = feature_names(columns)
    marked = f"{column} missing"
    if marked not in names or not isinstance(x, torch.Tensor):
        return 0
    return int(x[:, names.index(marked)].sum())


def labels_of(silo: Silo, labels: Sequence[str]) -> dict[str, Any]:
    """Labels of a silo by class and split, its base rate (of the rarer of two classes), and its edges."""
    at_edges = silo.schema.target == "edge"
    y, split = (silo.edge_y, silo.edge_split) if at_edges else (silo.y, silo.split)
    assert y is not None and split is not None
    mine = torch.ones(len(split), dtype=torch.bool)
    if at_edges and silo.edge_teacher is not None:  # else as the table has them, with edges that another silo teaches
        end = torch.where(silo.edge_teacher == BY_SOURCE, silo.edge_index[0], silo.edge_index[1])
        mine = end < silo.n
    known = (y >= 0 if y.dim() == 1 else (y >= 0).any(1)) & mine
    crosses = int(silo.crosses.sum())
    found: dict[str, Any] = {
        "silo": silo.name,
        "nodes": silo.n,
        "edges": {"inner": silo.edge_index.shape[1] - crosses, "cross": crosses},
        "labelled": int(known.sum()),
        "unlabelled": int((~known & mine).sum()),
        "splits": {SPLIT_NAMES[each]: int((known & (split == each)).sum()) for each in SPLITS},
    }
    if y.dim() == 1:
        counts = {name: int((y[known] == place).sum()) for place, name in enumerate(labels)}
        found["classes"] = counts
        if len(counts) == 2 and found["labelled"]:
            found["base_rate"] = min(counts.values()) / found["labelled"]
    return found


def rare_class(each: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> str:
    """The rarer one of two classes over all silos; empty where there are not two."""
    if len(labels) != 2:
        return ""
    sums = {name: sum(silo.get("classes", {}).get(name, 0) for silo in each) for name in labels}
    return min(sums, key=lambda name: sums[name])


def scaling_of(federation: Federation) -> dict[str, dict[str, str]]:
    """How features of nodes and edges would be scaled (data.scale), and why."""
    names = {"x": "nodes", "edge_attr": "edges"}
    return {names[key]: {"how": each.how, "why": each.why} for key, each in federation.scaling.items()}
