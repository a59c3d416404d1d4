"""Guo et al. 2024, HiFGL: by the number of layers, their width and the number of silos; and what fixed point does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.studies.ce_fedgnn import merged
from isthmus.studies.hifgl import BASE, COLUMNS, HIFGL, MEASURE, NOTES, PAPER, TABLE_3, TRAINED, with_small
from isthmus.studies.study import Metrics, Study, StudyColumn, StudyRow, Value
from isthmus.studies.tables import read_table

LAYERS = (1, 2, 4, 8, 16)
WIDTHS = (4, 8, 16, 32, 64, 128)
SILOS = (1, 2, 5, 10, 20, 50)
SECONDS = "s an epoch"
GCN: dict[str, Any] = merged(HIFGL, {"model": {"name": "gcn"}})
FEDERATED: dict[str, dict[str, Any]] = {
    "HiFGL": HIFGL,
    "HiFGL, common steps": merged(HIFGL, {"sync": "sync-sgd"}),
    "FedAvg": TABLE_3["FedAvg"],
}
COST_NOTE = (
    "Seconds are those of an epoch on this machine, with a validation in three ways after every second one; the "
    "paper's are of a V100. Memory, which the paper has at 3.4 to 3.8 GB, is measured by benchmarks/hifgl.py."
)
SILOS_NOTE = (
    "The paper shows this as a figure, with GraphSAGE. Every number of silos is compared with one silo of the same "
    "method, seed by seed; one silo has all nodes of the graph, but in HiFGL not their rows. Common steps: the sum of "
    "gradients at every step in the place of means of models, which more silos change by rounding alone."
)
EXACT_NOTE = (
    "Plain: devices add up rows as they are, so that neighbours read them; fixed point: as whole numbers; shares: as "
    "whole numbers that nobody reads. All three have the same splits, initial values and draws."
)


def epoch_seconds(metrics: Metrics) -> float | None:
    """Seconds of an epoch, with its share of validations."""
    seconds = metrics["seconds_by_epoch"]
    return sum(seconds) / len(seconds) if seconds else None


def part_study(
    name: str, title: str, source: str, rows: Sequence[StudyRow], data: str, *notes: str, **others: Any
) -> Study:
    """A study of parts of HiFGL on the graph ``data``, with seconds beside scores."""
    columns = (StudyColumn(SECONDS, epoch_seconds), *COLUMNS)
    made: dict[str, Any] = {"seeds": 3, "vary_data": True, "axes": tuple(rows[0].at), "columns": columns}
    study = Study(
        name=f"hifgl-{name}",
        title=f"HiFGL: {title}",
        summary=f"HiFGL: {title} ({source})",
        source=f"{PAPER}, {source}",
        measure=MEASURE,
        rows=tuple(rows),
        base=merged(BASE, {"data": {"name": data}}),
        notes=(*NOTES, *notes),
        **made | others,
    )
    return with_small(study)


def _costs(what: str) -> dict[str, Mapping[str, Value]]:
    """The paper's accuracies and seconds an epoch, by the number of layers or their width."""
    lines = [line for line in read_table("hifgl_cost") if line["what"] == what]
    return {
        line["value"]: {
            TRAINED: Value(float(line["accuracy_pct"])),
            SECONDS: Value(float(line["epoch_seconds"])),
        }
        for line in lines
    }


def sweep(name: str, axis: str, key: str, values: Sequence[int], data: str, table: str, against: str) -> Study:
    """The study of one setting of the model on one graph."""
    graph = {"citeseer": "CiteSeer", "pubmed": "PubMed"}[data]
    paper = _costs(f"{axis} ({graph})")
    rows = [
        StudyRow(f"{axis} {value}", merged(GCN, {"model": {key: value}}), paper[str(value)], at={axis: str(value)})
        for value in values
    ]
    title = f"accuracy and seconds by {name}, on {graph}"
    return part_study(name, title, table, rows, data, COST_NOTE, against=against)


def silos() -> Study:
    """The study of accuracy and seconds by the number of silos, of HiFGL and of FedAvg."""
    rows = [
        StudyRow(
            f"{label} / M = {count}",
            merged(settings, {"model": {"name": "sage"}, "data": {"silos": count}}),
            at={"method": label, "silos": f"M = {count}"},
        )
        for label, settings in FEDERATED.items()
        for count in SILOS
    ]
    title = "accuracy and seconds by the number of silos, on Cora"
    return part_study("silos", title, "Figure 5", rows, "cora", SILOS_NOTE, against=f"M = {SILOS[0]}")


def exactness() -> Study:
    """The study of plain sums beside fixed point and shares, on Cora."""
    chains = {"plain": "masks", "fixed point": "fixed-point,masks", "shares": "fixed-point,shares,masks"}
    rows = [StudyRow(name, merged(GCN, {"protect": chain}), at={"rows": name}) for name, chain in chains.items()]
    title = "plain sums, fixed point and shares, on Cora"
    return part_study("fixed-point", title, "Section 4.2", rows, "cora", EXACT_NOTE, against="plain", seeds=10)


STUDIES = (
    sweep("layers", "layers", "layers", LAYERS, "citeseer", "Table 5", "2"),
    sweep("width", "hidden", "hidden", WIDTHS, "pubmed", "Table 6", "64"),
    silos(),
    exactness(),
)
