"""Columns of CSV and Parquet files as arrays, with errors that name file, column, row and value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import SPLIT_NAMES, natural

ArrowColumn = Any  # a pyarrow ChunkedArray


@dataclass(frozen=True)
class Sheet:
    """One table and the file it came from; rows are counted from 1 in messages, the header not counted."""

    path: Path
    table: Any  # a pyarrow Table

    @property
    def names(self) -> list[str]:
        """Column names, in the order of the file."""
        return list(self.table.column_names)

    def column(self, name: str) -> ArrowColumn:
        """The named column; raises if the table has none."""
        if name not in self.names:
            have = ", ".join(f"'{have}'" for have in self.names)
            raise IsthmusError(f"{self.path} has no column '{name}'; it has {have}. Add it, or rename one.")
        return self.table[name]

    def wrong(self, name: str, row: int, what: str, todo: str) -> IsthmusError:
        """The error for one value of a column: what is wrong with it, and what to do."""
        return IsthmusError(f"{self.path}, column '{name}', row {row + 1}: {what}; {todo}.")


def read_sheet(folder: Path, stem: str, text: tuple[str, ...] = ()) -> Sheet:
    """The table in ``stem.parquet`` or ``stem.csv``; columns of a CSV file named in ``text`` are read as text."""
    found = [path for path in (folder / f"{stem}.parquet", folder / f"{stem}.csv") if path.is_file()]
    if len(found) != 1:
        have = "both of them" if found else "neither"
        raise IsthmusError(f"{folder} must hold one of {stem}.parquet and {stem}.csv, and it holds {have}.")
    return read_file(found[0], text)


def read_file(path: Path, text: tuple[str, ...] = ()) -> Sheet:
    """The table in a CSV or Parquet file; columns of a CSV file named in ``text`` are read as text."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        else:
            kinds = csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()))
            table = csv.read_csv(path, convert_options=kinds)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise IsthmusError(f"{path} cannot be read: {reason} Repair the file or write it again.") from error
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise IsthmusError(f"{path} has two columns named '{twice[0]}'; rename one of them.")
    return Sheet(path, table)


def is_text(column: ArrowColumn) -> bool:
    """Whether a column holds strings, plain or dictionary-encoded."""
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_number(column: ArrowColumn) -> bool:
    """Whether a column can be a feature: numbers or booleans (or of no type, in a table without rows)."""
    from pyarrow import types

    kind = column.type
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
    return any(test(kind) for test in tests)


def is_list(column: ArrowColumn) -> bool:
    """Whether a column holds lists."""
    from pyarrow import types

    return any(test(column.type) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list))


def as_text(column: ArrowColumn) -> ArrowColumn:
    """A column as strings; missing values and NaN are null."""
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_floating(column.type):  # whole numbers with gaps arrive like this from pandas
        column = compute.if_else(compute.is_nan(column), None, column)
    return column.cast(pa.string())


def numbers(sheet: Sheet, name: str) -> np.ndarray:
    """A column of finite numbers: [rows] float32; raises where one is missing or infinite."""
    import pyarrow as pa

    out = _single(sheet.column(name).cast(pa.float64()).to_numpy())
    bad = np.flatnonzero(~np.isfinite(out))
    if len(bad):
        row = int(bad[0])
        value = sheet.table[name][row].as_py()
        shown = "a missing value" if value is None else f"the value {value}"
        raise sheet.wrong(name, row, f"{shown} cannot be a feature", "fill or remove such rows")
    return out


def _single(x: np.ndarray) -> np.ndarray:
    """Numbers rounded to float32; those beyond its range become infinite, which callers report."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32)


def lists(sheet: Sheet, name: str) -> np.ndarray:
    """A column of equally long lists of finite numbers: [rows, length] float32; raises where one differs."""
    import pyarrow as pa
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
    out = _single(flat.cast(pa.float64()).to_numpy(zero_copy_only=False)).reshape(len(length), int(length[0]))
    bad = np.flatnonzero(~np.isfinite(out).all(axis=1))
    if len(bad):
        raise sheet.wrong(name, int(bad[0]), "a missing or infinite number in the list", "fill or remove such rows")
    return out


def splits(sheet: Sheet, name: str) -> Tensor:
    """A column of the words train, valid and test, or empty, as split numbers: [rows] int8."""
    from pyarrow import compute

    column = as_text(sheet.column(name)).fill_null("")
    code = compute.index_in(column, value_set=_strings(SPLIT_NAMES)).to_numpy()
    bad = np.flatnonzero(np.isnan(code.astype(np.float64)))
    if len(bad):
        row = int(bad[0])
        raise sheet.wrong(name, row, f"unknown split '{column[row]}'", "write train, valid, test or leave it empty")
    return torch.from_numpy(code.astype(np.int8))


def times(sheet: Sheet, name: str) -> Tensor:
    """A column of whole numbers, or of timestamps and dates as seconds since 1970: [rows] int64."""
    import pyarrow as pa
    from pyarrow import types

    column = sheet.column(name)
    if types.is_timestamp(column.type) or types.is_date(column.type):
        column = column.cast(pa.timestamp("s", tz=getattr(column.type, "tz", None)), safe=False)
    elif not types.is_integer(column.type) and len(column):
        example = column[0].as_py()
        raise sheet.wrong(
            name, 0, f"{example!r} is not a time", "use whole numbers or timestamps like 2022-09-01 00:20"
        )
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise sheet.wrong(name, row, "a missing time", "give every edge a time, or remove the column")
    return torch.from_numpy(column.cast(pa.int64()).to_numpy().copy())


def labels(column: ArrowColumn) -> tuple[Tensor, tuple[str, ...]]:
    """The class number of each row ([rows] int64, -1 where empty) and the class names, sorted with 2 before 10."""
    from pyarrow import compute

    text = as_text(column)
    names = sorted((name for name in compute.unique(text).to_pylist() if name), key=natural)
    code = compute.index_in(text, value_set=_strings(names)).fill_null(-1)
    return torch.from_numpy(code.to_numpy().astype(np.int64)), tuple(names)


def _strings(words: tuple[str, ...] | list[str]) -> Any:
    import pyarrow as pa

    return pa.array(words, pa.string())
