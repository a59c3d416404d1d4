"""Guo et al. 2024, HiFGL, Figure 4: the accuracy of each silo over epochs, and at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.report import page
from isthmus.report.plots import valid_curve
from isthmus.studies.ce_fedgnn import merged
from isthmus.studies.hifgl import COLUMNS, MODELS
from isthmus.studies.hifgl_parts import FEDERATED, part_study
from isthmus.studies.results import Findings
from isthmus.studies.study import Metrics, Reader, Study, StudyColumn, StudyRow

WORST, BEST = "worst silo", "best silo"
NOTE = (
    "The paper shows this as a figure: accuracy of each silo's model by epoch, and at the end. Lines here are "
    "validation accuracies of the first seed, after every epoch; worst and best silo are test accuracies as trained, "
    "means over seeds. Silos are of equal size at random, so that they differ by chance alone."
)


def silo_score(choose: Callable[[Sequence[float]], float]) -> Reader:
    """A reader of one of the silos' test accuracies as trained, in per cent."""

    def read(metrics: Metrics) -> float | None:
        every = [silo.get("accuracy") for silo in (metrics["test"].get("silos") or {}).values()]
        known = [value for value in every if value is not None]
        return 100 * choose(known) if known else None

    return read


def curves(findings: Findings) -> str:
    """The figures of silos' validation accuracies by epoch: one for each row, of its first seed."""
    drawn = []
    for line in findings.lines:
        for seed, run in list(zip(line.seeds, line.runs, strict=False))[:1]:
            words = f"{line.row.label}: validation accuracy by epoch, seed {seed}. Thin lines are single silos."
            made = valid_curve(run["curve"]["epoch"], run["curve"]["valid"], run["silo_curves"], "accuracy")
            drawn.append(page.figure(made, words))
    return "".join(drawn)


def epochs() -> Study:
    """The study of each silo's accuracy, of HiFGL and of FedAvg with both models."""
    every = {"train": {"evaluate_every": 1}}
    rows = [
        StudyRow(
            f"{model} / {label}",
            merged(settings, {"model": {"name": layer}}, every),
            at={"model": model, "method": label},
        )
        for model, layer in MODELS.items()
        for label, settings in FEDERATED.items()
    ]
    ends = StudyColumn(WORST, silo_score(min)), StudyColumn(BEST, silo_score(max))
    title = "each silo's accuracy over epochs, on Cora"
    kinds = {"against": "HiFGL", "columns": (*ends, *COLUMNS), "figure": curves}
    return part_study("epochs", title, "Figure 4", rows, "cora", NOTE, **kinds)


STUDIES = (epochs(),)
