"""Commands that split or simulate graphs: ``isthmus split`` and ``isthmus simulate-aml``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.completion import data_names, split_names
from isthmus.cli.shared import Json, Set, console


def split(
    data: Annotated[
        str,
        typer.Argument(
            help="A data set, a folder with nodes and edges, or a .csv of transfers.", autocompletion=data_names
        ),
    ],
    silos: Annotated[
        int | None, typer.Option(help="Number of silos (default: 5; of attribute:COLUMN as many as it has values).")
    ] = None,
    how: Annotated[
        str,
        typer.Option(
            "--split", help="louvain, metis, random, label:ALPHA, attribute:COLUMN.", autocompletion=split_names
        ),
    ] = "louvain",
    out: Annotated[str | None, typer.Option(help="Write one folder of parts for each silo here.")] = None,
    set_: Set = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing parts.")] = False,
    as_json: Json = False,
) -> None:
    """Split a graph between silos: statistics, and parts on disk."""
    from isthmus.commands.split import split_command, stats_table

    rows = split_command(data, silos, how, tuple(set_ or ()), Path(out) if out else None, overwrite)
    if as_json:
        print(json.dumps(rows))
    else:
        console.print(stats_table(rows))
        if out:
            console.print(
                f"Parts are in {out}; train on them with: isthmus run --data {out}",
                highlight=False,
                soft_wrap=True,
            )


def simulate_aml(
    out: Annotated[str, typer.Option(help="Folder for the transactions and the list of laundering attempts.")],
    transactions: Annotated[int, typer.Option(help="Transactions in all.")] = 5_000_000,
    banks: Annotated[int, typer.Option(help="Number of banks; their sizes follow Zipf's law.")] = 500,
    accounts: Annotated[int, typer.Option(help="Accounts in all; 0 is one for every ten transactions.")] = 0,
    days: Annotated[int, typer.Option(help="Days that the transactions span.")] = 10,
    illicit_rate: Annotated[float, typer.Option(help="Share of transactions that launder.")] = 0.001,
    seed: Annotated[int, typer.Option(help="Seed; the same gives the same files.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate transfers between banks, with laundering among them, in the format of IBM's AML data."""
    from isthmus.data.interbank import Interbank
    from isthmus.data.write_aml import summary_table, watched_writing, write_simulated_aml

    settings = Interbank(transactions, banks, accounts, days, illicit_rate, seed)
    with watched_writing() as tell:
        summary = write_simulated_aml(settings, Path(out), overwrite, tell)
    if as_json:
        print(json.dumps(summary))
        return
    console.print(summary_table(summary))
    command = f"isthmus run --data aml --set data.path={summary['file']} --split attribute:bank"
    command += " --set train.messages=past"
    console.print(f"Train on them with: {command}", highlight=False, soft_wrap=True)
