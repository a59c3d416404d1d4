"""Ids of nodes and of edges: public names that are unique, typed alike wherever they stand, and never features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isthmus.data.tables import ArrowColumn, Sheet, as_text, is_text

INTEGER = "^(0|-?[1-9][0-9]{0,18})$"  # no leading zeros: 007 is a name, not a number


def id_text(sheet: Sheet, name: str) -> ArrowColumn:
    """A column of ids as text; raises where an id is missing or neither text nor a whole number."""
    from pyarrow import compute, types

    column = sheet.column(name)
    if len(column) and not (is_text(column) or types.is_integer(column.type)):
        raise sheet.wrong(
            name, 0, f"{column[0].as_py()!r} ({column.type}) cannot be an id", "use whole numbers or text"
        )
    text = as_text(sheet, name).fill_null("")
    empty = np.flatnonzero(compute.equal(text, "").to_numpy())
    if len(empty):
        raise sheet.wrong(name, int(empty[0]), "a missing id", "give every row an id")
    return text


def check_unique(sheet: Sheet, ids: ArrowColumn) -> None:
    """Raise if an id stands in two rows of a table."""
    from pyarrow import compute

    counts = compute.value_counts(ids)
    twice = counts.filter(compute.greater(counts.field("counts"), 1))
    if len(twice):
        value = twice[0]["values"].as_py()
        rows = np.flatnonzero(compute.equal(ids, value).to_numpy()) + 1
        what = f"{value!r} appears in rows {rows[0]} and {rows[1]} ({len(twice):,} such ids)"
        raise sheet.wrong("id", int(rows[1]) - 1, what, "an id has one row: remove the others")


def rows_of(edges: Sheet, name: str, ends: ArrowColumn, ids: ArrowColumn) -> Tensor:
    """The row of each end of an edge among the ids of nodes: [m] int64; raises for an unknown id."""
    from pyarrow import compute

    row = compute.index_in(ends, value_set=ids)
    if row.null_count:
        at = int(np.flatnonzero(row.is_null().to_numpy())[0])
        what = f"{ends[at].as_py()!r} is not among the ids of the nodes"
        raise edges.wrong(name, at, what, "add the node or remove the edge")
    return torch.from_numpy(row.to_numpy().astype(np.int64))


def edge_ids(edges: Sheet) -> np.ndarray | None:
    """The ids of all edges [m], by which predictions are told apart; None where the table has no column ``id``."""
    if "id" not in edges.names:
        return None
    text = id_text(edges, "id")
    check_unique(edges, text)
    return np.asarray(text.to_pylist(), dtype=str)
