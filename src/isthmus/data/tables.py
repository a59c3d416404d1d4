"""Tables of CSV and Parquet files, with errors that name file, column, row and value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import CellError, IsthmusError
from isthmus.data.text_files import Writing, writing_of

ArrowColumn = Any  # a pyarrow ChunkedArray
BLOCK = 2**23  # bytes that a CSV file is read by; a line must fit into a block


@dataclass(frozen=True)
class Sheet:
    """One table and the file it came from; rows are counted from 1 in messages, the header not counted."""

    path: Path
    table: Any  # a pyarrow Table
    note: str = ""  # how the file was read, where that was found out and is not usual

    @property
    def names(self) -> list[str]:
        """Column names, in the order of the file."""
        return list(self.table.column_names)

    def column(self, name: str) -> ArrowColumn:
        """The named column; raises if the table has none."""
        if name not in self.names:
            have = ", ".join(f"{have!r}" for have in self.names)
            raise IsthmusError(f"{self.path} has no column '{name}'; it has {have}. Add it, or rename one.")
        return self.table[name]

    def wrong(self, name: str, row: int, what: str, todo: str) -> CellError:
        """The error for one value of a column: what is wrong with it, and what to do."""
        return CellError(str(self.path), name, row + 1, what, todo)


def read_sheet(folder: Path, stem: str, text: tuple[str, ...] = ()) -> Sheet:
    """The table in ``stem.parquet`` or ``stem.csv``; columns of a CSV file named in ``text`` are read as text."""
    found = [path for path in (folder / f"{stem}.parquet", folder / f"{stem}.csv") if path.is_file()]
    if len(found) != 1:
        others = [path.name for end in ("xlsx", "xls", "csv.gz") for path in folder.glob(f"{stem}.{end}")]
        have = "both of them" if found else ", but ".join(["neither", *others])
        raise IsthmusError(
            f"{folder} must hold one of {stem}.parquet and {stem}.csv, and it holds {have}.{_of_parts(folder, stem)}"
        )
    return read_file(found[0], text)


def _of_parts(folder: Path, stem: str) -> str:
    """A hint for a folder that lacks a table which folders in it have: parts of silos that nothing names."""
    names = sorted(path.parent.name for path in folder.glob(f"*/{stem}.*") if path.suffix in (".csv", ".parquet"))
    if not names:
        return ""
    listed = ", ".join(f'"{name}"' for name in names[:2]) + (", ..." if len(names) > 2 else "")
    return (
        f" Its folders have {stem} ({len(names)} of them): where each is the part of a silo, write "
        f"{folder}/federation.toml with silos = [{listed}], the names of all of them."
    )


def read_file(path: Path, text: tuple[str, ...] = ()) -> Sheet:
    """The table in a CSV or Parquet file; columns of a CSV file named in ``text`` are read as text."""
    import pyarrow as pa

    note = ""
    try:
        if path.suffix == ".parquet":
            table = _parquet(path)
        else:
            writing = writing_of(path, text)
            table, note = _csv(path, text, writing), writing.note(path)
    except UnicodeDecodeError as error:
        raise IsthmusError(
            f"{path} cannot be read: byte {error.object[error.start]:#04x} is no text in UTF-8, nor in "
            "the encodings of Western Europe. Write it again in UTF-8."
        ) from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].strip().rstrip(".:")
        raise IsthmusError(f"{path} cannot be read: {reason}. Repair the file or write it again.") from error
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise IsthmusError(f"{path} has two columns named '{twice[0]}'; rename one of them.")
    unnamed = next((place for place, name in enumerate(table.column_names, 1) if _is_no_name(name)), 0)
    if unnamed:
        raise IsthmusError(
            f"{path}: column {unnamed} has no name, and row numbers would be a feature; write the table without them "
            "(in pandas index=False), or give the column a name."
        )
    return Sheet(path, table, note)


def _is_no_name(name: str) -> bool:
    """Whether a column's name is empty, or what pandas calls one without a name."""
    return not name.strip() or name.startswith(("Unnamed: ", "__index_level_"))


def _csv(path: Path, text: tuple[str, ...], writing: Writing) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    kinds = csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()))
    reading = csv.ReadOptions(block_size=max(BLOCK, 4 * writing.header), encoding=writing.encoding)
    return csv.read_csv(path, reading, csv.ParseOptions(delimiter=writing.mark), kinds)


def _parquet(path: Path) -> Any:
    """The table of a Parquet file; refuses one that would not fit into memory, which a small file can hide."""
    import psutil
    from pyarrow import parquet

    about = parquet.read_metadata(path)
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    cells = sum(group.column(place).num_values for group in groups for place in range(group.num_columns))
    free = psutil.virtual_memory().available
    if 8 * cells > free:
        raise IsthmusError(
            f"{path} holds {about.num_rows:,} rows, {8 * cells / 1e9:.1f} GB in memory, where {free / 1e9:.1f} GB are "
            "free; split it between silos first, drop columns, or use a larger machine."
        )
    return parquet.read_table(path)


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


def as_text(sheet: Sheet, name: str) -> ArrowColumn:
    """A column as strings; missing values and NaN are null. Raises for lists, bytes and whatever else is no word."""
    import pyarrow as pa
    from pyarrow import compute, types

    column = sheet.column(name)
    if types.is_floating(column.type):  # whole numbers with gaps arrive like this from pandas
        column = compute.if_else(compute.is_nan(column), None, column)
    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        row = undecodable(column) if types.is_binary(column.type) else int(np.argmax(column.is_valid().to_numpy()))
        shown = f"{column[row].as_py()!r}"
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        raise sheet.wrong(name, row, f"{shown} ({column.type}) is no word", "write words or numbers there") from error


def undecodable(column: ArrowColumn) -> int:
    """The first row of a column of bytes that are not UTF-8 text; 0 if there is none."""
    for row, value in enumerate(column.to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return row
    return 0
