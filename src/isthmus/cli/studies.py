"""Commands that make several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.shared import Json, Set, console, show
from isthmus.core.errors import IsthmusError


def demo(out: Annotated[str, typer.Option(help="Folder for the runs.")] = "runs/demo") -> None:
    """Train the same model local, averaged and centralised on a generated graph, and compare."""
    from isthmus.commands.demo import run_demo

    table, page = run_demo(Path(out))
    console.print(table)
    console.print(str(page), highlight=False, soft_wrap=True)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The study; none lists them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The study on a small scale, in minutes.")] = False,
    silos: Annotated[int | None, typer.Option(help="Another number of silos than the paper's.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each row (default: as in the paper).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs to train.")] = None,
    rows: Annotated[list[str] | None, typer.Option(help="Only this row, by label or folder; may be repeated.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    jobs: Annotated[int, typer.Option(help="Runs at once, each in a process of its own.")] = 1,
    out: Annotated[str | None, typer.Option(help="Folder for runs and results (default: runs/reproduce/NAME).")] = None,
    set_: Set = None,
    as_json: Json = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace runs of another configuration; equal ones stay.")
    ] = False,
    tune: Annotated[bool, typer.Option(help="Whether rows choose settings by validation first.")] = True,
    tuning_seeds: Annotated[int | None, typer.Option(help="Runs of each setting that a row tries.")] = None,
) -> None:
    """Run the rows of a paper's table, and show the paper's values, ours, and the difference."""
    from isthmus.studies.main import listing, run_study
    from isthmus.studies.plan import StudyRequest
    from isthmus.studies.text import study_tables

    if name is None:
        show([dict(row) for row in listing()], ("name", "summary"), as_json)
        return
    sets = tuple(set_ or ())
    chosen = tuple(rows or ())
    request = StudyRequest(quick, silos, seeds, epochs, chosen, device, jobs, out, sets, overwrite, tune, tuning_seeds)
    findings, folder, failed = run_study(name, request)
    if as_json:
        print((folder / "results.json").read_text(), end="")
    else:
        for table in study_tables(findings):
            console.print(table)
        console.print(f"{folder}/report.html", highlight=False, soft_wrap=True)
    if failed:
        raise IsthmusError(f"Failed: {'; '.join(failed)}. The same command tries them again.")
