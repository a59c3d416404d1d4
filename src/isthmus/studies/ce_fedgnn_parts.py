"""Guo et al. 2026: what CE-FedGNN's parts are worth, how long a round may be, and what noise costs.

Each study is made twice: on Cora, which takes minutes, and on simulated transactions; the paper has transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from isthmus.studies import ce_fedgnn, ce_fedgnn_aml
from isthmus.studies.ce_fedgnn import PAPER, ROUNDS, merged, on_blocks
from isthmus.studies.study import FOOTING, Study, StudyColumn, StudyRow, Tuning, Value
from isthmus.studies.tables import line_values, read_table

INTERVALS = (32, 64, 128, 256, 512, 1024)
SIGMAS = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0)
CLIP = 5.0
FEDAVG: dict[str, Any] = {"method": "fedavg", "sync": ROUNDS}
FULL: dict[str, Any] = {"method": "ce-fedgnn", "sync": ROUNDS}
VARIANTS: dict[str, dict[str, Any]] = {
    "stale global embedding": merged(FULL, {"exchange": {"gamma": 1.0}}),
    "w/o gradient moving average": merged(FULL, {"sync": {"beta": 1.0}}),
    "CE-FedGNN (full)": FULL,
}


@dataclass(frozen=True)
class StudyBase:
    """The data and training that three studies share.

    ``end`` is the end of their names, ``fedavg`` the settings of their FedAvg row, and ``small`` adds the small form.
    """

    end: str
    title: str
    base: Mapping[str, Any]
    columns: tuple[StudyColumn, ...]
    beside: tuple[str, ...]
    measure: str
    silos: int
    fedavg: dict[str, Any]
    tuning: Tuning
    notes: tuple[str, ...]
    small: Callable[[Study], Study]

    def study(self, name: str, title: str, source: str, rows: tuple[StudyRow, ...], *notes: str) -> Study:
        """The study of some rows on this data."""
        return self.small(
            Study(
                name=f"ce-fedgnn-{name}{self.end}",
                title=f"CE-FedGNN on {self.title}: {title}",
                summary=f"CE-FedGNN on {self.title}: {title} ({source})",
                source=f"{PAPER}, {source}",
                measure=self.measure,
                columns=self.columns,
                rows=rows,
                base=self.base,
                silos=self.silos,
                seeds=3,
                close=2.0,
                notes=(*notes, *self.notes),
                beside=self.beside,
            )
        )


CORA = StudyBase(
    end="",
    title="Cora",
    base=ce_fedgnn.citation_recipe("cora"),
    columns=ce_fedgnn.COLUMNS,
    beside=ce_fedgnn.BESIDE,
    measure=ce_fedgnn.MEASURE,
    silos=ce_fedgnn.SILOS,
    fedavg=FEDAVG,
    tuning=replace(ce_fedgnn.TUNING, grid={**ce_fedgnn.TUNING.grid, **ce_fedgnn.DECAY}),
    notes=(
        *ce_fedgnn.NOTES[:2],
        FOOTING,
        "The paper has this for transactions only: there is nothing to compare with.",
    ),
    small=on_blocks,
)
BANKS = StudyBase(
    end="-aml",
    title="simulated transactions",
    base=merged(ce_fedgnn_aml.BASE, ce_fedgnn_aml.MODELS["PNA"]),
    columns=ce_fedgnn_aml.COLUMNS,
    beside=ce_fedgnn_aml.BESIDE,
    measure=ce_fedgnn_aml.MEASURE,
    silos=ce_fedgnn_aml.SILOS,
    fedavg=merged(FEDAVG, ce_fedgnn_aml.KEPT),
    tuning=ce_fedgnn_aml.TUNING,
    notes=ce_fedgnn_aml.NOTES,
    small=ce_fedgnn_aml.with_small,
)


def ablation(base: StudyBase) -> Study:
    """The study of CE-FedGNN without one of its parts; each variant chooses its learning rate."""
    paper: dict[str, dict[str, Value]] = {}
    if base is BANKS:
        column = ce_fedgnn_aml.HI_SMALL
        lines = read_table("ce_fedgnn_ablation_f1")
        paper = {line["variant"]: {ce_fedgnn_aml.F1: line_values(line, [column], 100.0)[column]} for line in lines}
    variants = {"w/o global embedding": base.fedavg, **VARIANTS}
    rows = tuple(StudyRow(label, overrides, paper.get(label, {})) for label, overrides in variants.items())
    study = base.study("ablation", "what its parts are worth", "Table 5", rows)
    return replace(study, tuning=base.tuning)


def intervals(base: StudyBase) -> Study:
    """The study of CE-FedGNN with longer and longer rounds."""
    rows = tuple(StudyRow(f"K = {k}", merged(FULL, {"sync": {"local_steps": k}})) for k in INTERVALS)
    note = "The paper shows this as a figure, after 30,000 steps: 30 rounds of 1,024 steps, where this is two."
    return base.study(
        "k", "score against steps between exchanges", "Figure 2", (*rows, StudyRow("FedAvg", base.fedavg)), note
    )


def noise(base: StudyBase) -> Study:
    """The study of CE-FedGNN with more and more noise on the rows that it releases."""
    rows = tuple(StudyRow(f"sigma = {s:g}", merged(FULL, {"protect": {"sigma": s, "clip": CLIP}})) for s in SIGMAS)
    note = "Noise on embeddings only; the paper adds a little (0.001) to models and gradients as well."
    return base.study("noise", "score against noise", "Figure 2", (*rows, StudyRow("FedAvg", base.fedavg)), note)


MAKERS = (ablation, intervals, noise)
STUDIES = tuple(make(base) for make in MAKERS for base in (CORA, BANKS))
