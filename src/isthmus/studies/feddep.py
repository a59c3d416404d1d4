"""Zhang et al. 2024, FedDEP, Table 2: its methods on four graphs, each split between 3, 5 and 10 silos by Louvain.

All rows have the paper's training, and are scored in two ways: as the paper does, every model on the test nodes of the
whole graph, edges between silos included; and each silo on the graph that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from isthmus.studies.ce_fedgnn import merged
from isthmus.studies.study import Grid, Study, StudyColumn, StudyRow, Tuning, Value, score_column, training_megabytes
from isthmus.studies.tables import line_values, read_table

PAPER = "Zhang et al. 2024"
MEASURE = "test accuracy, %"
SILOS = (3, 5, 10)
EPOCHS = 50  # of training; encoders of FedDEP have as many before
SIZE, OWN, WHOLE = "MB, training", "own graphs", "global graph"
COLUMNS = (
    StudyColumn(SIZE, training_megabytes),
    score_column(OWN, "accuracy", way="trained"),
    score_column(WHOLE, "accuracy", way="everywhere"),
)
UNKNOWN: dict[str, Any] = {"data": {"cross": "unknown"}}
SAGE: dict[str, Any] = {"model": {"name": "sage", "embed": False, "head": False}}
SMALLEST = 5  # nodes that a prototype of these studies stands for at least
ENCODED: dict[str, Any] = {"train": {"epochs": 2 * EPOCHS}, "phase": {"encode": {"epochs": EPOCHS}}}
FEDDEP: dict[str, Any] = {"method": "feddep", "exchange": {"smallest": SMALLEST}, **ENCODED}
# Layers with a weight of its own for the node itself, in classifier, encoder and generator.
OWN_WEIGHTS: dict[str, Any] = {"model": {"name": "sage"}}
GENERATE = 20  # epochs of FedSage+'s generators before; the paper's own number is not told
FEDSAGE: dict[str, Any] = {
    "method": "fedsage+",
    "train": {"epochs": GENERATE + EPOCHS, "draws": "distinct"},
    "phase": {"generate": {"epochs": GENERATE}},
}
# What each row of the table changes in the recipe; None for methods of the paper that are not in the catalogue.
METHODS: dict[str, dict[str, Any] | None] = {
    "Global": merged({"method": "centralised"}, SAGE),
    "Local": merged({"method": "local"}, SAGE, UNKNOWN),
    "FedAvg": merged({"method": "fedavg"}, SAGE, UNKNOWN),
    "FedSage+": merged(FEDSAGE, SAGE),
    "FedGNN": merged({"method": "fedpergnn"}, SAGE),
    "FedGraph": None,
    "FedGSL": None,
    "FED-PUB": merged({"method": "fed-pub"}, SAGE),
    "FedDEP": FEDDEP,
    "FedDEP w/o DGen": {"method": "feddep-no-generator"},
    "FedDEP w/o Proto": {"method": "feddep-no-prototypes", **ENCODED},
    "FedDEP w/o NFDP": merged(FEDDEP, {"method": "feddep-dpsgd"}),
    "FedDEP, SAGE": merged(FEDDEP, OWN_WEIGHTS),
    "FedDEP w/o DGen, SAGE": merged({"method": "feddep-no-generator"}, OWN_WEIGHTS),
}
# Rows of ours that the paper's value of another stands beside.
BESIDE = {"FedDEP, SAGE": "FedDEP", "FedDEP w/o DGen, SAGE": "FedDEP w/o DGen"}
NOT_YET = "not in the catalogue of methods"
BASE: dict[str, Any] = {
    "score": "everywhere,trained",
    "data": {"split": "louvain", "masks": "random"},
    "train": {
        "epochs": EPOCHS,
        "batch": 32,
        "fanout": [5],
        "draws": "refill",
        "scoring": "all",
        "optimiser": "sgd",
        "lr": 0.1,
        "evaluate_every": 5,
        "checkpoint_every": 50,
    },
}
TUNING = Tuning({"train.lr": (0.03, 0.1, 0.3)})
CLUSTERS: Grid = {"exchange.clusters": (5, 15)}
DECAY: Grid = {"train.weight_decay": (0.0, 5e-4)}
NOTES = (
    "Settings are the paper's: two GraphSAGE layers that take means over 5 drawn neighbours, batches of 32, SGD, 50 "
    "epochs, 60/20/20, Louvain. FedDEP's encoders have 50 epochs of their own before. A seed decides the split, the "
    "masks, initial values and draws.",
    f"A prototype stands for {SMALLEST} nodes or more (exchange.smallest={SMALLEST}): smaller clusters are merged into "
    "their nearest. The paper merges none.",
    "Global graph: every silo's model on the test nodes of all silos, along all edges, as in the paper: a mean over "
    "models, which for a common model is its accuracy. Own graphs: each silo's test nodes on its own edges. "
    "Both read all neighbours, not 5 that are drawn; the paper does not say how many it scores with.",
    "Every row chooses from three learning rates, and two values of weight decay (FedDEP: two numbers of clusters), by "
    "validation on the global graph. The paper takes 0.1 for all, and five numbers of clusters for FedDEP.",
    "FedSage+ has 20 epochs for its generators before. FedGNN is FedPerGNN, without the expansion of its graph. "
    "FED-PUB is not in the paper's table. FedDEP w/o NFDP has DP-SGD in its place, clip 1 and sigma 2.",
    "FedDEP's layers take one mean over a node and its neighbours, as the paper's equation says. In rows called SAGE a "
    "node has a weight of its own beside the mean of its neighbours, as in GraphSAGE, and in the authors' code.",
)
QUICK: dict[str, Any] = {
    "data": {"name": "blocks", "nodes": 600, "classes": 4, "degree": 4.0, "signal": 1.5},
    "model": {"hidden": 16},
    "train": {"epochs": 20, "evaluate_every": 5},
}
QUICK_NOTE = (
    "Quick: a block graph of 600 nodes, 20 epochs (FedDEP's encoders: as many before), one seed: to see that "
    "everything runs; there is nothing of the paper to compare with."
)


@dataclass(frozen=True)
class FedDEPGraph:
    """A graph of the paper: its name in the data folder, its title, its columns in the paper's tables, and d_z."""

    data: str
    title: str
    column: str
    hidden: int

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe that all rows on this graph share."""
        return merged(BASE, {"data": {"name": self.data}, "model": {"layers": 2, "hidden": self.hidden}})


GRAPHS = {
    "cora": FedDEPGraph("cora", "Cora", "Cora", 128),
    "citeseer": FedDEPGraph("citeseer", "CiteSeer", "CiteSeer", 64),
    "pubmed": FedDEPGraph("pubmed", "PubMed", "PubMed", 256),
    "cs": FedDEPGraph("coauthor-cs", "Coauthor CS", "MSAcademic", 256),
}


def paper_values(table: str, key: str, graph: FedDEPGraph) -> dict[tuple[int, str], Value]:
    """The paper's accuracies on one graph in per cent, by number of silos and by what stands in the column ``key``."""
    found = {}
    for line in read_table(table):
        for silos in SILOS:
            column = f"{graph.column}_{silos}"
            found[silos, line[key]] = line_values(line, [column], 100.0)[column]
    return found


def places(
    axis: str,
    settings: Mapping[str, dict[str, Any] | None],
    paper: Mapping[tuple[int, str], Value],
    silos: Sequence[int] = SILOS,
    tune: Mapping[str, Grid] | None = None,
) -> tuple[StudyRow, ...]:
    """A row for each number of silos and each of ``settings``, with the paper's value and what it may choose from."""
    rows = []
    for count in silos:
        for name, changes in settings.items():
            value, at = paper.get((count, BESIDE.get(name, name))), {"silos": f"M = {count}", axis: name}
            rows.append(
                StudyRow(
                    " / ".join(at.values()),
                    merged(changes or {}, {"data": {"silos": count}}),
                    {} if value is None else {WHOLE: value},
                    tune=(tune or {}).get(name, {}),
                    at=at,
                    left_out="" if changes is not None else NOT_YET,
                )
            )
    return tuple(rows)


def with_small(study: Study, changes: Mapping[str, Any] | None = None) -> Study:
    """The study with a small form of itself as ``quick``: its rows of the fewest silos, on a block graph."""
    first = study.rows[0].at["silos"]
    rows = tuple(
        replace(row, paper={}, tune={}, overrides=_short(row.overrides))
        for row in study.rows
        if row.at["silos"] == first and row.trains
    )
    base = merged(dict(study.base), QUICK, dict(changes or {}))
    base["data"].pop("masks", None)
    small = replace(study, rows=rows, base=base, seeds=1, notes=(QUICK_NOTE,), tuning=None)
    return replace(study, quick=replace(small, title=f"{study.title} (quick: a block graph)"))


def _short(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What a row changes, but with the epochs of the small form; phases before have as many each."""
    changes, epochs = merged(dict(overrides)), QUICK["train"]["epochs"]
    changes.get("train", {}).pop("epochs", None)
    before = {name: {"epochs": epochs} for name in changes.get("phase", {})}
    return merged(changes, {"train": {"epochs": 2 * epochs}, "phase": before}) if before else changes


def table_2(name: str) -> Study:
    """The study of all methods on one graph."""
    graph = GRAPHS[name]
    tune = {label: CLUSTERS if label in ("FedDEP", "FedDEP, SAGE") else DECAY for label in METHODS}
    study = Study(
        name=f"feddep-{name}",
        title=f"Neighbours that nobody knows, on {graph.title}",
        summary=f"Global, Local, FedAvg, FedDEP, its parts and its rivals on {graph.title}, tuned (Table 2)",
        source=f"{PAPER}, Table 2",
        measure=MEASURE,
        columns=COLUMNS,
        rows=places("method", METHODS, paper_values("feddep_accuracy", "method", graph), tune=tune),
        base=graph.recipe,
        seeds=3,
        close=1.0,
        notes=NOTES,
        tuning=TUNING,
        axes=("silos", "method"),
        against="FedAvg",
        vary_data=True,
    )
    return with_small(study)


STUDIES = tuple(table_2(name) for name in GRAPHS)
