"""Scores of Swift-FedGNN against steps between crossings (I), silos that cross (K), and K / (I M) of its theorem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from isthmus.studies.ce_fedgnn import merged
from isthmus.studies.study import Study, StudyColumn, StudyRow
from isthmus.studies.swift import (
    CROSSING,
    GRAPHS,
    MEASURE,
    PAPER,
    SMALL_NOTE,
    VALID,
    _crossing,
    _valid,
    quick,
    swift_recipe,
)
from isthmus.studies.swift_plots import surface

EVERY = (1, 2, 5, 10, 20)
SILOS = (1, 2, 5, 10)
# Nodes are dealt out at random, so that nine of ten edges cross; METIS leaves too few cross edges to matter.
ROUGH: dict[str, Any] = {"data": {"split": "random"}, "train": {"evaluate_every": 10, "checkpoint_every": 100}}
NOTES = (
    "Theorem 5.6 of the paper bounds the error by K / (I M): the share of all (silo, step) pairs that cross. Rows with "
    "the same share, such as I = 1, K = 1 and I = 10, K = 10, should then do alike.",
    "Nodes are dealt out at random: nine of ten edges cross. Adam, learning rate 0.001, 400 steps; all rows are scored "
    "alike, with neighbours from across the boundary.",
)


def surface_row(every: int, silos: int) -> StudyRow:
    """The row in which ``silos`` (K) silos cross at every ``every``-th (I) step."""
    schedule: dict[str, Any] = {"schedule": {"every": every, "silos": silos}}
    return StudyRow(f"I = {every}, K = {silos}", merged({"method": "swift-fedgnn", "score": "trained"}, schedule))


def surface_study() -> Study:
    """The study of scores by I and K on Cora."""
    whole = Study(
        name="swift-surface",
        title="How often, and how many: Swift-FedGNN on Cora",
        summary="Swift-FedGNN on Cora: score against steps between crossings (I) and silos that cross (K)",
        source=f"{PAPER}, Theorem 5.6",
        measure=MEASURE,
        columns=(StudyColumn(CROSSING, _crossing), StudyColumn(VALID, _valid)),
        rows=tuple(surface_row(every, silos) for silos in SILOS for every in EVERY),
        base=merged(swift_recipe(GRAPHS["cora"]), ROUGH),
        silos=10,
        seeds=3,
        close=0.5,
        notes=NOTES,
        figure=surface,
    )
    small = quick(replace(whole, rows=tuple(surface_row(every, silos) for silos in (1, 2, 4) for every in (1, 5, 20))))
    return replace(whole, quick=replace(small, columns=whole.columns, notes=(SMALL_NOTE,)))


STUDIES = (surface_study(),)
