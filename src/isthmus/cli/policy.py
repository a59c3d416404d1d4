"""Commands on a party's own rules: ``isthmus policy check``, ``spent`` and ``show``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from isthmus.cli.completion import preset_names
from isthmus.cli.shared import Json, Set, console
from isthmus.cli.training import Data, Method, Model, Policy, Recipe, Silos, Split, request_of
from isthmus.core.name_lists import some_of

app = typer.Typer(help="A party's own rules: what they refuse, and what was spent.", no_args_is_help=True)
_LEFT_OUT = ("epochs", "steps", "seed", "dtype", "device", "hosts", "out")


@app.command()
def check(
    context: typer.Context, recipe: Recipe = None, data: Data = None, method: Method = None, model: Model = None,
    silos: Silos = None, split: Split = None, set_: Set = None, policy: Policy = None, as_json: Json = False,
) -> None:  # fmt: skip
    """List what the policies of parties here would refuse of a run, and by which rule; exit code 1 if anything."""
    from isthmus.commands.policy import check_policy
    from isthmus.commands.run import configure

    said = {**dict.fromkeys(_LEFT_OUT), "seeds": 1, "resume": False, "overwrite": False, **context.params}
    found = check_policy(configure(request_of(said)), policy or "")
    if as_json:
        print(json.dumps(found))
    else:
        _print_check(found)
    raise typer.Exit(1 if found["refused"] else 0)


def _print_check(found: dict[str, Any]) -> None:
    if found["refused"]:
        alike: dict[tuple[str, ...], list[str]] = {}
        for row in found["refused"]:
            alike.setdefault((row["what"], row["rule"], row["reason"]), []).append(row["party"])
        table = Table("refused", "by", "because", "policy of", title=found["method"], title_justify="left")
        for words, parties in alike.items():
            table.add_row(*words, some_of(parties))
        console.print(table)
    else:
        names = ", ".join(f"{name} ({source})" for name, source in found["parties"].items())
        console.print(f"{found['method']}: nothing is refused by {names}.", markup=False, soft_wrap=True)
    for note in found["notes"]:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


@app.command()
def spent(
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WHERE]...", help="Accounts, or folders of parts (default: here and runs/accounts)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the accounts of parties, line by line, and print what was spent over all their runs."""
    from isthmus.commands.policy import spent_of

    found = spent_of(places or [])
    if as_json:
        print(json.dumps(found))
        return
    for account in found:
        title = f"{account['party']}: {account['runs']} runs, {account['lines']} lines in {account['account']}"
        table = Table("unit", "epsilon", "of", "delta", "releases", title=title, title_justify="left")
        for unit in account["units"]:
            counted = "\n".join(
                f"{each['releases']:,} with {each['noise']}, room for {each['room']:,}" for each in unit["releases"]
            )
            table.add_row(unit["unit"], f"{unit['epsilon']:.4g}", f"{unit['budget']:g}", f"{unit['delta']:g}", counted)
        console.print(table)


@app.command()
def show(name: Annotated[str, typer.Argument(help="open, bank or strict.", autocompletion=preset_names)]) -> None:
    """Print a policy that ships with the package, to start one's own from: ... show bank > PARTS/NAME/policy.toml."""
    from isthmus.policy.reading import preset_text

    print(preset_text(name), end="")
