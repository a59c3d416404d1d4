"""What ``isthmus check`` prints: problems first, then columns, labels and methods as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from isthmus.commands.check.check import Checked
from isthmus.runs.text import count_text


def tables(checked: Checked) -> Iterator[Table]:
    """Yield the tables of what was found."""
    if checked.problems:
        yield _problems(checked)
    if checked.columns:
        yield _columns(checked)
    if checked.silos:
        yield _labels(checked)
    if checked.methods:
        yield _methods(checked)


def verdict(checked: Checked) -> str:
    """The last line: whether a run could start."""
    if checked.problems:
        return f"{count_text(len(checked.problems), 'problem')}: a run would refuse this data."
    if not checked.methods:
        return "Nothing here would refuse a run; whether silos fit together shows with the parts of all."
    return "Nothing here would refuse a run."


def _problems(checked: Checked) -> Table:
    table = Table(title=count_text(len(checked.problems), "problem"), title_justify="left")
    for column in ("where", "what", "what to do"):
        table.add_column(column, overflow="fold")
    elsewhere = "between silos" if checked.silos else "the data as given"
    for each in checked.problems:
        table.add_row(Text(each.place or elsewhere), Text(each.what), Text(each.remedy))
    return table


def _columns(checked: Checked) -> Table:
    table = Table(title="columns", title_justify="left")
    for column in ("table", "column", "becomes", "missing cells"):
        table.add_column(column, overflow="fold")
    for each in checked.columns:
        missing = ", ".join(f"{silo}: {count:,}" for silo, count in each["missing"].items())
        becomes = each["what"] + (f": {each['why']}" if each["why"] else "")
        table.add_row(each["table"], Text(each["column"]), Text(becomes), Text(missing or "–"))
    return table


def _labels(checked: Checked) -> Table:
    rare = f", '{checked.rare}' is the rare class" if checked.rare else ""
    table = Table(title=Text(f"labels of {checked.target}s{rare}"), title_justify="left")
    table.add_column("silo")
    for column in ("nodes", "edges", "to others", "labelled", "train", "valid", "test", "base rate"):
        table.add_column(column, justify="right")
    for each in checked.silos:
        edges, splits = each["edges"], each["splits"]
        sizes = each["nodes"], edges["inner"] + edges["cross"], edges["cross"], each["labelled"], *splits.values()
        known = each.get("classes", {}).get(checked.rare)
        rate = f"{100 * known / each['labelled']:.2f} %" if known is not None and each["labelled"] else "–"
        table.add_row(each["silo"], *(f"{size:,}" for size in sizes), rate)
    return table


def _methods(checked: Checked) -> Table:
    """Methods that train and are scored on equally many seeds in one row; then those that refuse."""
    table = Table(title=f"labelled {checked.target}s by method", title_justify="left")
    table.add_column("methods", overflow="fold")
    for column in ("train", "valid", "test"):
        table.add_column(column, justify="right")
    alike: dict[tuple[int, ...], list[str]] = {}
    refusing: dict[str, list[str]] = {}
    for each in checked.methods:
        if "refused" in each:
            refusing.setdefault(each["refused"], []).append(each["method"])
        else:
            alike.setdefault(tuple(each["seeds"].values()), []).append(each["method"])
    for counts, names in sorted(alike.items(), reverse=True):
        table.add_row(Text(", ".join(names)), *(f"{count:,}" for count in counts))
    for why, names in refusing.items():
        table.add_row(Text(f"{', '.join(names)} refuse: {why}" if len(names) > 1 else f"{names[0]} refuses: {why}"))
    return table


def sentences(checked: Checked) -> Iterator[str]:
    """Yield how features would be scaled, and notes of a run."""
    for table, told in checked.scaling.items():
        why: Any = f", because {told['why']}" if told["why"] else ""
        yield f"Features of {table}: scaling '{told['how']}'{why}."
    yield from (f"note: {note}" for note in checked.notes)
