"""Transaction files of IBM's anti-money-laundering data, read into arrays; errors name file, line and value."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import IsthmusError

# The header of the public files; the first Account sends, the second receives.
COLUMNS = (
    "Timestamp", "From Bank", "Account", "To Bank", "Account", "Amount Received", "Receiving Currency",
    "Amount Paid", "Payment Currency", "Payment Format", "Is Laundering",
)  # fmt: skip
SENDER, RECEIVER = "Account", "Account.1"  # both are "Account" in the file; pandas renames the second like this
NAMES = (*COLUMNS[:4], RECEIVER, *COLUMNS[5:])
AMOUNTS = ("Amount Received", "Amount Paid")
TIME = r"^\d{4}[/-]\d{2}[/-]\d{2}[ T]\d{2}:\d{2}(:\d{2})?$"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


@dataclass(frozen=True)
class WordColumn:
    """A column of words: ``names`` holds the distinct words, ``code`` the place of each row's word among them."""

    code: np.ndarray  # [rows]
    names: list[str]


@dataclass(frozen=True)
class Transfers:
    """All transactions of a file, in the order of its rows."""

    path: Path
    time: np.ndarray  # [m] int64, seconds since 1970
    bank: WordColumn  # [2 m] banks of all senders, then of all receivers
    account: WordColumn  # [2 m] accounts of all senders, then of all receivers
    received: np.ndarray  # [m] float64
    paid: np.ndarray  # [m] float64
    received_in: WordColumn  # [m] currency in which the amount arrived
    paid_in: WordColumn  # [m] currency in which the amount left
    format: WordColumn  # [m] how it was paid: Cheque, Wire, ...
    laundering: np.ndarray  # [m] int64, 0 or 1


def read_transfers(path: Path) -> Transfers:
    """The transactions of a CSV file; its columns may stand in any order, and other columns are ignored."""
    table = _read(path, _header(path), "float64")
    if not len(table):
        raise IsthmusError(f"{path} has a header but no transactions; give a file with one transaction in each line.")
    return Transfers(
        path=path,
        time=_times(path, table),
        bank=_words(path, table, "From Bank", "To Bank"),
        account=_words(path, table, SENDER, RECEIVER),
        received=_amounts(path, table, "Amount Received"),
        paid=_amounts(path, table, "Amount Paid"),
        received_in=_words(path, table, "Receiving Currency"),
        paid_in=_words(path, table, "Payment Currency"),
        format=_words(path, table, "Payment Format"),
        laundering=_labels(path, table),
    )


def _header(path: Path) -> list[str]:
    """The column names of a file, the second ``Account`` renamed to ``RECEIVER``; raises if one is missing."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            header = [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError) as error:
        raise IsthmusError(f"{path} cannot be read: {error}. Give a CSV file in UTF-8.") from error
    if not header:
        raise IsthmusError(f"{path} is empty; its first line must be: {','.join(COLUMNS)}.")
    if header.count(SENDER) == 2:
        header[len(header) - 1 - header[::-1].index(SENDER)] = RECEIVER
    missing = [name for name in NAMES if header.count(name) != 1]
    if missing:
        shown = "a second column 'Account'" if missing[0] == RECEIVER else f"exactly one column '{missing[0]}'"
        raise IsthmusError(
            f"{path} does not have {shown}; it has: {', '.join(header)}. "
            f"The first line must name: {', '.join(COLUMNS)}."
        )
    return header


def _read(path: Path, header: list[str], amounts: str) -> Any:
    """The columns ``NAMES`` of a file as a pyarrow table, with repeated words stored once.

    ``amounts`` is the pyarrow type of amounts; where a text is no number, the error says in which line.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow

    words = pa.dictionary(pa.int32(), pa.string())
    kinds = dict.fromkeys(NAMES, words) | dict.fromkeys(AMOUNTS, pa.type_for_alias(amounts))
    try:
        return arrow.read_csv(
            path,
            read_options=arrow.ReadOptions(column_names=header, skip_rows=1, block_size=1 << 24),
            convert_options=arrow.ConvertOptions(column_types=kinds, include_columns=list(NAMES)),
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if amounts != "string" and "conversion error" in str(error):
            _check_amounts(path, _read(path, header, "string"))
        reason = str(error).splitlines()[0]
        raise IsthmusError(f"{path} cannot be read: {reason} Repair the file or write it again.") from error


def _wrong(path: Path, name: str, row: int, what: str, todo: str) -> IsthmusError:
    """An error about one value in the line of ``row``: rows count from 0, lines from 1 and include the header."""
    shown = "Account" if name == RECEIVER else name
    return IsthmusError(f"{path}, line {row + 2}, column '{shown}': {what}; {todo}.")


def _check_amounts(path: Path, table: Any) -> None:
    """Raise an error for the first amount that is no number; the table holds amounts as text."""
    from pyarrow import compute

    for name in AMOUNTS:
        bad = np.flatnonzero(~compute.match_substring_regex(table[name], NUMBER).to_numpy())
        if len(bad):
            row = int(bad[0])
            raise _wrong(path, name, row, f"'{table[name][row]}' is not an amount", "write a number like 3697.34")


def _words(path: Path, table: Any, *columns: str) -> WordColumn:
    """The words of one column, or of several columns one after the other; raises where a word is missing."""
    import pyarrow as pa

    chunks = [chunk for name in columns for chunk in table[name].chunks]
    joined = pa.chunked_array(chunks).unify_dictionaries()
    code = np.concatenate([chunk.indices.to_numpy() for chunk in joined.chunks])
    names = joined.chunk(0).dictionary.to_pylist()
    if "" in names:
        at = int(np.flatnonzero(code == names.index(""))[0])
        column, row = columns[at // len(table)], at % len(table)
        raise _wrong(path, column, row, "nothing is written there", "fill it in or remove the line")
    return WordColumn(code, names)


def _times(path: Path, table: Any) -> np.ndarray:
    """The time of each row, in seconds since 1970: [m] int64. Each distinct text is parsed once."""
    words = _words(path, table, "Timestamp")
    seconds = np.array([_seconds(text) for text in words.names])
    bad = np.flatnonzero(np.isnat(seconds)[words.code])
    if len(bad):
        row = int(bad[0])
        text = words.names[words.code[row]]
        raise _wrong(path, "Timestamp", row, f"'{text}' is not a time", "write it like 2022/09/01 00:20")
    when: np.ndarray = seconds.astype(np.int64)[words.code]
    return when


def _seconds(text: str) -> np.datetime64:
    """A text as a time to the second; NaT (not a time) where the text is no time."""
    try:
        return np.datetime64(text.replace("/", "-") if re.match(TIME, text) else "NaT", "s")
    except ValueError:  # a date that does not exist, such as the thirty-first of February
        return np.datetime64("NaT", "s")


def _amounts(path: Path, table: Any, name: str) -> np.ndarray:
    """A column of amounts: [m] float64; raises where one is missing, negative or infinite."""
    amount: np.ndarray = table[name].to_numpy()
    bad = np.flatnonzero(~(np.isfinite(amount) & (amount >= 0)))
    if len(bad):
        row = int(bad[0])
        shown = "nothing is written there" if table[name][row].as_py() is None else f"the amount is {amount[row]:g}"
        raise _wrong(path, name, row, shown, "amounts are 0 or more")
    return amount


def _labels(path: Path, table: Any) -> np.ndarray:
    """The label of each row: [m] int64, 0 for ordinary transactions, 1 for laundering."""
    name = "Is Laundering"
    words = _words(path, table, name)
    value: np.ndarray = np.array([{"0": 0, "1": 1}.get(text, -1) for text in words.names])[words.code]
    bad = np.flatnonzero(value < 0)
    if len(bad):
        row = int(bad[0])
        text = words.names[words.code[row]]
        raise _wrong(path, name, row, f"the label is '{text}'", "write 0 (ordinary) or 1 (laundering)")
    return value
