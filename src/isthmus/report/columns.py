"""The section of a report on columns: which features the model has learnt from, and which columns are none."""

from __future__ import annotations

from isthmus.core.name_lists import some_of
from isthmus.federation.encodings import OF_EDGES, OF_NODES
from isthmus.graph.encoding import EMPTY, NUMBER, UNUSED, WORDS, TableColumn, as_columns
from isthmus.report.page import CellRow, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import fact

_TABLES = (("Nodes", OF_NODES, "feature_names"), ("Edges", OF_EDGES, "edge_feature_names"))
_MOST = 40  # columns that are listed one by one


def columns(folder: RunFolder) -> str:
    """The section; empty where features have no names."""
    told, schema = fact(folder, "columns", {}), fact(folder, "schema", {})
    rows: list[CellRow] = []
    for title, key, names in _TABLES:
        plain = tuple(TableColumn(str(name)) for name in schema.get(names) or ())
        each = as_columns(told.get(key, ())) or plain
        rows += [[title, column.name, _becomes(column)] for column in each[:_MOST]]
        rows += [[title, f"{len(each) - _MOST:,} others", "a feature each"]] if len(each) > _MOST else []
    if not rows:
        return ""
    note = "What the model has learnt from, beside who is linked to whom."
    return f"<h2>Columns</h2>{table(['Table', 'Column', 'Becomes'], rows, note)}"


def _becomes(column: TableColumn) -> str:
    """What a column has become, in words."""
    gaps = ", and one that marks missing cells" if column.gaps else ""
    if column.kind == WORDS:
        return f"a feature for each word ({some_of(column.words)}){gaps}"
    if column.kind == NUMBER:
        return f"a feature{gaps}"
    return "no feature" + (f": {column.why}" if column.kind in (UNUSED, EMPTY) and column.why else "")
