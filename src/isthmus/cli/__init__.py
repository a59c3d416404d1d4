"""The command line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from isthmus.cli import flare
from isthmus.cli.catalogue import datasets, methods
from isthmus.cli.check import check
from isthmus.cli.finished import audit, compare, disclose, report, score
from isthmus.cli.graphs import simulate_aml, split
from isthmus.cli.operations import forget, status
from isthmus.cli.page import page
from isthmus.cli.policy import app as policy
from isthmus.cli.studies import demo, reproduce, study, sweep
from isthmus.cli.training import plan, run
from isthmus.core.errors import IsthmusError
from isthmus.core.files import telling_of_disks
from isthmus.core.plugins import add_plugins
from isthmus.core.version import VERSION

app = typer.Typer(
    help="One graph neural network across graphs that cannot be merged. With every command: --plugin FILE.py loads "
    "methods, parts, layers or data sets of your own.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    check, run, plan, methods, datasets, split, score, compare, report, audit, disclose, simulate_aml, demo, reproduce,
    study, sweep, page,
    status, forget,
):  # fmt: skip
    app.command()(command)
app.add_typer(flare.app, name="flare")
app.add_typer(policy, name="policy")


def _show_version(asked: bool) -> None:
    """Print the version and end, where it was asked for."""
    if asked:
        print(f"isthmus {VERSION}")
        raise typer.Exit


@app.callback(help=app.info.help)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def main() -> None:
    """Entry point: problems that the user can mend are one line on stderr and exit code 2.

    ``--plugin FILE.py`` may stand anywhere, with every command.
    """
    try:
        arguments, plugins = take_plugins(sys.argv[1:])
        if plugins:
            add_plugins(plugins)
        with telling_of_disks():
            app(arguments, prog_name="isthmus")  # by which shells complete, however Python was started
    except IsthmusError as error:
        print(f"isthmus: {error}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2) if _among_hosts() else sys.exit(2)


def _among_hosts() -> bool:
    """Whether this process is one of several hosts: a process group that has lost its peers would not let it end."""
    wire = sys.modules.get("isthmus.wire.distributed")  # not loaded for this question
    return "RANK" in os.environ or (wire is not None and wire.DistributedWire.opened)


def take_plugins(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments without ``--plugin FILE.py`` or ``--plugin=FILE.py``, and the files."""
    rest: list[str] = []
    plugins: list[str] = []
    waiting = False
    for argument in arguments:
        if waiting:
            plugins.append(argument)
            waiting = False
        elif argument == "--plugin":
            waiting = True
        elif argument.startswith("--plugin="):
            plugins.append(argument.removeprefix("--plugin="))
        else:
            rest.append(argument)
    if waiting:
        raise IsthmusError("--plugin takes a Python file, like --plugin scaffold.py.")
    return rest, plugins
