"""Commands on finished runs: ``isthmus score``, ``compare``, ``report``, ``audit`` and ``disclose``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.completion import data_names
from isthmus.cli.party import Listen, Meet, Server, TokenFile, place_from
from isthmus.cli.shared import Json, Set, console
from isthmus.core.errors import IsthmusError


def score(
    run_folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run, or of one party.")],
    data: Annotated[str, typer.Option(
            help="A data set, a folder with nodes and edges, or a folder of parts.", autocompletion=data_names
        )],
    out: Annotated[
        str | None, typer.Option(help="A .csv or .parquet file (default: RUN/predictions.parquet).")
    ] = None,
    silo: Annotated[
        str | None, typer.Option(help="Score as this silo alone: its own part, its own model where it has one.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="All silos' parts here, with fresh rows across the boundary.")
    ] = False,
    set_: Set = None, server: Server = False, meet: Meet = None, listen: Listen = None, token: TokenFile = None,
) -> None:  # fmt: skip
    """Predict with a trained model on new data, as CSV or Parquet: alone, or together with the other silos."""
    from isthmus.commands.score import ScoreRequest, score_command

    apart = meet is None and not server
    place = place_from(None if apart else silo, server, meet, listen, token)
    if together and silo:
        raise IsthmusError("--together scores all silos here; with --silo say where they meet instead (--meet).")
    sets = tuple(set_ or ())
    found = score_command(ScoreRequest(run_folder, data, sets, Path(out) if out else None, silo, together, place))
    for note in found.notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{found.rows} predictions in {found.path}", highlight=False, soft_wrap=True)


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    out: Annotated[
        str, typer.Option(help="Folder for comparison.html, .json and tables; or one table: a .csv, .tex or .md file.")
    ] = "runs/comparison",
    format_: Annotated[
        str | None, typer.Option("--format", help="Print the table as csv, latex or markdown instead.")
    ] = None,
    pivot: Annotated[
        str, typer.Option(help="Keys in rows and columns of such tables, like method:data.split (default: run:score).")
    ] = "",
    as_json: Json = False,
) -> None:
    """Compare finished runs: a table with the best marked, a page with plots, and tables for a paper."""
    from isthmus.report.compare import comparison_table, comparison_text, write_comparison, write_table
    from isthmus.report.table_files import format_of
    from isthmus.runs.damage import telling_of_damage
    from isthmus.runs.folder import RunFolder

    if format_ and as_json:
        raise IsthmusError("--format and --json both say how to print; use one of them.")
    folders = [RunFolder.open(path) for path in runs]
    alone = bool(format_of(Path(out)))
    with telling_of_damage(*runs):
        text = comparison_text(folders, format_, pivot) if format_ else ""
        (write_table if alone else write_comparison)(folders, Path(out), pivot)
    if as_json and not alone:
        print((Path(out) / "comparison.json").read_text(), end="")
    elif text:
        print(text, end="")
    else:
        with telling_of_damage(*runs):
            told = comparison_table(folders)
        console.print(told)
        console.print(
            out if alone else f"{out}/comparison.html, table.csv, table.tex, table.md", highlight=False, soft_wrap=True
        )


def report(
    run_folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    alone: Annotated[str | None, typer.Option(help="A 'local' run of the same data, to show each silo's gain.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Another link, like link.mbps=100.")] = None,
) -> None:
    """Write report.html of a run anew."""
    from isthmus.report.network import relinked
    from isthmus.report.report import write_report
    from isthmus.runs.damage import telling_of_damage
    from isthmus.runs.folder import RunFolder

    folder = RunFolder.open(run_folder)
    other = RunFolder.open(alone) if alone else None
    with telling_of_damage(run_folder, *filter(None, [alone])):
        path = write_report(folder, other, relinked(folder, tuple(set_ or ())))
    console.print(str(path), highlight=False, soft_wrap=True)


def disclose(
    what: Annotated[
        str,
        typer.Argument(metavar="RUN|PLAN|RECIPE", help="A finished run, or one party's folder; before it a plan."),
    ],
    out: Annotated[
        str | None, typer.Option(help="The page (default: disclosure.html in the run's folder, else here).")
    ] = None,
    purpose: Annotated[str, typer.Option(help="What the model is for, in your words (default: a blank line).")] = "",
    keep: Annotated[str, typer.Option(help="When what was kept is to be deleted (default: a blank line).")] = "",
    set_: Set = None,
    policy: Annotated[str, typer.Option(help="As of 'plan', with a recipe.")] = "",
    as_json: Json = False,
) -> None:
    """Write the sheet that an officer signs: columns, recipients, epsilon, attacks, hashes; also before a run."""
    from isthmus.commands.disclose import DiscloseRequest
    from isthmus.commands.disclose import disclose as write
    from isthmus.report.sheet import Statement

    sheet, page = write(DiscloseRequest(what, out, tuple(set_ or ()), policy, Statement(purpose, keep)))
    if as_json:
        print(json.dumps({**sheet.as_dict(), "page": str(page)}))
        return
    console.print(sheet.verdict, markup=False, highlight=False, soft_wrap=True)
    console.print(str(page), highlight=False, soft_wrap=True)


def audit(
    run_folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    targets: Annotated[int, typer.Option(help="Nodes to attack at each layer.")] = 64,
    sigma: Annotated[
        str | None,
        typer.Option(help="What if so much noise were added, like 0.1,0.3,1 (default: if the run has none)."),
    ] = None,
    deepest: Annotated[int | None, typer.Option(help="Leave out rows beyond this layer (default: none).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Replay only so many epochs of the run (default: all).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of targets and added noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Replay a run and attack what it released: features, labels and links that can be inferred from it."""
    from isthmus.audit.audit import audit_run
    from isthmus.audit.findings import audit_table
    from isthmus.audit.request import AuditRequest, parse_sigmas
    from isthmus.audit.watching import watched_audit
    from isthmus.runs.damage import telling_of_damage

    request = AuditRequest(targets, seed, parse_sigmas(sigma), deepest, epochs)
    with watched_audit() as watch, telling_of_damage(run_folder):
        found = audit_run(run_folder, request, watch)
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    console.print(audit_table(found))
    for note in found.notes:
        console.print(note, highlight=False)
    console.print(f"The report shows it after: isthmus report {run_folder}", highlight=False, soft_wrap=True)
