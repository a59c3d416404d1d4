"""The command ``isthmus check``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from isthmus.cli.completion import split_names
from isthmus.cli.shared import Json, Set, console


def check(
    data: Annotated[str, typer.Argument(help="A folder with nodes and edges, or a folder of parts.")],
    silo: Annotated[str | None, typer.Option(help="Check this silo's part alone; the others need not be here.")] = None,
    silos: Annotated[int | None, typer.Option(help="Split a whole graph between so many silos.")] = None,
    split: Annotated[
        str | None,
        typer.Option(help="How: louvain, metis, random, label:ALPHA, attribute:COLUMN.", autocompletion=split_names),
    ] = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Find all problems of data at once, and tell what a run would do with it; exit code 1 if one would refuse it."""
    from isthmus.commands.check.check import check_command
    from isthmus.commands.check.reading import CheckRequest
    from isthmus.commands.check.text import sentences, tables, verdict

    checked = check_command(CheckRequest(data, silo, silos, split or "", tuple(set_ or ())))
    if as_json:
        print(json.dumps(checked.as_dict()))
    else:
        for table in tables(checked):
            console.print(table)
        for sentence in (*sentences(checked), verdict(checked)):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    if checked.problems:
        raise typer.Exit(1)
