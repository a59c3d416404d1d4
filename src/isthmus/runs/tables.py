"""The Parquet tables of a run: written with a checksum of every page, and read with it and with needed columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_WHEN = ("epoch", "step", "purpose")
LEDGER = (*_WHEN, "sender", "receiver", "kind", "event", "messages", "rows", "bytes")
STEPS = (*_WHEN, "kind", "messages", "rows", "bytes")
LEGS = (*_WHEN, "legs", "busiest")
RELEASES = ("silo", "node", "kind", "layer", "releases")


def write_checked(table: pa.Table, path: Path) -> None:
    """Write a table so that a byte that changes later is found out when it is read."""
    import pyarrow.parquet as pq

    pq.write_table(table, path, write_page_checksum=True)


def read_columns(needed: tuple[str, ...], path: Path) -> pa.Table:
    """The table in a file; raises ``ValueError`` (or ``OSError``) where it is damaged, or has no such columns."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, page_checksum_verification=True)
    if lacking := [name for name in needed if name not in table.column_names]:
        raise ValueError(f"it has no column '{lacking[0]}'")
    return table
