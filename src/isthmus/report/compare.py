"""Several runs compared: a table for the terminal, a page, JSON, and tables for a paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from isthmus.core.files import write_atomic, writing
from isthmus.report.compare_columns import WORDS, shown_columns
from isthmus.report.compare_page import comparison_page, title_of
from isthmus.report.compare_verdict import verdict
from isthmus.report.compared_run import ComparedRun, cautions, comparison
from isthmus.report.compared_scores import compared_scores, layout_for
from isthmus.report.fitting import FittingTable
from isthmus.report.page import Cell
from isthmus.report.score_table import ScoreTable
from isthmus.report.table_files import format_of, table_files, table_text
from isthmus.runs.folder import RunFolder

_SIGNS = {"best": " *", "alike": " ="}


def comparison_table(folders: Sequence[RunFolder]) -> FittingTable:
    """The comparison for the terminal, in as many tables as its width needs; ``*`` marks the best of a column."""
    rows = comparison(folders)
    table = compared_scores(folders, rows)
    columns = shown_columns(rows, table, {})
    lines = [[_plain(cell(row), title) for title, cell in columns] for row in rows]
    tested = any(each.student is not None for each in table.judged)
    marks = "*: best of its column." + " =: cannot be told from it (paired by seed)." * tested
    told = [verdict(table, rows), marks if any(each.best for each in table.judged) else "", *cautions(rows)]
    said = " ".join(filter(None, told))
    return FittingTable(title_of(rows), [title for title, _ in columns], lines, WORDS, said)


def _plain(cell: Cell, title: str) -> str:
    """A cell for the terminal, with the sign of its mark; names have none."""
    return cell.text + ("" if title in WORDS else _SIGNS.get(cell.tone, ""))


def write_comparison(folders: Sequence[RunFolder], out: Path, pivot: str = "") -> Path:
    """Write ``comparison.html``, ``comparison.json`` and ``table.csv``, ``.tex``, ``.md`` into the folder ``out``.

    Returns the page's path. ``pivot`` lays out the tables, like ``method:data.split``.
    """
    rows = comparison(folders)
    table, paper = compared_scores(folders, rows), compared_scores(folders, rows, pivot)
    files = {
        "comparison.json": (json.dumps(_record(rows, table), indent=2) + "\n").encode(),
        "comparison.html": comparison_page(folders, rows, table, out).encode(),
        **table_files(paper, layout_for(paper, pivot)),
    }
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_atomic(out / name, content)
    return out / "comparison.html"


def _record(rows: Sequence[ComparedRun], table: ScoreTable) -> dict[str, object]:
    """The comparison as plain values."""
    plain = [asdict(row) | {"epsilon": "inf" if row.epsilon == float("inf") else row.epsilon} for row in rows]
    return {"verdict": verdict(table, rows), "runs": plain, "cautions": cautions(rows)}


def comparison_text(folders: Sequence[RunFolder], how: str, pivot: str = "") -> str:
    """The table of runs as CSV, LaTeX or Markdown."""
    table = compared_scores(folders, comparison(folders), pivot)
    return table_text(table, layout_for(table, pivot), how)


def write_table(folders: Sequence[RunFolder], path: Path, pivot: str = "") -> None:
    """Write the table of runs in the format that the suffix of the path names."""
    text = comparison_text(folders, format_of(path), pivot)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.encode())
