"""New data with the columns that a model was trained with: recoded to them, refused, or said what it has never seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.name_lists import some_of
from isthmus.federation.encodings import FIELDS, OF_NODES, TABLES, recoded, used_columns
from isthmus.graph.encoding import (
    NUMBER,
    UNUSED,
    WORDS,
    Encoding,
    TableColumn,
    as_columns,
    feature_names,
    folded,
    plain_columns,
)
from isthmus.graph.features import SparseRows
from isthmus.graph.silo import Silo, changed


def recoded_again(silo: Silo, told: Mapping[str, Any], trained: Mapping[str, Any], data: str) -> tuple[Silo, list[str]]:
    """New data with the features that a model was trained with, and sentences on what the model has never seen.

    ``told`` are the columns that the run has written down, ``trained`` is its schema.
    """
    notes: list[str] = []
    for table, names in TABLES.items():
        encoding, features = FIELDS[table]
        wanted = as_columns(told.get(table, ()))
        mine: Encoding = getattr(silo, encoding)
        if wanted or mine:
            rows = silo.n if table == OF_NODES else silo.edge_index.shape[1]
            mine = mine or plain_columns(getattr(silo.schema, names), rows)
            wanted = wanted or tuple(map(TableColumn, trained[names]))
            _check_columns(mine, wanted, data)
            notes += _unseen(getattr(silo, features), mine, wanted, data)
            silo = recoded(silo, table, wanted)
            plain: dict[str, Any] = {encoding: ()}
            silo = changed(silo, **plain)
    return silo, notes


def _check_columns(mine: Encoding, wanted: Encoding, data: str) -> None:
    """Refuse new data that lacks a column of the model, has one beside them, or one of another kind."""
    have, need = ({column.name: column for column in each} for each in (mine, wanted))
    lacking = [name for name, column in need.items() if column.kind in (NUMBER, WORDS) and name not in have]
    strange = sorted(used_columns(mine) - set(need) - {"one"})
    if lacking or strange:
        what = f"lacks the column '{lacking[0]}'" if lacking else f"has the column '{strange[0]}'"
        side = "which it was trained with" if lacking else "which it was not trained with"
        raise IsthmusError(f"The model fits other columns: {data} {what}, {side}; give it the columns of the training.")
    for name, column in need.items():
        kinds = {column.kind, have[name].kind} if name in have else set()
        if kinds == {NUMBER, WORDS}:
            raise IsthmusError(
                f"Column '{name}' of {data} has {have[name].kind}, and the model was trained with {column.kind} in it; "
                "write it as it was."
            )


def _unseen(x: Tensor | SparseRows | None, mine: Encoding, wanted: Encoding, data: str) -> list[str]:
    """Sentences on words and gaps in new data that the model was not trained with."""
    if not isinstance(x, Tensor):
        return []
    need, notes = {column.name: column for column in wanted}, list[str]()
    place = {name: at for at, name in enumerate(feature_names(mine))}
    for column in mine:
        known = need.get(column.name)
        if known is None or known.kind == UNUSED:
            continue
        words = [word for word in column.words if folded(word) not in {folded(each) for each in known.words}]
        if known.kind == WORDS and words:
            rows = int(sum(x[:, place[f"{column.name}={word}"]].sum() for word in words))
            shown = some_of([repr(word) for word in words])
            notes.append(
                f"{data}: {rows:,} rows have words in '{column.name}' that the model has never seen ({shown}): to it "
                "they are none of its words."
            )
        if column.gaps and not known.gaps:
            rows = int(x[:, place[f"{column.name} missing"]].sum())
            notes.append(
                f"{data}: {rows:,} cells are missing in '{column.name}', of which none was missing in training; "
                f"{'the mean of the others stands there' if known.kind == NUMBER else 'they are none of its words'}."
            )
    return notes
