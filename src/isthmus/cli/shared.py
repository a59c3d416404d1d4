"""Shared by all commands: the console, options that many of them take, and the printing of lists."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

console = Console(markup=False, emoji=False)  # names of silos, columns and classes are a user's own words

Set = Annotated[list[str] | None, typer.Option("--set", help="Any key of the configuration, like train.lr=0.01.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def show(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    """Print rows as a table of some columns, or all of them as JSON."""
    if as_json:
        print(json.dumps(rows, default=list))
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    console.print(table)
