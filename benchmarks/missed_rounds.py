"""Draw what a party that misses rounds costs: test accuracy by the share of rounds missed, from a study's results.

isthmus reproduce missed-rounds --set data.folder=DIR --out STUDY
python benchmarks/missed_rounds.py STUDY/results.csv docs/results/missed-rounds.svg
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

Lines = Mapping[str, Sequence[tuple[float, float, float]]]  # by name: share of rounds, mean, deviation


def lines_of(rows: Sequence[Mapping[str, str]], column: str) -> Lines:
    """The lines of one way of scoring; a method without missed rounds begins each of its lines."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        if row["column"] == column and row["ours"]:
            name, _, share = row["run"].rpartition(", ")
            found.setdefault(name, []).append(
                (float(share.split()[0]), float(row["ours"]), float(row["ours_std"] or 0))
            )
    methods = {name for name in found if any(other.startswith(f"{name}, ") for other in found)}
    begun = {name: [*found[name.partition(", ")[0]], *line] for name, line in found.items() if ", " in name}
    return {name: line for name, line in found.items() if name not in methods} | begun


def draw(axes: Any, lines: Lines, title: str) -> None:
    """One panel: a line with deviations for each method and way of reading rows of the absent silo."""
    for place, (name, line) in enumerate(lines.items()):
        share, mean, spread = zip(*sorted(line), strict=True)
        moved = [each + 0.6 * (place - len(lines) / 2) for each in share]
        axes.errorbar(moved, mean, yerr=spread, label=name, marker="o", markersize=3, linewidth=1, elinewidth=0.6)
    axes.set_title(title, loc="left")
    axes.set_xlabel("rounds missed by one of five silos, %")
    axes.set_xticks([0, 25, 50, 75])
    axes.grid(True, linewidth=0.4)


def main(source: str, target: str) -> None:
    """Draw both ways of scoring beside each other."""
    with open(source, newline="") as file:
        rows = list(csv.DictReader(file))
    figure = Figure((9, 3.6), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column in zip(panels, ("across", "own edges"), strict=True):
        draw(axes, lines_of(rows, column), f"scored {column if column == 'across' else 'along own edges'}")
    panels[0].set_ylabel("test accuracy, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=8, frameon=False)
    figure.savefig(Path(target), metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
