"""The command line."""

from __future__ import annotations

import os
import sys

import typer

from isthmus.cli.catalogue import datasets, methods
from isthmus.cli.finished import audit, compare, report, score
from isthmus.cli.graphs import simulate_aml, split
from isthmus.cli.studies import demo, reproduce
from isthmus.cli.training import plan, run
from isthmus.core.errors import IsthmusError

app = typer.Typer(
    help="One graph neural network across graphs that cannot be merged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    run, plan, methods, datasets, split, score, compare, report, audit, simulate_aml, demo, reproduce,
):  # fmt: skip
    app.command()(command)


def main() -> None:
    """Entry point: problems that the user can mend are one line on stderr and exit code 2."""
    try:
        app()
    except IsthmusError as error:
        print(f"isthmus: {error}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2) if "RANK" in os.environ else sys.exit(2)
