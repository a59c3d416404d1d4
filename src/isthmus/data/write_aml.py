"""Writing simulated transfers in IBM's format: the table of transactions, and the list of laundering attempts."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from isthmus.core.errors import IsthmusError
from isthmus.core.files import writing
from isthmus.data.aml_file import COLUMNS
from isthmus.data.interbank import CURRENCIES, Interbank, SimulatedTraffic, simulate
from isthmus.data.laundering import PATTERNS
from isthmus.data.simulated import FIRST_DAY, FORMAT_NAMES, account_names, bank_names

TRANSACTIONS, ATTEMPTS = "Interbank_Trans.csv", "Interbank_Patterns.txt"
CHUNK = 250_000  # rows written at once

RowsWritten = Callable[[int, int], None]  # rows written, and rows in all


def write_simulated_aml(settings: Interbank, folder: Path, overwrite: bool, tell: RowsWritten) -> dict[str, Any]:
    """Simulate transfers, write both files into ``folder``, and return a summary; no half-written file appears."""
    settings.check()
    _refuse_to_replace(folder, overwrite)
    start = time.perf_counter()
    traffic = simulate(settings)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_files(traffic, folder, tell)
    return {**_summary(traffic), "seconds": time.perf_counter() - start, "file": str(folder / TRANSACTIONS)}


def _write_files(traffic: SimulatedTraffic, folder: Path, tell: RowsWritten) -> None:
    """Write both files under hidden names, then rename them."""
    beside = {name: folder / f".{name}.unfinished" for name in (TRANSACTIONS, ATTEMPTS)}
    try:
        words = _Texts(traffic)
        _write_transactions(traffic, words, beside[TRANSACTIONS], tell)
        beside[ATTEMPTS].write_text(_attempts_text(traffic, words))
        for name, path in beside.items():
            path.rename(folder / name)
    finally:
        for path in beside.values():
            path.unlink(missing_ok=True)


def _refuse_to_replace(folder: Path, overwrite: bool) -> None:
    """Raise if the folder is a file, or holds files of an earlier simulation that must not be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise IsthmusError(f"'{folder}' is a file; choose another --out.")
    there = [name for name in (TRANSACTIONS, ATTEMPTS) if (folder / name).exists()]
    if there and not overwrite:
        raise IsthmusError(f"'{folder}' holds {there[0]}; choose another --out, or use --overwrite to replace it.")


class _Texts:
    """The names of banks, accounts, currencies, formats and minutes, which rows refer to by number."""

    def __init__(self, traffic: SimulatedTraffic) -> None:
        self.bank = pa.array(bank_names(traffic))
        self.account = pa.array(account_names(traffic))
        self.currency = pa.array(list(CURRENCIES))
        self.format = pa.array(FORMAT_NAMES)
        minutes = np.arange(int(traffic.minute.max()) + 1)
        texts = np.datetime_as_string(FIRST_DAY + minutes).tolist()
        self.minute = pa.array([text.replace("-", "/").replace("T", " ") for text in texts])


def _rows(traffic: SimulatedTraffic, words: _Texts, rows: slice | np.ndarray) -> Any:
    """Some rows as a pyarrow table with the columns of the public files."""
    source, target = traffic.source[rows], traffic.target[rows]
    columns = [
        words.minute.take(pa.array(traffic.minute[rows])),
        words.bank.take(pa.array(traffic.bank[source])),
        words.account.take(pa.array(source)),
        words.bank.take(pa.array(traffic.bank[target])),
        words.account.take(pa.array(target)),
        pa.array(traffic.received[rows]),
        words.currency.take(pa.array(traffic.received_in[rows])),
        pa.array(traffic.paid[rows]),
        words.currency.take(pa.array(traffic.paid_in[rows])),
        words.format.take(pa.array(traffic.format[rows])),
        pa.array((traffic.attempt[rows] >= 0).astype(np.int8)),
    ]
    return pa.table(columns, names=list(COLUMNS))


def _write(table: Any, file: Any) -> None:
    csv.write_csv(table, file, csv.WriteOptions(include_header=False, quoting_style="none"))


def _write_transactions(traffic: SimulatedTraffic, words: _Texts, path: Path, tell: RowsWritten) -> None:
    total = len(traffic.source)
    with open(path, "wb") as file:
        file.write((",".join(COLUMNS) + "\n").encode())
        for start in range(0, total, CHUNK):
            _write(_rows(traffic, words, slice(start, start + CHUNK)), file)
            tell(min(start + CHUNK, total), total)


def _attempts_text(traffic: SimulatedTraffic, words: _Texts) -> str:
    """The file of attempts: for each a BEGIN line, its transactions in order of time, and an END line."""
    rows = np.flatnonzero(traffic.attempt >= 0)
    rows = rows[np.argsort(traffic.attempt[rows], kind="stable")]
    file = io.BytesIO()
    _write(_rows(traffic, words, rows), file)
    lines = file.getvalue().decode().splitlines()
    ends = np.searchsorted(traffic.attempt[rows], np.arange(len(traffic.attempts.kind)), side="right").tolist()
    text = []
    start = 0
    for kind, width, end in zip(traffic.attempts.kind, traffic.attempts.width, ends, strict=True):
        pattern = PATTERNS[kind]
        text += [f"BEGIN LAUNDERING ATTEMPT - {pattern.name}{pattern.title.format(width)}", *lines[start:end]]
        text += [f"END LAUNDERING ATTEMPT - {pattern.name}", ""]
        start = end
    return "".join(line + "\n" for line in text)


def _summary(traffic: SimulatedTraffic) -> dict[str, Any]:
    """Counts and shares of what was simulated."""
    across = traffic.bank[traffic.source] != traffic.bank[traffic.target]
    illicit = traffic.attempt >= 0
    count = np.bincount(traffic.attempts.kind, minlength=len(PATTERNS)).tolist()
    return {
        "transactions": len(across),
        "accounts": len(traffic.bank),
        "banks": int(traffic.bank.max()) + 1,
        "illicit": int(illicit.sum()),
        "illicit_share": float(illicit.mean()),
        "across_banks": float(across.mean()),
        "illicit_across_banks": float(across[illicit].mean()) if illicit.any() else None,
        "attempts": {pattern.name.lower(): n for pattern, n in zip(PATTERNS, count, strict=True)},
    }


@contextmanager
def watched_writing() -> Iterator[RowsWritten]:
    """Yield a function that shows how many rows are written: a bar on a terminal, four lines where stderr is piped."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("simulating", total=None)
        yield lambda done, total: progress.update(task, description="writing", completed=done, total=total)


def _line(done: int, total: int) -> None:
    """Print one line whenever another quarter of a file is written; nothing for a file of a single chunk."""
    if total > CHUNK and 4 * done // total > 4 * (done - CHUNK) // total:
        print(f"simulate-aml: {done:,} of {total:,} transactions written", file=sys.stderr, flush=True)


def summary_table(summary: dict[str, Any]) -> Table:
    """The summary of a simulation as a table for the terminal."""
    table = Table("what", "value")
    table.columns[1].justify = "right"
    for name in ("transactions", "accounts", "banks", "illicit"):
        table.add_row(name, f"{summary[name]:,}")
    for name in ("illicit_share", "across_banks", "illicit_across_banks"):
        value = summary[name]
        table.add_row(name.replace("_", " "), "–" if value is None else f"{100 * value:.2f} %")
    for name, count in summary["attempts"].items():
        table.add_row(f"attempts: {name}", f"{count:,}")
    table.add_row("seconds", f"{summary['seconds']:.1f}")
    return table
