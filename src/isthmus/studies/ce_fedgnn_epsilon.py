"""Guo et al. 2026, Tables 6 and 7: epsilons of released embeddings, computed again; nothing is trained."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from isthmus.protect.accounting.metric_dp import ORDERS, epsilon
from isthmus.runs.config import RunConfig
from isthmus.studies.ce_fedgnn import PAPER
from isthmus.studies.study import Study, StudyRow, Value, score_column
from isthmus.studies.tables import CsvLine, line_values, read_table

SIGMAS = (0.3, 0.5, 0.7, 1.0, 2.0, 3.0, 5.0)
DELTA = 1e-4


def _label(sigma: float) -> str:
    """The name of the column of a noise level."""
    return f"sigma_{sigma:g}"


def cell_values(releases: int, rho: float, _: RunConfig) -> dict[str, Any]:
    """The metrics of a row: epsilon of ``releases`` releases at distance ``rho`` for each sigma.

    The Renyi orders are those of the paper's accountant.
    """
    found = {_label(sigma): float(epsilon(releases, sigma, rho, DELTA, ORDERS)) for sigma in SIGMAS}
    return {"method": "epsilon", "test": found, "seconds": 0.0}


def _row(line: CsvLine) -> StudyRow:
    """The row of one line of the paper's tables."""
    paper: dict[str, Value] = line_values(line, [_label(sigma) for sigma in SIGMAS])
    compute = partial(cell_values, int(line["releases"]), float(line["rho"]))
    return StudyRow(f"{line['dataset']}, {line['percentile']} % of nodes", {"method": "local"}, paper, compute)


def epsilon_study() -> Study:
    """The study with a row for each percentile of rho and a column for each sigma."""
    return Study(
        name="ce-fedgnn-epsilon",
        title="Metric differential privacy of released embeddings",
        summary="epsilon of every sigma and percentile of rho, computed again (Tables 6 and 7)",
        source=f"{PAPER}, Tables 6 and 7",
        measure="epsilon at delta = 1e-4",
        columns=tuple(score_column(_label(sigma), _label(sigma), scale=1.0) for sigma in SIGMAS),
        rows=tuple(_row(line) for line in read_table("ce_fedgnn_metric_dp_epsilon")),
        base={},
        seeds=1,
        close=0.001,
        notes=(
            "rho and the number of releases (200 for HI-Small, 100 for HI-Medium) are the paper's. Nothing is trained: "
            "this checks the accountant, not the embeddings.",
        ),
    )


WHOLE = epsilon_study()
STUDIES = (replace(WHOLE, quick=WHOLE),)  # it takes no time, so that the small form is the study itself
