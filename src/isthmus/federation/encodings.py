"""Agreeing on how columns become features: which words they have in all silos together, and what fills gaps.

Where every column of every silo is numbers without gaps nothing of this crosses. Else each silo tells the server its
columns and their words with its schema; where numbers have gaps also sums, as statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.name_lists import some_of
from isthmus.core.tensors import stacked
from isthmus.graph.encoding import (
    EMPTY,
    KINDS,
    NUMBER,
    UNUSED,
    WORDS,
    Encoding,
    TableColumn,
    as_columns,
    feature_names,
    fills_of,
    folded,
    plain_columns,
    recode,
    told_columns,
    with_fills,
)
from isthmus.graph.features import SparseRows
from isthmus.graph.silo import Silo, changed
from isthmus.wire.wire import Wire

ALL_ALIKE = "all cells of the column, in all silos, are alike, so that it tells nothing apart"
OF_NODES, OF_EDGES = "node_columns", "edge_columns"
TABLES = {OF_NODES: "feature_names", OF_EDGES: "edge_feature_names"}  # of a silo's schema
FIELDS = {OF_NODES: ("node_encoding", "x"), OF_EDGES: ("edge_encoding", "edge_attr")}  # of a silo: columns, features


def described_columns(silo: Silo) -> dict[str, Any]:
    """What a silo tells of its columns beside its schema; nothing of a table whose columns are plain numbers."""
    told = {OF_NODES: silo.node_encoding, OF_EDGES: silo.edge_encoding or _of_no_edges(silo)}
    return {table: _without_fills(columns) for table, columns in told.items() if columns}


def _of_no_edges(silo: Silo) -> Encoding:
    """Columns of edges of a silo that has nodes and no edges, which may be anything."""
    return plain_columns(silo.schema.edge_feature_names, 0) if silo.n and not silo.edge_index.shape[1] else ()


def _without_fills(columns: Encoding) -> list[dict[str, Any]]:
    """Columns as JSON, without means of this silo's values."""
    return told_columns(tuple(replace(column, fill=0.0) for column in columns))


def is_told_columns(told: object) -> bool:
    """Whether what a peer sent describes columns."""
    return isinstance(told, list) and all(
        isinstance(each, dict)
        and set(each) == set(TableColumn.__dataclass_fields__)
        and isinstance(each["name"], str)
        and each["kind"] in KINDS
        and isinstance(each["words"], list)
        and all(isinstance(word, str) for word in each["words"])
        and isinstance(each["gaps"], bool)
        and isinstance(each["why"], str)
        and isinstance(each["constant"], bool)
        for each in told
    )


def agree_columns(schemas: Sequence[Mapping[str, Any]], table: str, most: int) -> tuple[str, Encoding]:
    """An error in words, or the columns that all silos have then; nothing where all are plain.

    ``schemas`` are the silos' descriptions, ``most`` the number of words that a column may have.
    """
    if not any(table in schema for schema in schemas):
        return "", ()
    described = [(str(schema["name"]), _columns_of(schema, table)) for schema in schemas]
    each = [(silo, columns) for silo, columns in described if columns is not None]
    wanted = dict.fromkeys(column.name for _, columns in each for column in columns)
    agreed: list[TableColumn] = []
    for name in wanted:
        having = [(silo, column) for silo, columns in each for column in columns if column.name == name]
        error, column = _agree_on(having, most)
        lacking = [silo for silo, columns in each if name not in {column.name for column in columns}]
        if lacking and column.kind != UNUSED:
            what = "edges" if table == OF_EDGES else "nodes"
            error = f"Silos disagree on columns of {what}: {having[0][0]} has '{name}' and {lacking[0]} has not."
            error += " One model needs one schema; add it there, or remove it."
        if error:
            return error, ()
        agreed.append(column)
    orders = {tuple(column.name for column in columns) for _, columns in each}
    return "", () if all(column.plain for column in agreed) and len(orders) == 1 else tuple(agreed)


def _columns_of(schema: Mapping[str, Any], table: str) -> Encoding | None:
    """The columns that a silo has described; None for a silo without rows or columns, which agrees with any."""
    if table in schema:
        return as_columns(schema[table])
    names = schema[TABLES[table]]
    return plain_columns(names, 1) if names and schema["ids"] else None


def _agree_on(told: Sequence[tuple[str, TableColumn]], most: int) -> tuple[str, TableColumn]:
    """An error, or one column as all silos have it: numbers or words; unused where one of them cannot use it."""
    name = told[0][1].name
    unused = {column.why: silo for silo, column in told if column.kind == UNUSED}
    kinds = {column.kind: silo for silo, column in told if column.kind in (NUMBER, WORDS)}
    if not unused and not kinds and not any(column.gaps for _, column in told):
        return "", TableColumn(name)  # nobody has a row, so that nothing speaks against numbers
    if unused or not kinds:
        why, silo = next(iter(unused.items()), ("all its cells are empty", ""))
        alike = len(unused) < 2 and not kinds
        return "", TableColumn(name, UNUSED, why=why if alike else f"in {silo} {why}")
    if len(kinds) > 1:
        error = (
            f"Silos disagree on column '{name}': {kinds[NUMBER]} has numbers, {kinds[WORDS]} has words. Write it "
            "alike, or name it as an attribute in the silo.toml of all."
        )
        return error, TableColumn(name)
    gaps = any(column.gaps for _, column in told)
    alike = not gaps and all(column.constant for _, column in told if column.kind != EMPTY)
    if NUMBER in kinds:
        return "", TableColumn(name, NUMBER, gaps=gaps, constant=alike)
    by_fold: dict[str, str] = reduce(
        lambda found, word: found | {folded(word): found.get(folded(word), word)},
        sorted(word for _, column in told for word in column.words),
        dict[str, str](),
    )
    if len(by_fold) > most:
        why = f"silos have {len(by_fold):,} different words together, and data.categories = {most} is the most"
        return "", TableColumn(name, UNUSED, why=why)
    return "", TableColumn(name, WORDS, tuple(by_fold.values()), gaps, constant=alike and len(by_fold) == 1)


def with_agreed_columns(silo: Silo, told: Mapping[str, Any]) -> Silo:
    """The silo with features recoded to the columns that all agreed on: {table: columns}, none where all are plain."""
    for table, columns in told.items():
        encoding, _ = FIELDS[table]
        plain: dict[str, Any] = {encoding: ()}
        silo = recoded(silo, table, as_columns(columns)) if columns else changed(silo, **plain)
    return silo


def recoded(silo: Silo, table: str, agreed: Encoding) -> Silo:
    """The silo with the features of one table recoded to agreed columns, and notes on what it cannot use."""
    encoding, features = FIELDS[table]
    count, names = ("features", "feature_names") if table == OF_NODES else ("edge_features", "edge_feature_names")
    x, named = getattr(silo, features), getattr(silo.schema, names)
    if isinstance(x, SparseRows):
        raise IsthmusError(f"{silo.name} has sparse features, and other silos have words or gaps; make all alike.")
    rows = silo.n if table == OF_NODES else silo.edge_index.shape[1]
    have = {column.name for column in getattr(silo, encoding)} or set(named)
    mine = getattr(silo, encoding) or plain_columns(named, rows)
    mine = (*mine, *(TableColumn(column.name, EMPTY) for column in agreed if column.name not in have))
    found = recode(torch.zeros(rows, 0) if x is None else x, mine, agreed)
    found = found if table == OF_EDGES or feature_names(agreed) else torch.ones(rows, 1)
    now = feature_names(agreed) or (("one",) if table == OF_NODES else ())
    values: dict[str, Any] = {count: len(now), names: now}
    schema = replace(silo.schema, **values)
    dropped = [column for column in agreed if column.kind == UNUSED and column.name in used_columns(mine)]
    notes = _unused_notes(silo, table, dropped) + _respelt(silo.name, x, mine, agreed)
    changes: dict[str, Any] = {features: found if now else None, encoding: agreed}
    return changed(silo, schema=schema, notes=(*silo.notes, *notes), **changes)


def _respelt(name: str, x: Tensor | None, mine: Encoding, agreed: Encoding) -> list[str]:
    """A sentence on rows of a silo with words that the others write otherwise, in case alone; none if none are."""
    place, rows = {feature: at for at, feature in enumerate(feature_names(mine))}, dict[str, int]()
    theirs = {column.name: {*column.words} for column in agreed if column.kind == WORDS}
    for column in mine:
        known = {folded(word) for word in theirs.get(column.name, ())}
        for word in column.words if column.kind == WORDS else ():
            if x is not None and folded(word) in known and word not in theirs[column.name]:
                rows[column.name] = rows.get(column.name, 0) + int(x[:, place[f"{column.name}={word}"]].sum())
    told = some_of([f"'{column}' ({count:,})" for column, count in rows.items() if count])
    return [f"{name}: rows have words that others write otherwise, in case alone: {told}."] if told else []


def _unused_notes(silo: Silo, table: str, dropped: Sequence[TableColumn]) -> list[str]:
    """Sentences on columns that are no features, in the same words of all silos where all of them have one alike."""
    alike = some_of([f"'{column.name}'" for column in dropped if column.why == ALL_ALIKE])
    of = "edges" if table == OF_EDGES else "nodes"
    notes = [f"No feature is made of these columns of {of}: {alike}: {ALL_ALIKE}."] if alike else []
    others = [column for column in dropped if column.why != ALL_ALIKE]
    return notes + [f"{silo.name}: column '{column.name}' is no feature: {column.why}." for column in others]


def used_columns(columns: Encoding) -> set[str]:
    """Names of the columns that features are made of."""
    return {column.name for column in columns if column.kind in (NUMBER, WORDS)}


def agree_fills(
    wire: Wire, silos: Sequence[Silo], told: Mapping[str, Any], agreed: bool
) -> tuple[list[Silo], dict[str, Encoding]]:
    """My silos with gaps of numbers filled by the means of all silos, or, where these are not ``agreed``, by their own.

    ``told`` are the columns of each table; returns them too, with what fills their gaps (None: each silo's own mean).
    Nothing crosses for a table without gaps.
    """
    found, known = list(silos), dict[str, Encoding]()
    for table, columns in told.items():
        known[table] = as_columns(columns)
        gaps = sum(column.kind == NUMBER and column.gaps for column in known[table])
        if gaps:
            mine = [fills_of(_known_once(silo, table), getattr(silo, FIELDS[table][0])) for silo in found]
            like = torch.zeros(gaps, 2, dtype=torch.float64)
            sums = wire.total(Kind.STATISTICS, stacked(mine, like)) if agreed else None
            found = [_filled(silo, table, own if sums is None else sums) for silo, own in zip(found, mine, strict=True)]
            known[table] = _unfilled(known[table]) if sums is None else with_fills(known[table], sums)
    return found, {table: columns for table, columns in known.items() if columns}


def _unfilled(columns: Encoding) -> Encoding:
    """Columns whose gaps each silo fills with a mean of its own."""
    return tuple(replace(column, fill=None) for column in columns)


def _known_once(silo: Silo, table: str) -> Tensor:
    """Features of nodes, or of edges that end at a node of this silo, so that each edge counts once."""
    if table == OF_NODES:
        assert isinstance(silo.x, Tensor)
        return silo.x
    assert silo.edge_attr is not None
    return silo.edge_attr[silo.edge_index[1] < silo.n]


def _filled(silo: Silo, table: str, sums: Tensor) -> Silo:
    encoding, features = FIELDS[table]
    columns = with_fills(getattr(silo, encoding), sums)
    changes: dict[str, Any] = {features: recode(getattr(silo, features), columns, columns), encoding: columns}
    return changed(silo, **changes)
