"""The report's section on generated neighbours: prototypes of each silo, how its rows did, and what crossed when."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from isthmus.core.kinds import Kind
from isthmus.report.page import Cell, CellRow, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import fact, members
from isthmus.runs.text import bytes_text

Shown = Callable[[float], str]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


# Figures of a silo in ``silo_figures`` of metrics.json, with the heads of their columns.
PROTOTYPES: Mapping[str, tuple[str, Shown]] = {
    "prototypes": ("Sent", _count),
    "merged_groups": ("Merged", _count),
    "smallest_group": ("Smallest", _count),
    "prototypes_received": ("Received", _count),
    "prototypes_apart": ("Apart", _number),
}
ROWS: Mapping[str, tuple[str, Shown]] = {
    "rows_a_node": ("Rows a node", _number),
    "nodes_with_rows": ("Nodes with rows", _percent),
    "hidden_neighbours": ("Hidden", _number),
    "predicted_neighbours": ("Predicted", _number),
    "distance_own": ("To own", _number),
    "distance_others": ("To others", _number),
}
# What crosses for the sake of generators, and when.
CROSSED: Mapping[Kind, tuple[str, str]] = {
    Kind.PROTOTYPES: ("prototypes", "once, before training"),
    Kind.GENERATED: ("generated rows, to other silos", "at every step in which generators learn"),
    Kind.ROW_GRADIENTS: ("gradients of generated rows, back", "at every step in which generators learn"),
}
PROTOTYPES_NOTE = (
    "Sent: groups of a silo's nodes whose means it told every other silo. Merged: groups that were too small, joined "
    "to their nearest. Smallest: nodes of the smallest group. Received: prototypes of all other silos together. Apart: "
    "the mean squared distance of a prototype from the nearest other one of its silo."
)
ROWS_NOTE = (
    "Rows a node, and nodes with rows: of the nodes that were read when parameters were scored last. All else is of "
    "the last round, in which some nodes were hidden. Hidden, predicted: how many neighbours of a visible node were, "
    "and how many the generator predicted. To own: the mean squared distance of a generated row from the nearest "
    "prototype among the groups of the node's hidden neighbours; to others: from the nearest of each other silo. "
    "Without prototypes: from the nearest hidden neighbour itself, and the nearest node of each other silo. –: nothing "
    "to measure."
)


def generated(folder: RunFolder) -> str:
    """The section as markup; empty where the run generated no neighbours."""
    figures: Mapping[str, Mapping[str, float | None]] = fact(folder, "silo_figures", {})
    known = {name for each in figures.values() for name in each}
    if not known & ROWS.keys():
        return ""
    first = " Of several seeds these are figures of the first." if len(members(folder)) > 1 else ""
    parts = ["<h2>Generated neighbours</h2>"]
    for title, columns, note in (("Prototypes", PROTOTYPES, PROTOTYPES_NOTE), ("Generated rows", ROWS, ROWS_NOTE)):
        shown = {name: column for name, column in columns.items() if name in known}
        if shown:
            parts.append(f"<h3>{title}</h3>" + _by_silo(figures, shown, note + first))
    return "".join([*parts, "<h3>What crossed, and when</h3>", _bytes(folder)])


def _by_silo(
    figures: Mapping[str, Mapping[str, float | None]], columns: Mapping[str, tuple[str, Shown]], note: str
) -> str:
    """A table of some figures, with a row for each silo."""
    rows: list[CellRow] = []
    for silo, each in figures.items():
        cells = ((each.get(name), text) for name, (_, text) in columns.items())
        rows.append([silo, *("–" if value is None else text(value) for value, text in cells)])
    return table(["Silo", *(title for title, _ in columns.values())], rows, note)


def _bytes(folder: RunFolder) -> str:
    """The table of bytes: before training and during it, by the model that messages were about."""
    sizes, models = fact(folder, "bytes", {}), fact(folder, "bytes_by_model", {})
    lines = [(what, when, sizes[kind.value]) for kind, (what, when) in CROSSED.items() if sizes.get(kind.value)]
    lines += [(f"parameters of the {model}", "during training", size) for model, size in models.items()]
    rest = sizes.get("total", 0) - sum(size for *_, size in lines)
    lines.append(("all else, such as handshake, losses and scores", "before, during and after training", rest))
    rows: list[CellRow] = [[what, when, Cell(bytes_text(size), f"{size:,} bytes")] for what, when, size in lines]
    return table(["What", "When", "Bytes"], rows, "Bytes count once for each receiving party.", left=2)
