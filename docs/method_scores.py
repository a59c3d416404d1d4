"""The scores of methods on one footing, from docs/results/training-or-scoring.csv."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

FILE = Path(__file__).parent / "results" / "training-or-scoring.csv"
GRAPHS = ("Cora", "CiteSeer", "PubMed", "Photo")


def scores(name: str) -> list[str]:
    """The section with a method's scores among others on one footing."""
    head = ["## Its numbers on one footing"]
    table = measured()
    if not any(key[2] == name for key in table):
        return [*head, "It has not been measured on the footing of [training or scoring](../training-or-scoring.md)."]
    lead = (
        "Test accuracy in per cent and megabytes of all parties, mean ± deviation over five seeds; how it was "
        "measured, tuned and paired is in [training or scoring](../training-or-scoring.md), the figures of single "
        "seeds in [a table](../results/training-or-scoring.csv)."
    )
    columns = ("across", "own edges", "MB to train", "MB to score across")
    rows = [
        f"| {graph} | {split} | "
        + " | ".join(cell(table.get((graph, split, name, column))) for column in columns)
        + " |"
        for split in dict.fromkeys(key[1] for key in table)
        for graph in GRAPHS
        if (graph, split, name, "across") in table
    ]
    heads = "| graph | silos | scored across | scored along own edges | MB to train | MB to score once across |"
    return [*head, lead, heads + "\n|---|---|---:|---:|---:|---:|\n" + "\n".join(rows)]


@cache
def measured() -> dict[tuple[str, ...], list[float]]:
    """Values by seed of the common footing: {(graph, split, method, column): values}."""
    with FILE.open() as file:
        rows = list(csv.reader(file))[1:]
    return {tuple(row[:4]): [float(value) for value in row[4:] if value] for row in rows}


def cell(values: list[float] | None) -> str:
    """Mean and deviation over seeds; of megabytes, which hardly differ, the mean."""
    if not values:
        return "–"
    spread = stdev(values) if len(values) > 1 else 0.0
    mean = fmean(values)
    return f"{mean:,.0f}" if mean >= 100 else f"{mean:.1f} ± {spread:.1f}"
