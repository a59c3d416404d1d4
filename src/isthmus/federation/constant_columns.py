"""Columns that hold the same in every row of every silo: they tell nothing apart, and are no features.

Each silo tells with its schema of which columns all its cells are alike, not what is in them. Only for a column that
is so in all silos each tells the server the number that stands there; a column that differs between silos stays a
feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind
from isthmus.federation.encodings import ALL_ALIKE, FIELDS, OF_EDGES, TABLES
from isthmus.graph.encoding import NUMBER, UNUSED, Encoding, TableColumn, as_columns, feature_names, told_columns
from isthmus.graph.silo import Silo
from isthmus.wire.wire import Wire


def without_constants(wire: Wire, silos: Sequence[Silo], told: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The columns that were agreed on, by table, those that hold one value in all silos as columns that are not used.

    ``told`` are the columns of each table as all silos know them from the server.
    """
    agreed = {table: as_columns(told[table]) for table in TABLES}
    asked = [(table, column) for table in TABLES for column in agreed[table] if column.constant]
    if not asked:
        return {table: list(told[table]) for table in TABLES}
    said = {silo.number: _values(silo, asked) for silo in silos}

    def judge(heard: dict[int, Tensor]) -> Tensor:
        for number, values in heard.items():
            if values.dtype != torch.float64 or values.shape != (1, len(asked)):
                raise PeerError(f"{wire.party(number)} sent something else than the values of {len(asked)} columns.")
        return _alike(torch.cat(list(heard.values())))

    alike = wire.settle(Kind.SCHEMA, said, judge).tolist()
    same = {(table, column.name) for (table, column), yes in zip(asked, alike, strict=True) if yes}
    return {table: told_columns(_settled(table, agreed[table], same)) for table in TABLES}


def _settled(table: str, columns: Encoding, same: set[tuple[str, str]]) -> Encoding:
    """Columns of a table, none of which is a candidate any more."""
    return tuple(
        TableColumn(column.name, UNUSED, why=ALL_ALIKE)
        if (table, column.name) in same
        else replace(column, constant=False)
        for column in columns
    )


def _alike(values: Tensor) -> Tensor:
    """For each column whether all that silos have said of it is one value, 1 or 0: [columns] uint8."""
    known = ~values.isnan()
    low = values.where(known, torch.inf).amin(0)
    high = values.where(known, -torch.inf).amax(0)
    return (low >= high).to(torch.uint8)


def _values(silo: Silo, asked: Sequence[tuple[str, TableColumn]]) -> Tensor:
    """The one number in each column that is asked for, NaN for words and where this silo has no row: [1, columns]."""
    row = torch.full((1, len(asked)), torch.nan, dtype=torch.float64)
    for place, (table, column) in enumerate(asked):
        encoding, features = FIELDS[table]
        x, names = getattr(silo, features), feature_names(getattr(silo, encoding))
        rows = silo.edge_index.shape[1] if table == OF_EDGES else silo.n
        if column.kind == NUMBER and rows and column.name in names:
            row[0, place] = float(x[0, names.index(column.name)])
    return row
