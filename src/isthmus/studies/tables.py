"""The papers' tables, which ship with the package as one CSV file each."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib import resources

from isthmus.studies.study import Value

CsvLine = dict[str, str]  # text by column name


def read_table(name: str) -> list[CsvLine]:
    """The lines of ``tables/NAME.csv``."""
    text = resources.files("isthmus.studies").joinpath("tables", f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def line_values(line: CsvLine, columns: Sequence[str], scale: float = 1.0) -> dict[str, Value]:
    """The numbers of a line by column, times ``scale``; the deviation of column ``C2`` is in column ``C2_std``."""

    def number(name: str) -> float | None:
        return round(scale * float(line[name]), 6) if line.get(name) else None

    return {name: Value(mean, number(f"{name}_std")) for name in columns if (mean := number(name)) is not None}
