"""Commands that make several runs: ``isthmus demo``, ``reproduce``, ``study`` and ``sweep``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli.completion import study_names
from isthmus.cli.listing import listed
from isthmus.cli.shared import Json, Set, console, show
from isthmus.cli.training import Data, Model, Recipe, Split
from isthmus.cli.training import Silos as RunSilos
from isthmus.core.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.studies.plan import StudyRequest
    from isthmus.studies.study import Study

Quick = Annotated[bool, typer.Option("--quick", help="The study on a small scale, in minutes.")]
Silos = Annotated[int | None, typer.Option(help="Another number of silos than the study's.")]
Seeds = Annotated[int | None, typer.Option(help="Runs of each row (default: as the study has it).")]
Epochs = Annotated[int | None, typer.Option(help="Epochs to train.")]
Rows = Annotated[
    list[str] | None, typer.Option(help="Only this row, by label, folder or a pattern like 'cora-*'; may be repeated.")
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.")]
Jobs = Annotated[int, typer.Option(help="Runs at once, each in a process of its own.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace runs of another configuration; equal ones stay.")]
Tune = Annotated[bool, typer.Option(help="Whether rows choose settings by validation first.")]
TuningSeeds = Annotated[int | None, typer.Option(help="Runs of each setting that a row tries.")]
Part = Annotated[str, typer.Option(help="Every n-th row alone, like 2/3 on the second of three machines.")]
Merge = Annotated[
    list[str] | None, typer.Option(help="Take over what another folder of this study has finished; may be repeated.")
]
Pivot = Annotated[
    str,
    typer.Option(help="Keys in rows and columns of table.csv, .tex and .md, like method:split; others: a table each."),
]
Estimate = Annotated[
    bool, typer.Option("--forecast", help="Only time a few epochs of every row, and tell the hours of the whole.")
]


def demo(out: Annotated[str, typer.Option(help="Folder for the runs.")] = "runs/demo") -> None:
    """Train the same model local, averaged and centralised on a generated graph, and compare."""
    from isthmus.commands.demo import run_demo

    table, page = run_demo(Path(out))
    console.print(table)
    console.print(str(page), highlight=False, soft_wrap=True)


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The study; none lists them.", autocompletion=study_names)] = None,
    quick: Quick = False,
    silos: Silos = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    rows: Rows = None,
    device: Device = None,
    jobs: Jobs = 1,
    out: Annotated[str | None, typer.Option(help="Folder for runs and results (default: runs/reproduce/NAME).")] = None,
    set_: Set = None,
    as_json: Json = False,
    overwrite: Overwrite = False,
    tune: Tune = True,
    tuning_seeds: TuningSeeds = None,
    part: Part = "",
    merge: Merge = None,
    pivot: Pivot = "",
    forecast: Estimate = False,
) -> None:
    """Run the rows of a paper's table, and show the paper's values, ours, and the difference."""
    said = dict(locals())
    if name is None:
        show(listed("studies"), ("name", "summary"), as_json)
        return
    from isthmus.studies.catalogue import get_study

    request = _request(said)
    _run(get_study(name), request, forecast, as_json)


def study(
    file: Annotated[str, typer.Argument(help="A TOML file: base settings, axes of a grid, and what to tune.")],
    quick: Quick = False,
    seeds: Seeds = None,
    epochs: Epochs = None,
    rows: Rows = None,
    device: Device = None,
    jobs: Jobs = 1,
    out: Annotated[str | None, typer.Option(help="Folder for runs and results (default: runs/study/NAME).")] = None,
    set_: Set = None,
    as_json: Json = False,
    overwrite: Overwrite = False,
    tune: Tune = True,
    tuning_seeds: TuningSeeds = None,
    part: Part = "",
    merge: Merge = None,
    pivot: Pivot = "",
    forecast: Estimate = False,
) -> None:
    """Run a grid of your own: methods, data, splits, settings, with tuning, paired seeds and intervals."""
    said = {**locals(), "out": out or f"runs/study/{Path(file).stem}"}
    from isthmus.studies.grid import read_study

    request = _request(said)
    _run(read_study(Path(file)), request, forecast, as_json)


def sweep(
    recipe: Recipe = None,
    data: Data = None,
    method: Annotated[list[str] | None, typer.Option(help="See 'isthmus methods'; may be repeated.")] = None,
    model: Model = None,
    silos: RunSilos = None,
    split: Split = None,
    epochs: Epochs = None,
    seeds: Annotated[int, typer.Option(help="Runs of each setting.")] = 1,
    vary_data: Annotated[bool, typer.Option("--vary-data", help="Every seed has a split of its own, too.")] = False,
    device: Device = None,
    jobs: Jobs = 1,
    out: Annotated[str | None, typer.Option(help="Folder for runs and results (default: runs/sweep/METHOD).")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A key and its values, like train.lr=0.1,0.01; may be repeated.")
    ] = None,
    as_json: Json = False,
    overwrite: Overwrite = False,
    pivot: Pivot = "",
    forecast: Estimate = False,
) -> None:
    """Run a method with every combination of some settings; validation chooses, and its choice alone is tested."""
    said = {**locals(), "out": out or f"runs/sweep/{'-'.join(method or ['fedavg'])}", "set_": None, "silos": None}
    from isthmus.studies.sweep import SweepRequest, sweep_study

    given = {"data.name": data, "data.silos": silos, "data.split": split, "model.name": model}
    options = {key: value for key, value in given.items() if value is not None}
    asked = SweepRequest(recipe, options, tuple(set_ or ()), tuple(method or ()), seeds, vary_data)
    _run(sweep_study(asked), _request(said), forecast, as_json)


def _request(said: dict[str, Any]) -> StudyRequest:
    """What the user asks of a study, from the arguments of a command."""
    from isthmus.studies.plan import StudyRequest

    several = {key: tuple(said.get(key) or ()) for key in ("rows", "merge")}
    known = {field.name for field in fields(StudyRequest)}
    given = {key: value for key, value in said.items() if key in known}
    return StudyRequest(**given | several, sets=tuple(said["set_"] or ()))


def _run(study: Study, request: StudyRequest, forecast: bool, as_json: bool) -> None:
    """Run a study, or tell how long it would take, and show what was found."""
    from isthmus.studies.grid_text import grid_tables
    from isthmus.studies.reproduce import forecast_study, run_study
    from isthmus.studies.score_tables import chosen_tables
    from isthmus.studies.text import forecast_table, study_tables

    if forecast:
        console.print(forecast_table(*forecast_study(study, request), request.jobs))
        return
    findings, folder, failed = run_study(study, request)
    if as_json:
        print((folder / "results.json").read_text(), end="")
    else:
        printed = chosen_tables if study.chosen else grid_tables if study.axes else study_tables
        console.print(*printed(findings))
        console.print(f"{folder}/report.html, table.csv, table.tex, table.md", highlight=False, soft_wrap=True)
    if failed:
        named = "; ".join(failed[:3]) + (f" and {len(failed) - 3} more" if len(failed) > 3 else "")
        raise IsthmusError(f"Failed: {named}. The same command tries them again.")
