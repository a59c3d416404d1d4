"""Ceydeli 2026, layer-wise exchange: reference points, ten methods on two splits, and what cross edges are worth.

The protocol is that of the paper's own runs: every silo draws its own batches (``train.batches=local``), cross edges
are kept with a placeholder at the far end, port tables are private and start from each silo's own values, every sampled
row is computed at every layer, and scores are plain means over silos. One thing differs, and every page says so: a silo
draws 8 seeds a step, not 32, for a quarter of the epochs, which makes about as many steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from statistics import fmean
from typing import Any

from isthmus.data.patterns import STRUCTURAL, TASKS
from isthmus.runs.recipe import merge_into
from isthmus.studies.constant import constant_predictor
from isthmus.studies.study import (
    BOTH_WAYS,
    FOOTING,
    Study,
    StudyColumn,
    StudyRow,
    Value,
    footing_columns,
    mean_column,
    score_column,
)
from isthmus.studies.tables import line_values, read_table

PAPER = "Ceydeli 2026"
MACRO = "macro"
MEASURE = "PR-AUC of the rarer class, %"
PLACEHOLDER: dict[str, Any] = {"exchange": {"halo": "placeholder"}}
PORTS_AT_HOME: dict[str, Any] = {"sync": {"private": ["encoder"]}}
TOGETHER: dict[str, Any] = {"train": {"batches": "joint", "start": "same", "trim": True, "batch": 32}}
TRAINING: dict[str, Any] = {
    "model": {"name": "multi-pna", "layers": 6, "hidden": 64, "dropout": 0.1},
    "train": {
        "epochs": 25,
        "batch": 8,
        "fanout": [10, 10, 10, 10, 5, 5],
        "lr": 1e-3,
        "weight_decay": 1e-4,
        "batches": "local",
        "start": "own",
        "trim": False,
        "average": "silos",
        "pooled": True,
    },
}
DATA: dict[str, Any] = {"name": "patterns", "nodes": 8192}
SPLITS: dict[str, dict[str, Any]] = {
    "louvain": {"split": "louvain", "resolution": 3.0},
    "metis": {"split": "metis", "communities": 256},
}
# The neighbourhood of a seed holds about a fifth of its silo's 546 nodes (Louvain). With 32 seeds it therefore holds
# the ego ids of seven others, and models memorise training nodes before they learn to tell the ids apart.
FEWER_SEEDS = (
    "Each silo draws 8 seeds a step for 25 epochs. The paper's 32 seeds and 100 epochs are about as many steps, but "
    "the ego ids of so many seeds crowd a silo. For its numbers: --epochs 100 --set train.batch=32."
)
KEPT = {"without": "drop", "with": "placeholder"}
METHODS: dict[str, dict[str, Any]] = {
    "Fully Local": {"method": "local", **PLACEHOLDER},
    "FedAvg": {"method": "fedavg", **PLACEHOLDER, **PORTS_AT_HOME},
    "Sync-SGD": {"method": "sync-sgd", **PLACEHOLDER},
    "OptimES": {"method": "optimes", **PORTS_AT_HOME},
    "Fully Local + Fwd-LE": {"method": "local+fwd-le"},
    "FedAvg + Fwd-LE": {"method": "fedavg+fwd-le", **PORTS_AT_HOME},
    "Sync-SGD + Fwd-LE": {"method": "sync-sgd+fwd-le"},
    "Fully Local + Fwd/Bwd-LE": {"method": "local+fwd-bwd-le"},
    "FedAvg + Fwd/Bwd-LE": {"method": "fedavg+fwd-bwd-le", **PORTS_AT_HOME},
    "Sync-SGD + Fwd/Bwd-LE": {"method": "sync-sgd+fwd-bwd-le"},
}
OURS = (
    StudyRow("Sync-SGD + Fwd/Bwd-LE, joint batches", {"method": "sync-sgd+fwd-bwd-le", **TOGETHER}),
    StudyRow("Centralised, same heads", {"method": "centralised", **TOGETHER}),
)


ALIKE = footing_columns(MACRO, "macro_pr_auc")
BESIDE = tuple(column.label for column in ALIKE)


def task_columns(tasks: Sequence[str], footing: bool = False) -> tuple[StudyColumn, ...]:
    """A column for the PR-AUC of each task, and one for their mean.

    With ``footing`` also those in which all rows are scored alike, and what crossed for it.
    """
    each = [score_column(task, f"pr_auc/{task}") for task in tasks]
    return (*each, *(ALIKE if footing else ()), mean_column(MACRO, each))


def layerwise_recipe(data: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe that all rows of a study share."""
    return {**TRAINING, "data": {**DATA, **data}}


def ten_rows(split: str, title: str, table: str, number: str) -> Study:
    """The study of the paper's ten methods on one split, with two rows of ours."""
    paper = {line["method"]: line_values(line, (*STRUCTURAL, MACRO)) for line in read_table(table)}
    rows = tuple(StudyRow(label, overrides, paper[label]) for label, overrides in METHODS.items())
    columns = task_columns(STRUCTURAL, footing=True)
    return Study(
        name=f"layerwise-{split}",
        title=f"Ten methods on pattern graphs, {title} split",
        summary=f"ten methods with and without layer-wise exchange, {title} split (Table {number})",
        source=f"{PAPER}, Table {number}",
        measure=MEASURE,
        columns=columns,
        rows=(*rows, *OURS),
        base={**layerwise_recipe({**SPLITS[split], "silos": 15}), "score": BOTH_WAYS},
        silos=15,
        notes=(FEWER_SEEDS, FOOTING),
        beside=BESIDE,
    )


def reference() -> Study:
    """The study of the upper and the lower reference point, centralised training and a constant, without silos."""
    paper = {line["method"]: line_values(line, (*STRUCTURAL, MACRO)) for line in read_table("layerwise_reference")}
    top, floor = "Centralized Multi-PNA", "Always-Positive"
    return Study(
        name="layerwise-reference",
        title="Reference points on pattern graphs: centralised, and a constant",
        summary="centralised training, and the constant predictor (Table 7.1)",
        source=f"{PAPER}, Table 7.1",
        measure=MEASURE,
        columns=task_columns(STRUCTURAL),
        rows=(
            StudyRow(top, {"method": "centralised", **TOGETHER}, paper[top]),
            StudyRow(floor, {"method": "centralised", **TOGETHER}, paper[floor], constant_predictor),
        ),
        base=layerwise_recipe({"silos": 1, "split": "random", "tasks": list(TASKS)}),
        notes=(
            "Trained with eleven heads, as in the paper; the mean is over the seven structural tasks.",
            "25 epochs; the paper has 100.",
        ),
    )


def cross_edges() -> Study:
    """The study of silos that train alone, with cross edges kept (a placeholder at the far end) or dropped."""
    rows = []
    for line in read_table("layerwise_local_cross_edges"):
        data = {**SPLITS[line["split"]], "silos": int(line["k"])}
        overrides = {"method": "local", "data": data, "exchange": {"halo": KEPT[line["cross_client_edges"]]}}
        label = f"{line['split']} k={line['k']} {line['cross_client_edges']}"
        rows.append(StudyRow(label, overrides, line_values(line, (*STRUCTURAL, MACRO))))
    return Study(
        name="layerwise-cross-edges",
        title="Each silo alone, with and without its cross edges",
        summary="each silo alone, cross edges kept or dropped, 3 to 15 silos (Table A.1)",
        source=f"{PAPER}, Table A.1",
        measure=MEASURE,
        columns=task_columns(STRUCTURAL),
        rows=tuple(rows),
        base=layerwise_recipe({}),
        notes=(FEWER_SEEDS,),
    )


# The small form: three layers, the two tasks that three hops can solve, and enough steps for shared gradients to learn
# them. A joint batch needs as many seeds as the small batches of several silos have together.
FEW_TASKS = ("C2", "C3")
QUICK: dict[str, Any] = {
    "data": {"nodes": 4096, "tasks": list(FEW_TASKS)},
    "model": {"layers": 3, "hidden": 32},
    "train": {"epochs": 4, "fanout": [10], "lr": 5e-3, "start": "same", "trim": True},
}


def with_quick(study: Study, changes: Mapping[str, Any], labels: Sequence[str] = ()) -> Study:
    """The study with a small form of itself as ``quick``, in which the paper's mean is over the remaining tasks."""
    base = merge_into(merge_into(deepcopy(dict(study.base)), deepcopy(QUICK)), changes)
    rows = [_quick_row(row) for row in study.rows if row.label in labels or not labels]
    note = (
        "Quick: small graphs, fewer silos, three layers, two tasks, few epochs. Look at the order of groups of rows, "
        "not at the values. The paper's mean is over the same two tasks."
    )
    small = replace(
        study, base=base, rows=tuple(rows), columns=task_columns(FEW_TASKS, bool(study.beside)), seeds=1, notes=(note,)
    )
    return replace(study, quick=small)


def _quick_row(row: StudyRow) -> StudyRow:
    """A row of the small form: the paper's values of the remaining tasks, and their mean."""
    if not row.paper:
        return row
    each = {task: row.paper[task] for task in FEW_TASKS}
    return replace(row, paper={**each, MACRO: Value(fmean(v.mean for v in each.values()))})


STUDIES = (
    with_quick(reference(), {}),
    with_quick(ten_rows("louvain", "Louvain", "layerwise_louvain_k15", "7.2"), {"data": {"silos": 8}}),
    with_quick(ten_rows("metis", "METIS", "layerwise_metis_k15", "7.3"), {"data": {"silos": 8}}),
    with_quick(cross_edges(), {}, [f"{split} k={k} {kept}" for split in SPLITS for k in (3, 15) for kept in KEPT]),
)
