"""Columns of a table as arrays: numbers, lists, splits, times and labels; what cannot be one is refused by row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.name_lists import some_of
from isthmus.data.cells import MAYBE, MISSING
from isthmus.data.tables import ArrowColumn, Sheet, as_text, is_number
from isthmus.graph.graph import SPLIT_NAMES, natural, one_spelling, spelt_alike

FEW = 3  # rows: the name of a class that fewer have may tell of one of them
MANY = 10  # labels of more kinds than this, and than half of the rows, are hardly classes
MOST = 2**53  # beyond, not every whole number is a float64


def numbers(sheet: Sheet, name: str) -> np.ndarray:
    """A column of numbers: [rows] float32, NaN where one is missing; raises where one is infinite or too long."""
    out = _single(_floats(sheet, name, sheet.column(name)))
    bad = np.flatnonzero(np.isinf(out))
    if len(bad):
        row = int(bad[0])
        value = sheet.table[name][row].as_py()
        raise sheet.wrong(name, row, f"the value {value} cannot be a feature", "fill or remove such rows")
    return out


def _floats(sheet: Sheet, name: str, column: ArrowColumn, each: int = 1) -> np.ndarray:
    """Numbers as float64, ``each`` of them to a row; raises for whole numbers that have more digits than it holds."""
    import pyarrow as pa

    try:
        out: np.ndarray = column.cast(pa.float64()).to_numpy(**_copying(column))
        return out
    except pa.ArrowInvalid as error:
        rough = column.cast(pa.float64(), safe=False).to_numpy(**_copying(column))
        at = int(np.argmax(np.abs(rough) >= MOST))
        what = f"{column[at].as_py()} has more digits than a feature can hold"
        todo = "name the column as an attribute if it is an id, else write smaller numbers"
        raise sheet.wrong(name, at // each, what, todo) from error


def _copying(column: ArrowColumn) -> dict[str, bool]:
    """What ``to_numpy`` of a plain array must be told, and that of a chunked one must not."""
    return {} if hasattr(column, "chunks") else {"zero_copy_only": False}


def _single(x: np.ndarray) -> np.ndarray:
    """Numbers rounded to float32; those beyond its range become infinite, which callers report."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def lists(sheet: Sheet, name: str) -> np.ndarray:
    """A column of equally long lists of finite numbers: [rows, length] float32; raises where one differs."""
    from pyarrow import compute

    column = sheet.column(name).combine_chunks()
    length = compute.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(length != length[0])
    if len(bad) or length[0] < 1:
        row = int(bad[0]) if len(bad) else 0
        what = f"{max(length[row], 0)} numbers, where row 1 has {max(length[0], 0)}"
        raise sheet.wrong(name, row, what, "give every row a list of the same length")
    flat = compute.list_flatten(column)
    if not is_number(flat):
        raise sheet.wrong(name, 0, f"lists of {flat.type}", "give lists of numbers")
    out = _single(_floats(sheet, name, flat, int(length[0]))).reshape(len(length), int(length[0]))
    bad = np.flatnonzero(~np.isfinite(out).all(axis=1))
    if len(bad):
        raise sheet.wrong(name, int(bad[0]), "a missing or infinite number in the list", "fill or remove such rows")
    return out


def splits(sheet: Sheet, name: str) -> Tensor:
    """A column of the words train, valid and test, or empty, as split numbers: [rows] int8."""
    from pyarrow import compute

    column = as_text(sheet, name).fill_null("")
    code = compute.index_in(column, value_set=_strings(SPLIT_NAMES)).to_numpy()
    bad = np.flatnonzero(np.isnan(code.astype(np.float64)))
    if len(bad):
        row = int(bad[0])
        raise sheet.wrong(name, row, f"unknown split '{column[row]}'", "write train, valid, test or leave it empty")
    return torch.from_numpy(code.astype(np.int8))


def times(sheet: Sheet, name: str) -> Tensor:
    """A column of whole numbers, or of timestamps and dates as seconds since 1970: [rows] int64."""
    import pyarrow as pa
    from pyarrow import compute, types

    column = sheet.column(name)
    if types.is_timestamp(column.type) or types.is_date(column.type):
        column = column.cast(pa.timestamp("s", tz=getattr(column.type, "tz", None)), safe=False)
    elif not types.is_integer(column.type) and len(column):
        row = _no_time(column)
        what = f"{column[row].as_py()!r} is not a time"
        raise sheet.wrong(name, row, what, "use whole numbers or timestamps like 2022-09-01 00:20")
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise sheet.wrong(name, row, "a missing time", "give every edge a time, or remove the column")
    if types.is_uint64(column.type):
        late = np.flatnonzero(compute.greater(column, pa.scalar(2**63 - 1, pa.uint64())).to_numpy())
        if len(late):
            row = int(late[0])
            raise sheet.wrong(name, row, f"{column[row].as_py()} does not fit into 64 bits", "count from a later start")
    return torch.from_numpy(column.cast(pa.int64()).to_numpy().copy())


def _no_time(column: ArrowColumn) -> int:
    """The first row that is neither a whole number of 64 bits nor a date, because of which the column is none of times.

    Where every row by itself could be a time, it is the first one.
    """
    for row, value in enumerate(column.to_pylist()):
        if isinstance(value, float) and not (value.is_integer() and abs(value) < 2**63):
            return row
        if isinstance(value, str) and not re.match(r"[+-]?[0-9]+$|[0-9]{4}-[0-9]{2}-[0-9]{2}", value.strip()):
            return row
    return 0


def labels(sheet: Sheet, name: str, declared: Sequence[str] = ()) -> tuple[Tensor, tuple[str, ...]]:
    """The class number of each row ([rows] int64, -1 where empty) and the class names, sorted with 2 before 10.

    Where all names are whole numbers 1.0 is 1: programs write it so as soon as one label of a column is missing. Words
    for a missing value, a -1 beside 0, and names that differ in case or blanks alone, are refused, unless they are
    ``declared`` to be classes.
    """
    from pyarrow import compute

    text = as_text(sheet, name)
    spelt = [word for word in compute.unique(text).to_pylist() if word]
    counted = not {"0", "0.0"}.isdisjoint(spelt)  # classes are numbered, and -1 is then no class but an unknown one
    for word in spelt:
        missing = word.strip().lower() in MISSING or not word.strip() or (counted and word in ("-1", "-1.0"))
        if missing and word not in declared:
            row = int(np.argmax(compute.equal(text, word).fill_null(False).to_numpy()))
            what = f"the label {word!r} reads like a missing value"
            raise sheet.wrong(name, row, what, "leave it empty if the label is unknown, or rename the class")
    if twins := spelt_alike(word for word in spelt if word not in declared):
        row = int(np.argmax(compute.equal(text, twins[1]).fill_null(False).to_numpy()))
        what = f"the labels {twins[0]!r} and {twins[1]!r} differ in case or blanks alone"
        raise sheet.wrong(name, row, what, "write a class in one way, or rename one of two classes")
    whole = all(re.fullmatch(r"-?[0-9]+(\.0+)?", word) for word in spelt) and not set(spelt) & set(declared)
    spelling = {} if set(spelt) & set(declared) else one_spelling(spelt)
    known = {word: word.split(".")[0] if whole else spelling.get(word, word) for word in spelt}
    names = sorted(set(known.values()), key=natural)
    code = compute.index_in(text, value_set=_strings(spelt)).fill_null(-1).to_numpy().astype(np.int64)
    number = np.array([*(names.index(known[word]) for word in spelt), -1])
    return torch.from_numpy(number[code]), tuple(names)


def note_on_labels(sheet: Sheet) -> tuple[str, ...]:
    """A sentence on labels that are learnt as classes and may be none: ``unknown``, or a value for every other row."""
    from pyarrow import compute

    if "label" not in sheet.names:
        return ()
    known = as_text(sheet, "label").drop_null()
    kinds, rows = len(compute.unique(known)), len(known)
    if kinds > max(MANY, rows // 2):
        return (
            f"{sheet.path}: {rows:,} labels have {kinds:,} different values, each of which is learnt as a class; "
            "numbers are not fitted here.",
        )
    found = compute.is_in(compute.utf8_lower(as_text(sheet, "label").fill_null("")), value_set=_strings(MAYBE))
    count = int(found.to_numpy().sum())
    if not count:
        return ()
    return (
        f"{sheet.path}: {count:,} rows have one of the labels {', '.join(MAYBE)}, which is learnt as a class; leave "
        "the label empty where it is not known.",
    )


def note_on_rare_labels(sheet: Sheet, rarest: int) -> tuple[str, ...]:
    """A sentence on classes that hardly a row has, whose names all silos hear; raises where ``rarest`` refuses one."""
    rows = _rows_by_label(sheet)
    for word, places in rows.items():
        if len(places) < rarest:
            what = f"the label {word!r} is in {len(places)} rows, and data.rarest = {rarest} lets no silo hear its name"
            todo = "leave it empty there, merge it with another class, or list labels in the silo.toml of all parts"
            raise sheet.wrong("label", int(places[0]), what, todo)
    rare = some_of([f"{word!r} ({len(places)})" for word, places in rows.items() if len(places) < FEW])
    if not rare:
        return ()
    return (
        f"{sheet.path}: labels that fewer than {FEW} rows have are told by name to the server and all silos, as all "
        f"labels are: {rare}; data.rarest={FEW} refuses them.",
    )


def _rows_by_label(sheet: Sheet) -> dict[str, np.ndarray]:
    """The rows of each class, as a table writes it; empty where it has no column ``label``."""
    if "label" not in sheet.names:
        return {}
    y, names = labels(sheet, "label")
    return {name: np.flatnonzero(y.numpy() == place) for place, name in enumerate(names)}


def refuse_label_columns(sheet: Sheet, tasks: Sequence[str] = ()) -> None:
    """Raise for a column ``label:NAME`` that is not one of the ``tasks``: it would become a feature, and tell."""
    for name in sheet.names:
        if name.startswith("label:") and name not in tasks:
            raise IsthmusError(
                f"{sheet.path}, column '{name}' is called like a yes/no label, and would be a feature; in a part, "
                'declare task = "tasks" and its labels in silo.toml, else rename or remove it.'
            )


def _strings(words: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.array(words, pa.string())
