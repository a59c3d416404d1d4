"""A table of scores laid out by its keys: in rows, in columns, and a table for each value of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.core.errors import IsthmusError, unknown
from isthmus.report.score_table import SCORE, JudgedEntry, ScoreTable

Names = tuple[str, ...]  # values of several keys


@dataclass(frozen=True)
class TableLayout:
    """The keys in rows and in columns; those in neither have tables of their own."""

    rows: Names
    columns: Names


@dataclass(frozen=True)
class TableBlock:
    """One printed table: values of keys that are in neither rows nor columns, and cells by row and column."""

    title: str
    heads: Names  # of the columns that hold names
    rows: tuple[Names, ...]
    columns: tuple[Names, ...]
    cells: dict[tuple[Names, Names], JudgedEntry]

    @property
    def judged(self) -> list[JudgedEntry]:
        """All its entries."""
        return list(self.cells.values())

    @property
    def column_titles(self) -> list[str]:
        """The titles of all columns in one line: those of names, then those of numbers."""
        return [*self.heads, *(" / ".join(names) for names in self.columns)]


def read_layout(text: str, keys: Sequence[str]) -> TableLayout:
    """The layout of ``method:split`` or ``data,method:split,score``: keys in rows, a colon, keys in columns."""
    sides = text.split(":")
    known = (*keys, SCORE)
    if len(sides) != 2:
        raise IsthmusError(f"--pivot is '{text}'; it takes keys of rows and of columns, like method:split.")
    rows, columns = (tuple(key.strip() for key in side.split(",") if key.strip()) for side in sides)
    for key in (*rows, *columns):
        if key not in known:
            raise unknown("key in --pivot", key, known)
    if len({*rows, *columns}) < len(rows) + len(columns) or not rows or not columns:
        raise IsthmusError(f"--pivot is '{text}'; every key stands once, and both sides have one at least.")
    if SCORE in rows:
        raise IsthmusError(
            "--pivot has the score in rows: then scores of different footing would share a column. Put it after the "
            "colon, or leave it out for a table of each."
        )
    return TableLayout(rows, columns)


def usual_layout(table: ScoreTable) -> TableLayout:
    """The compared key in rows; in columns the last other key that has several values, or without one the scores."""
    others = [key for key in table.keys if key != table.compared and len({e.place[key] for e in table.entries}) > 1]
    return TableLayout((table.compared,), (others[-1],) if others else (SCORE,))


def blocks(table: ScoreTable, layout: TableLayout) -> list[TableBlock]:
    """The tables of a layout, those of scores first, without rows and columns that hold nothing."""
    several = [key for key in table.keys if len({entry.place[key] for entry in table.entries}) > 1]
    rest = [key for key in (*several, SCORE) if key not in (*layout.rows, *layout.columns)]
    found: dict[Names, list[JudgedEntry]] = {}
    for each in sorted(table.judged, key=lambda each: table.measures.index(each.entry.measure)):
        if each.entry.mean is not None:
            found.setdefault(tuple(each.entry.at(key) for key in rest), []).append(each)
    return [_block(table, ", ".join(title), layout, each) for title, each in found.items()]


def _block(table: ScoreTable, title: str, layout: TableLayout, judged: Sequence[JudgedEntry]) -> TableBlock:
    """One table, with the names of every key in the order in which the whole table has them."""
    cells = {(_names(each, layout.rows), _names(each, layout.columns)): each for each in judged}
    order = {key: _order(table, key) for key in (*layout.rows, *layout.columns)}
    rows, columns = (
        tuple(sorted({at[side] for at in cells}, key=lambda names, keys=keys: _places(names, keys, order)))  # type: ignore[misc]
        for side, keys in enumerate((layout.rows, layout.columns))
    )
    return TableBlock(title, layout.rows, rows, columns, cells)


def _order(table: ScoreTable, key: str) -> dict[str, int]:
    """The names of a key with their places."""
    names = table.measures if key == SCORE else dict.fromkeys(entry.at(key) for entry in table.entries)
    return {name: place for place, name in enumerate(names)}


def _places(names: Names, keys: Names, order: dict[str, dict[str, int]]) -> list[int]:
    """The places of the names of several keys: one outer name makes one group."""
    return [order[key][name] for key, name in zip(keys, names, strict=True)]


def _names(each: JudgedEntry, keys: Names) -> Names:
    """The values of some keys of an entry."""
    return tuple(each.entry.at(key) for key in keys)
