"""``python benchmarks/by_seed.py``: the tables and the figure of training or scoring, from scores seed by seed.

``--take RESULTS.json`` puts the finished rows of a study into the CSV file first, in the place of older ones. A study
without axes for data and split gets them by ``--data`` and ``--split``. Prints the tables of the
page on training or scoring.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "training-or-scoring.csv"
BASE, MERGED = "fedavg", "centralised"
WAYS, TRAINING, SCORING = ("across", "own edges"), "MB to train", "MB to score across"
Key = tuple[str, str, str, str]  # data, split, method, column
Table = dict[Key, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=RESULTS)
    parser.add_argument("--take", type=Path, action="append", default=[], help="results.json of a study")
    parser.add_argument("--data", default="", help="the data of a study that has no such axis")
    parser.add_argument("--split", default="", help="its split")
    options = parser.parse_args()
    table = read(options.csv)
    for path in options.take:
        table |= taken(json.loads(path.read_text()), options.data, options.split)
    if options.take:
        write(options.csv, table)
    for split in dict.fromkeys(split for _, split in places(table)):
        part = {key: values for key, values in table.items() if key[1] == split}
        for column in WAYS:
            print(f"\n**{split}, {column}**, differences to {BASE}\n\n{differences(part, column)}")
        print(f"\n**{split}, megabytes**\n\n{megabytes(part)}")
    draw(table, options.csv.with_suffix(".svg"))


def read(path: Path) -> Table:
    """All rows of the CSV file."""
    with open(path, newline="") as file:
        _, *lines = csv.reader(file)
    return {(a, b, c, d): [float(value) for value in values if value] for a, b, c, d, *values in lines}


def write(path: Path, table: Table) -> None:
    """Write the CSV file; rows with fewer seeds than others end in empty cells."""
    most = max(map(len, table.values()))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("data", "split", "method", "column", *(f"seed_{seed}" for seed in range(most))))
        for key, values in table.items():
            writer.writerow((*key, *(f"{value:.4f}" for value in values), *[""] * (most - len(values))))


def taken(results: dict[str, Any], data: str, split: str) -> Table:
    """The finished rows of a study, by place and column; a row whose seeds have no value in a column lacks it there."""
    found: Table = {}
    for row in results["rows"]:
        at = {"data": data, "split": split, **row["at"]}
        for column, cell in row["columns"].items():
            if at["method"] == MERGED and column == "own edges":
                continue  # one party that owns all has no other edges
            if len(row["seeds"]) == results["seeds"] and None not in cell["by_seed"] and cell["by_seed"]:
                found[at["data"], at["split"], at["method"], column] = cell["by_seed"]
    return found


def places(table: Table) -> list[tuple[str, str]]:
    """Data and split of every comparison, by split and then data, each in the order in which the file has it first."""
    there = list(dict.fromkeys((data, split) for data, split, _, _ in table))
    splits, graphs = ([*dict.fromkeys(each)] for each in zip(*((split, data) for data, split in there), strict=True))
    return sorted(there, key=lambda place: (splits.index(place[1]), graphs.index(place[0])))


def methods(table: Table) -> list[str]:
    """All methods, in the order of the file."""
    return list(dict.fromkeys(method for _, _, method, _ in table))


def half_interval(values: list[float]) -> float:
    """Half the width of Student's 95 % interval of the mean."""
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def differences(table: Table, column: str) -> str:
    """A Markdown table: the base's mean and deviation, and every other method's paired difference to it."""
    lines = []
    for method in methods(table):
        cells = []
        for place in places(table):
            ours, base = table.get((*place, method, column)), table.get((*place, BASE, column))
            cells.append("" if not ours or not base else _against(ours, base, method == BASE))
        lines.append((f"`{method}`" + (" (%)" if method == BASE else ""), *cells))
    return markdown(["", *(data for data, _ in places(table))], [line for line in lines if any(line[1:])])


def _against(ours: list[float], base: list[float], itself: bool) -> str:
    if itself:
        return f"{fmean(base):.1f} ± {stdev(base):.1f}"
    apart = [a - b for a, b in zip(ours, base, strict=True)]
    mean, half = fmean(apart), half_interval(apart)
    words = f"{'+' if mean >= 0 else '−'}{abs(mean):.1f} ± {half:.1f}"
    return f"**{words}**" if abs(mean) > half else words


def megabytes(table: Table) -> str:
    """A Markdown table of what crosses in training, and in one scoring across."""
    lines = [
        (f"`{method}`", *(_mean(table.get((*place, method, TRAINING))) for place in places(table)))
        for method in methods(table)
        if method != MERGED
    ]
    once = ("to score once across", *(_mean(table.get((*place, BASE, SCORING))) for place in places(table)))
    return markdown(["", *(data for data, _ in places(table))], [*lines, once])


def _mean(values: list[float] | None) -> str:
    return "" if not values else f"{fmean(values):,.0f}" if fmean(values) >= 100 else f"{fmean(values):.1f}"


def markdown(head: list[str], lines: list[tuple[str, ...]]) -> str:
    """A Markdown table with its numbers at the right."""
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def draw(table: Table, path: Path) -> None:
    """Draw a panel for each data and split: every method's mean and interval, scored in both ways."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    there, names = places(table), methods(table)[::-1]
    style = {"font.size": 8, "svg.hashsalt": path.stem, "svg.fonttype": "none"}
    with rc_context(style):
        lines = -(-len(there) // 3)
        figure = Figure((9.5, 2.3 * lines), layout="constrained", facecolor="white")
        panels = figure.subplots(lines, 3, squeeze=False).flat
        for panel, place in zip(panels, there, strict=False):
            _panel(panel, table, place, names)
        for panel in list(panels)[len(there) :]:
            panel.set_visible(False)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
        figure.supxlabel("test score, %; mean over seeds, 95 % interval", fontsize=8)
        FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})


def _panel(panel: Any, table: Table, place: tuple[str, str], names: list[str]) -> None:
    for column, colour, marker, words in (
        ("own edges", "#d9822b", "s", "scored along own edges"),
        ("across", "#1f5fa8", "o", "scored across"),
    ):
        known = [(y, table[*place, name, column]) for y, name in enumerate(names) if (*place, name, column) in table]
        panel.errorbar(
            [fmean(values) for _, values in known],
            [y + (0.12 if column == "across" else -0.12) for y, _ in known],
            xerr=[half_interval(values) for _, values in known],
            fmt=marker, color=colour, markersize=4, linewidth=1, label=words,
        )  # fmt: skip
    panel.set_yticks(range(len(names)), names)
    panel.set_title(", ".join(word for word in place if word), fontsize=8.5, loc="left")
    panel.grid(True, axis="x", color="#d8d8d8", linewidth=0.6)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="y", length=0)


if __name__ == "__main__":
    main()
