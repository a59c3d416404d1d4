"""Zhang et al. 2024, FedDEP: how many prototypes, how deep an encoder, what protects edges, and how long it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from isthmus.studies.ce_fedgnn import merged
from isthmus.studies.feddep import (
    COLUMNS,
    FEDDEP,
    GRAPHS,
    MEASURE,
    METHODS,
    NOTES,
    PAPER,
    SILOS,
    paper_values,
    places,
    with_small,
)
from isthmus.studies.study import Metrics, Study, StudyColumn, StudyRow

CLUSTERS = (3, 5, 10, 15, 20)
# Numbers of silos, and of seeds, by graph: all on small graphs, the hardest case alone on large ones.
EXTENT: dict[str, tuple[tuple[int, ...], int]] = {
    "cora": (SILOS, 3),
    "citeseer": (SILOS, 3),
    "pubmed": (SILOS[-1:], 1),
    "cs": (SILOS[-1:], 1),
}
DEPTHS = (0, 1, 2, 3)
# Per number of silos: the degree from which on lists are drawn, and the noise that the paper takes for as private.
PROTECTION = {3: (15, 4.2), 5: (10, 2.1), 10: (3, 0.4)}
SEED_CLIP = 1.0
AT_HOME = "FedDEP, generators at home"
FIXED = "Nothing is tuned: the learning rate is 0.1, as in the paper, and C = 10 where the study does not vary it."


def part_study(
    name: str, title: str, source: str, rows: tuple[StudyRow, ...], more: tuple[str, ...] = (), **others: Any
) -> Study:
    """A study of parts of FedDEP, with ``more`` notes; on Cora, unless ``base`` is another recipe."""
    made: dict[str, Any] = {
        "columns": COLUMNS,
        "base": GRAPHS["cora"].recipe,
        "seeds": 3,
        "close": 1.0,
        "axes": tuple(rows[0].at),
        "vary_data": True,
    }
    study = Study(
        name=f"feddep-{name}",
        title=f"FedDEP: {title}",
        summary=f"FedDEP: {title} ({source})",
        source=f"{PAPER}, {source}",
        measure=MEASURE,
        rows=rows,
        notes=(*NOTES[:3], FIXED, *more),
        **made | others,
    )
    return with_small(study)


def on_graph(part: str, graph: str) -> dict[str, Any]:
    """Name, recipe and seeds of a study of a ``part`` on a graph; on Cora it is named for the part alone."""
    name = part if graph == "cora" else f"{part}-{graph}"
    return {"name": name, "base": GRAPHS[graph].recipe, "seeds": EXTENT[graph][1]}


def clusters(graph: str) -> Study:
    """The study of the number of prototypes on one graph."""
    settings = {str(count): merged(FEDDEP, {"exchange": {"clusters": count}}) for count in CLUSTERS}
    rows = places("C", settings, paper_values("feddep_clusters", "C", GRAPHS[graph]), EXTENT[graph][0])
    title = f"accuracy by the number of prototypes, on {GRAPHS[graph].title}"
    return part_study(title=title, source="Table 3", rows=rows, against="10", **on_graph("clusters", graph))


def depths(graph: str) -> Study:
    """The study of the depth of the encoder whose rows are generated, on one graph."""
    settings = {f"L = {depth}": merged(FEDDEP, {"models": {"encoder": {"depth": depth}}}) for depth in DEPTHS}
    note = "The paper shows this as a figure. At L = 0 rows stand for features, as in FedSage+, but for its exchange."
    rows = places("depth", settings, {}, EXTENT[graph][0])
    title = f"accuracy by the depth of encoders, on {GRAPHS[graph].title}"
    where = on_graph("depth", graph)
    return part_study(title=title, source="Figure 4", rows=rows, more=(note,), against="L = 2", **where)


def guarantee_column(label: str, of: str, number: str) -> StudyColumn:
    """The column of a ``number`` (epsilon, delta) that a run promises ``of`` something.

    An epsilon that is infinite, or whose delta leaves no guarantee, is None.
    """

    def read(metrics: Metrics) -> float | None:
        held = next((entry for entry in metrics["privacy"] if entry["of"] == of), None)
        if held is None or (number == "epsilon" and held["void"]) or not math.isfinite(float(held[number])):
            return None
        return float(held[number])

    return StudyColumn(label, read)


def privacy() -> Study:
    """The study of drawn neighbour lists beside noise on gradients, on Coauthor CS."""
    rows: list[StudyRow] = []
    for silos in SILOS:
        floor, sigma = PROTECTION[silos]
        noise = {"protect": {"name": "dp-sgd", "seed_clip": SEED_CLIP, "seed_sigma": sigma}}
        settings: dict[str, dict[str, Any] | None] = {
            "drawn lists": FEDDEP,
            f"lists of {floor} or more alone": merged(FEDDEP, {"train": {"floor": floor}}),
            f"noise of {sigma:g}": merged(FEDDEP, noise),
            "nothing": merged(FEDDEP, {"train": {"draws": "distinct"}}),
        }
        rows += places("protection", settings, {}, (silos,))
    note = (
        "The paper shows this as a figure. Its D (15, 10 and 3 for M = 3, 5 and 10) is a least degree, but some lists "
        "of this graph are shorter and promise less, unless they are left out, as in the second row. Noise is "
        f"DP-SGD's, with gradients of seeds bounded by {SEED_CLIP:g}; it protects labels, not edges. Scores read "
        "drawn neighbours too, so that they show no more of a list. No epsilon: an infinite one, or nothing promised; "
        "with a delta above a half there is no guarantee, whatever epsilon is. The figure also has FedGNN and FedDEP "
        "w/o Proto, which Table 2 has here."
    )
    columns = (
        guarantee_column("epsilon, list entry", "neighbour lists", "epsilon"),
        guarantee_column("delta, list entry", "neighbour lists", "delta"),
        guarantee_column("epsilon, label", "steps", "epsilon"),
        *COLUMNS,
    )
    base = merged(GRAPHS["cs"].recipe, {"train": {"scoring": "drawn"}})
    title = "drawn lists beside noise, on Coauthor CS"
    return part_study("privacy", title, "Figure 5", tuple(rows), (note,), base=base, columns=columns)


def _seconds(metrics: Metrics) -> float | None:
    """Seconds of a run's training and validations."""
    return float(metrics["seconds"])


def _epoch_seconds(metrics: Metrics) -> float | None:
    """Seconds of an epoch, encoders' epochs included."""
    return float(metrics["seconds"]) / max(int(metrics["epochs"]), 1)


def _with_epochs(settings: Mapping[str, Any] | None, epochs: int) -> dict[str, Any]:
    """Settings of a row whose last phase lasts for so many epochs."""
    assert settings is not None
    before = sum(phase["epochs"] for phase in settings.get("phase", {}).values())
    return merged(dict(settings), {"train": {"epochs": epochs + before}})


def times() -> Study:
    """The study of seconds and accuracy on Cora between five silos, in 100 epochs."""
    names = ("Global", "Local", "FedAvg", "FedSage+", "FedDEP w/o Proto", "FedDEP")
    longer = {name: _with_epochs(METHODS[name], 100) for name in names}
    longer[AT_HOME] = merged(longer["FedDEP"], {"sync": {"private": ["generator"]}})
    base = merged(GRAPHS["cora"].recipe, {"train": {"epochs": 100}})
    columns = (StudyColumn("s", _seconds), StudyColumn("s an epoch", _epoch_seconds), *COLUMNS)
    note = (
        "The paper shows this as a figure. FedDEP's seconds include the 50 epochs of its encoders and the grouping; "
        "all silos take turns on one machine. Curves are in each run's metrics.jsonl. The last row is FedDEP with a "
        "generator for each silo, which is never averaged (sync.private=generator): the paper can be read either way."
    )
    rows, title = places("method", longer, {}, (5,)), "seconds and accuracy, on Cora between five silos"
    return part_study("time", title, "Figure 6", rows, (note,), base=base, columns=columns, against="FedAvg")


STUDIES = (*map(clusters, EXTENT), *map(depths, EXTENT), privacy(), times())
