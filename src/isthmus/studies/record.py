"""The findings of a study as ``results.csv`` and ``results.json``."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from isthmus.studies.paired import base_of, paired
from isthmus.studies.results import ComparedValue, Findings, RowResult
from isthmus.studies.tuning import as_records

FIELDS = ("row", "column", "paper", "paper_std", "ours", "ours_std", "difference", "seeds", "pooled")


def as_csv(findings: Findings) -> str:
    """The findings as CSV in long format: a line for each row and column."""
    out = io.StringIO()
    writer = csv.DictWriter(out, (*findings.study.axes, *FIELDS), lineterminator="\n")
    writer.writeheader()
    for line in findings.lines:
        for name, cell in line.cells.items():
            place = {**line.row.at, "row": line.row.label, "column": name}
            writer.writerow({**place, "seeds": cell.seeds, **_numbers(cell)})
    return out.getvalue()


def _numbers(cell: ComparedValue) -> dict[str, float | None]:
    """The numbers of one place of the table by name, rounded to six digits after the point."""
    numbers: dict[str, float | None] = {}
    for name, value in (("paper", cell.paper), ("ours", cell.ours)):
        numbers |= {name: value.mean if value else None, f"{name}_std": value.std if value else None}
    numbers |= {"difference": cell.difference, "pooled": cell.pooled}
    return {name: None if value is None else round(value, 6) for name, value in numbers.items()}


def _against(findings: Findings, line: RowResult, column: str) -> dict[str, Any]:
    """The paired difference to the row that a row of a grid is compared with; empty where there is none."""
    base = base_of(findings, line.row) if findings.study.against else None
    found = None if base is None or base is line else paired(line, base, column)
    return {} if found is None else {"against": {"row": findings.study.against, **asdict(found)}}


def as_json(findings: Findings) -> str:
    """All findings as JSON, with the command that repeats them."""
    pairs, swapped = findings.order()
    rows = [
        {
            "row": line.row.label,
            **({"at": dict(line.row.at)} if line.row.at else {}),
            **({"left_out": line.row.left_out} if line.row.left_out else {}),
            "folder": line.row.slug,
            "seeds": list(line.seeds),
            "seconds": line.seconds,
            "error": line.error or None,
            "columns": {
                name: {**_numbers(cell), "by_seed": list(cell.runs), **_against(findings, line, name)}
                for name, cell in line.cells.items()
            },
        }
        for line in findings.lines
    ]
    study = findings.study
    head = {
        "study": study.name,
        "title": study.title,
        "source": study.source,
        "measure": study.measure,
        **findings.facts,
    }
    order = {"pairs": pairs, "swapped": [list(pair) for pair in swapped], "ties_within": study.close}
    whole = {**head, "complete": findings.complete, "notes": list(study.notes), "order": order, "rows": rows}
    if findings.tuned is not None:
        whole["tuning"] = as_records(findings.tuned)
    return json.dumps(whole, indent=2) + "\n"
