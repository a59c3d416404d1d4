"""Guo et al. 2024, HiFGL, Tables 3 and 4: every node a device, beside silos alone, FedAvg and its kin, and one owner.

All rows have the paper's training, full batches, and are scored in three ways: as they were trained, which is what the
paper compares, along silos' own edges, and on the merged graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from isthmus.studies.ce_fedgnn import merged
from isthmus.studies.study import Study, StudyColumn, StudyRow, Value, score_column, training_megabytes
from isthmus.studies.tables import line_values, read_table

PAPER = "Guo et al. 2024"
MEASURE = "test accuracy over all test nodes, %"
EPOCHS = 50
OWN, WHOLE, TRAINED = "own edges", "global graph", "as trained"
SCORES = (
    score_column(OWN, "accuracy", way="own"),
    score_column(WHOLE, "accuracy", way="global"),
    score_column(TRAINED, "accuracy", way="trained"),
)
COLUMNS = (StudyColumn("MB, training", training_megabytes), *SCORES)
GRAPHS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
MODELS = {"GCN": "gcn", "GraphSage": "sage"}
GENERATE = 20  # epochs of FedSage+'s generators before; the paper's own number is not told
FEDSAGE: dict[str, Any] = {
    "method": "fedsage+",
    "train": {"epochs": GENERATE + EPOCHS},
    "phase": {"generate": {"epochs": GENERATE}},
}
# Own edges alone cannot be scored: there silos would read rows and edges of their devices.
HIFGL: dict[str, Any] = {"method": "hifgl", "score": "trained,global"}
TABLE_3: dict[str, dict[str, Any]] = {
    "Local-MLP": {"method": "local-mlp"},
    "Local": {"method": "local"},
    "FedAvg": {"method": "fedavg"},
    "HiFGL": HIFGL,
    "Global": {"method": "centralised"},
}
BASE: dict[str, Any] = {
    "score": "trained,own,global",
    "data": {"silos": 5, "split": "random", "masks": "random"},
    "model": {"layers": 2, "hidden": 64},
    "train": {
        "epochs": EPOCHS,
        "lr": 0.01,
        "decay": 0.9,
        "decay_every": 4,
        "evaluate_every": 2,
        "checkpoint_every": EPOCHS,
    },
}
NOTES = (
    "Settings are the paper's: 5 silos of equal size at random, two layers, 64 wide, full batches, 50 epochs of Adam "
    "with a learning rate of 0.01 that is multiplied by 0.9 after every 4 of them. Masks are 60/20/20. Dropout and "
    "weight decay, which the paper does not tell, are the defaults. A seed decides the split, the masks, initial "
    "values and draws.",
    "As trained: HiFGL and Global read all neighbours, all other rows those in the same silo, as in the paper. Global "
    "graph: the same parameters with all neighbours: what is left there between two rows is training. Parameters are "
    "selected by validation, for each way of scoring by itself. HiFGL has no score along own edges: its silos know "
    "neither rows nor edges of their devices.",
)
GAIN_NOTE = "Gain: of the way from Local-MLP to Global, what a row has come, as trained (graph information gain)."
ALGORITHMS_NOTE = (
    "FedPerGNN has no expansion of its graph here, and the noise of its own paper; FedSage+ has 20 epochs for its "
    "generators before. With one full-batch step between averages FedProx is FedAvg: its term has no gradient where a "
    "round begins. The paper's FedAvg-GraphSage differs between its Tables 3 and 4."
)
QUICK: dict[str, Any] = {
    "data": {"name": "blocks", "nodes": 400, "classes": 4, "degree": 4.0, "signal": 1.5},
    "model": {"hidden": 16},
    "train": {"epochs": 10, "checkpoint_every": 10},
}
QUICK_NOTE = (
    "Quick: a block graph of 400 nodes, 10 epochs, one seed: to see that everything runs; there is nothing of the "
    "paper to compare with."
)


def with_small(study: Study, rows: tuple[StudyRow, ...] = ()) -> Study:
    """The study with a small form of itself as ``quick``: ``rows`` of it (none: all) on a block graph."""
    few = tuple(replace(row, paper={}, overrides=_short(row.overrides)) for row in rows or study.rows)
    base = merged(dict(study.base), QUICK)
    base["data"].pop("masks", None)
    small = replace(study, rows=few, base=base, seeds=1, notes=(QUICK_NOTE,))
    return replace(study, quick=replace(small, title=f"{study.title} (quick: a block graph)"))


def _short(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What a row changes, but for its graph; with a phase before, as many epochs for that as for training."""
    changes, epochs = merged(dict(overrides)), QUICK["train"]["epochs"]
    for key in ("name", "masks"):
        changes.get("data", {}).pop(key, None)
    before = {name: {"epochs": epochs} for name in changes.get("phase", {})}
    return merged(changes, {"train": {"epochs": 2 * epochs}, "phase": before}) if before else changes


def paper_scores(table: str, column: str, key: str = "method") -> dict[str, Value]:
    """The paper's accuracies of one column in per cent, by what stands in the column ``key``."""
    return {line[key]: line_values(line, [column], 100.0)[column] for line in read_table(table)}


def table_3(data: str) -> Study:
    """The study of one graph: silos alone, FedAvg, HiFGL and one owner, with both models."""
    paper = paper_scores("hifgl_accuracy", GRAPHS[data])
    rows = []
    for model, layer in MODELS.items():
        for label, settings in TABLE_3.items():
            value = paper["Local-MLP" if label == "Local-MLP" else f"{label}-{model}"]
            changes = settings if label == "Local-MLP" else merged(settings, {"model": {"name": layer}})
            at = {"model": model, "method": label}
            rows.append(StudyRow(f"{model} / {label}", changes, {TRAINED: value}, at=at))
    study = Study(
        name=f"hifgl-{data}",
        title=f"Every node a device, on {GRAPHS[data]}",
        summary=f"Silos alone, FedAvg, HiFGL and one owner on {GRAPHS[data]}, and the gain of each (Table 3)",
        source=f"{PAPER}, Table 3",
        measure=MEASURE,
        columns=COLUMNS,
        rows=tuple(rows),
        base=merged(BASE, {"data": {"name": data}}),
        seeds=10,
        notes=(*NOTES, GAIN_NOTE),
        axes=("model", "method"),
        against="Global",
        gain_from="Local-MLP",
        vary_data=True,
    )
    return with_small(study)


def _algorithms() -> dict[str, dict[str, Any]]:
    """What each row of Table 4 changes in the recipe."""
    rows: dict[str, dict[str, Any]] = {}
    for model, layer in MODELS.items():
        for label in ("FedAvg", "FedProx", "FedPer"):
            rows[f"{label}-{model}"] = {"method": label.lower(), "model": {"name": layer}}
    rows["FedPerGNN"] = {"method": "fedpergnn", "model": {"name": "gcn"}}
    rows["FedSage+"] = merged(FEDSAGE, {"model": {"name": "sage"}})
    rows["FED-PUB"] = {"method": "fed-pub", "model": {"name": "gcn"}}
    return rows | {f"HiFGL-{model}": merged(HIFGL, {"model": {"name": layer}}) for model, layer in MODELS.items()}


def table_4() -> Study:
    """The study of HiFGL beside other algorithms of federated learning, on three graphs."""
    rows = []
    for data, title in GRAPHS.items():
        paper = paper_scores("hifgl_algorithms_accuracy", title)
        for label, changes in _algorithms().items():
            at = {"data": title, "method": label}
            chosen = merged(changes, {"data": {"name": data, "masks": "random"}})
            rows.append(StudyRow(f"{title} / {label}", chosen, {TRAINED: paper[label]}, at=at))
    study = Study(
        name="hifgl-algorithms",
        title="HiFGL beside other algorithms",
        summary="FedAvg, FedProx, FedPer, FedPerGNN, FedSage+ and FED-PUB beside HiFGL, on three graphs (Table 4)",
        source=f"{PAPER}, Table 4",
        measure=MEASURE,
        columns=COLUMNS,
        rows=tuple(rows),
        base=BASE,
        seeds=3,
        notes=(*NOTES, ALGORITHMS_NOTE),
        axes=("data", "method"),
        against="HiFGL-GCN",
        vary_data=True,
    )
    return with_small(study, tuple(row for row in study.rows if row.at["data"] == "Cora"))


STUDIES = (*(table_3(data) for data in GRAPHS), table_4())
