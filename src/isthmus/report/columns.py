"""The section of a report on columns: which features the model has learnt from, and which columns are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.core.name_lists import some_of
from isthmus.report.page import CellRow, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import fact

_TABLES = (("Nodes", "node_columns", "feature_names"), ("Edges", "edge_columns", "edge_feature_names"))
_MOST = 40  # columns that are listed one by one


def columns(folder: RunFolder) -> str:
    """The section; empty where features have no names."""
    told, schema = fact(folder, "columns", {}), fact(folder, "schema", {})
    rows: list[CellRow] = []
    for title, key, names in _TABLES:
        plain = [{"name": str(name), "kind": "number"} for name in schema.get(names) or ()]
        each = told.get(key) or plain
        rows += [[title, column["name"], _becomes(column)] for column in each[:_MOST]]
        rows += [[title, f"{len(each) - _MOST:,} others", "a feature each"]] if len(each) > _MOST else []
    if not rows:
        return ""
    note = "What the model has learnt from, beside who is linked to whom."
    return f"<h2>Columns</h2>{table(['Table', 'Column', 'Becomes'], rows, note)}"


def _becomes(column: Mapping[str, Any]) -> str:
    """What a column of ``metrics.json`` has become, in words."""
    gaps = ", and one that marks missing cells" if column.get("gaps") else ""
    if column["kind"] == "words":
        return f"a feature for each word ({some_of(column['words'])}){gaps}"
    if column["kind"] == "number":
        return f"a feature{gaps}"
    return f"no feature: {column['why']}" if column.get("why") else "no feature"
