"""Swift-FedGNN: validation scores of five methods against what they send, on graphs split between 10 or 20 silos.

Of the paper's graphs only CiteSeer is used; others, up to a block model of a million nodes, stand in for the rest.
Every target follows from one rule: the score that FedGNN-G reached with seed 0, minus one point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from isthmus.studies.ce_fedgnn import merged
from isthmus.studies.study import BOTH_WAYS, Metrics, Reader, Study, StudyColumn, StudyRow, Value, footing_columns
from isthmus.studies.swift_plots import network_seconds, prices
from isthmus.studies.tables import read_table

PAPER = "Swift-FedGNN (OpenReview QXwtkVI8Yr)"
VALID, TRAFFIC, EXCHANGED, TIME = "validation", "MB to target", "of these exchanged", "s to target"
CROSSING = "MB a crossing"
MEASURE = "best validation accuracy, %"
SCORED: dict[str, Any] = {"score": BOTH_WAYS}
ALIKE = footing_columns("test", "accuracy")
METHODS = {
    "Swift-FedGNN": "swift-fedgnn",
    "FedGNN-G": "fedgnn-g",
    "LLCG": "llcg-every-step",
    "FedGNN-PNS": "fedgnn-pns",
    "FedSage": "fedsage",
}


@dataclass(frozen=True)
class SwiftGraph:
    """The settings of a study on one graph: data, split, length of training, and the target score in per cent."""

    title: str
    data: Mapping[str, Any]
    target: float
    steps: int = 400
    every: int = 10
    silos: int = 10
    evaluate_every: int = 2
    seeds: int = 3
    lr: float = 0.001
    model: str = "sage"
    paper: str = ""  # the column of the paper's tables
    notes: tuple[str, ...] = field(default=())


CITESEER = (
    "The paper's learning rate on CiteSeer is 0.00001; with 0.001 the same curves take a hundredth of the steps, "
)
CITESEER += "and so of the traffic: compare ratios."
GRAPHS = {
    "citeseer": SwiftGraph("CiteSeer", {"name": "citeseer"}, 67.4, every=5, paper="citeseer", notes=(CITESEER,)),
    "citeseer-gin": SwiftGraph(
        "CiteSeer, with GIN", {"name": "citeseer"}, 64.2, every=5, model="gin", paper="citeseer", notes=(CITESEER,)
    ),
    "citeseer-random": SwiftGraph("CiteSeer, random split", {"name": "citeseer", "split": "random"}, 69.6, every=5),
    "cora": SwiftGraph("Cora", {"name": "cora"}, 78.2),
    "pubmed": SwiftGraph("PubMed", {"name": "pubmed", "masks": "random"}, 88.8, evaluate_every=1),
    "cs": SwiftGraph("Coauthor CS", {"name": "coauthor-cs"}, 93.9, evaluate_every=1),
    "wordnet": SwiftGraph("WordNet", {"name": "wordnet"}, 71.9, evaluate_every=1),
    "blocks": SwiftGraph(
        "a block model of a million nodes",
        {"name": "blocks", "nodes": 1_000_000, "degree": 8.0, "train": 0.05},
        91.4,
        steps=300,
        silos=20,
        evaluate_every=1,
        seeds=1,
    ),
}
NOTES = (
    "Validation scores all rows alike, with neighbours from across the boundary; test scores are given along own edges "
    "and across, each with the parameters that its own validation selects. Traffic to the target is that of training "
    "alone, gradients included; exchanged is what is left of it without them.",
    "The model has a linear map before the first layer, so that no raw features cross but LLCG's to its server. The "
    "paper has none: its rows at the first layer are as wide as the features.",
    "FedGNN-PNS: intervals of 10 to 20 steps, each nine tenths of the one before. LLCG: a correction on 256 seeds with "
    "all their neighbours, at the steps at which Swift-FedGNN crosses. The paper does not give either.",
    "Seconds are emulated: computing as measured, validations included, all silos one after the other, and links of "
    "1 Gbit/s.",
)


def _valid(metrics: Metrics) -> float | None:
    """The best validation score of a run, in per cent."""
    value = (metrics.get("valid") or {}).get(metrics["metric"])
    return None if value is None else 100.0 * float(value)


def _crossing(metrics: Metrics) -> float | None:
    """Megabytes that crossed at a step with a crossing; None for methods that never cross, such as FedSage."""
    size = metrics.get("bytes_per_crossing")
    return None if size is None else float(size) / 1e6


def reached(metrics: Metrics, target: float) -> int | None:
    """The place in the curve of the first validation that reached the target (in per cent); None if none did."""
    scores = metrics["curve"]["valid"]
    return next((i for i, score in enumerate(scores) if score is not None and 100 * score >= target), None)


def target_columns(target: float) -> tuple[StudyColumn, ...]:
    """The columns of a study: validation score, traffic at a crossing, and traffic and time to the target."""

    def megabytes(name: str) -> Reader:
        def read(metrics: Metrics) -> float | None:
            at = reached(metrics, target)
            return None if at is None else float(metrics["curve"][name][at]) / 1e6

        return read

    def seconds(metrics: Metrics) -> float | None:
        at = reached(metrics, target)
        return None if at is None else network_seconds(metrics)[at]

    return (
        StudyColumn(CROSSING, _crossing),
        StudyColumn(TRAFFIC, megabytes("bytes")),
        StudyColumn(EXCHANGED, megabytes("exchanged")),
        StudyColumn(TIME, seconds),
        *ALIKE,
        StudyColumn(VALID, _valid),
    )


def swift_values(column: str, model: str) -> dict[str, dict[str, Value]]:
    """The paper's values by method and column, for one of its data sets; traffic only with GraphSAGE."""
    score = {line["method"]: float(line[column]) for line in read_table(f"swift_validation_accuracy_{model}")}
    sent = read_table("swift_total_comm_gb_to_target") if model == "sage" else []
    traffic = {line["method"]: 1e3 * float(line[column]) for line in sent}
    found = {method: {VALID: Value(value)} for method, value in score.items()}
    return {method: told | ({TRAFFIC: Value(traffic[method])} if method in traffic else {})
            for method, told in found.items()}  # fmt: skip


def swift_recipe(graph: SwiftGraph) -> dict[str, Any]:
    """The recipe that all rows of a study share."""
    made = graph.data["name"] == "blocks"
    return {
        "data": {"split": "metis", "silos": graph.silos, "scale": "none" if made else "rows", **graph.data},
        "model": {"name": graph.model, "layers": 2, "hidden": 256, "dropout": 0.5},
        "train": {
            "steps": graph.steps,
            "batch": 256,
            "fanout": [15, 10],
            "lr": graph.lr,
            "evaluate_every": graph.evaluate_every,
            "checkpoint_every": 10 * graph.evaluate_every,
        },
    }


def schedules(every: int) -> dict[str, dict[str, Any]]:
    """Settings of the methods whose interval the study chooses: crossings of Swift-FedGNN, corrections of LLCG."""
    return {"swift-fedgnn": {"schedule": {"every": every}}, "llcg-every-step": {"sync": {"every": every}}}


def swift_study(name: str, graph: SwiftGraph) -> Study:
    """The study of five methods on one graph."""
    paper = swift_values(graph.paper, graph.model) if graph.paper else {}
    rows = tuple(
        StudyRow(
            label, merged({"method": method}, SCORED, schedules(graph.every).get(method, {})), paper.get(label, {})
        )
        for label, method in METHODS.items()
    )
    fixed = f"The target is {graph.target:g} %: FedGNN-G's with seed 0, minus one point."
    made = Study(
        name=f"swift-{name}",
        title=f"Crossing the boundary now and then, on {graph.title}",
        summary=f"Swift-FedGNN, FedGNN-G, LLCG, PNS and FedSage on {graph.title}: score against traffic and time",
        source=f"{PAPER}, Tables 1 to 4",
        measure=MEASURE,
        columns=target_columns(graph.target),
        rows=rows,
        base=swift_recipe(graph),
        silos=graph.silos,
        seeds=graph.seeds,
        close=0.5,
        notes=(fixed, *graph.notes, *NOTES),
        figure=prices,
        beside=(CROSSING, TRAFFIC, EXCHANGED, TIME, *(column.label for column in ALIKE)),
    )
    return replace(made, quick=quick(made))


SMALL: dict[str, Any] = {
    "data": {"name": "blocks", "nodes": 1200, "classes": 4, "degree": 6.0, "train": 0.2, "silos": 4, "split": "metis"},
    "model": {"hidden": 32},
    "train": {"steps": 60, "batch": 32, "lr": 0.01, "evaluate_every": 4, "checkpoint_every": 40},
}
SMALL_NOTE = "Quick: a block graph of 1,200 nodes, 60 steps, one seed; there is nothing of the paper to compare with."


def quick(study: Study) -> Study:
    """The small form of a study: its rows on a block graph of 1,200 nodes."""
    rows = tuple(replace(row, paper={}) for row in study.rows)
    base = merged({key: value for key, value in study.base.items() if key != "data"}, SMALL)
    title = f"{study.title} (quick: a block graph)"
    small = replace(
        study, title=title, base=base, rows=rows, silos=4, seeds=1, notes=(SMALL_NOTE, "The target is 60 %.")
    )
    return replace(small, columns=target_columns(60.0))


STUDIES = tuple(swift_study(name, graph) for name, graph in GRAPHS.items())
