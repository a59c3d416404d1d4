"""The command line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from isthmus.errors import IsthmusError

app = typer.Typer(
    help="One graph neural network across graphs that cannot be merged.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_out = Console()

Set = Annotated[list[str] | None, typer.Option("--set", help="Any key of the configuration, like train.lr=0.01.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def run(
    recipe: Annotated[str | None, typer.Argument(help="A shipped recipe, or a TOML file.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A data set, a folder with nodes and edges or of parts, or a .csv of transfers."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="See 'isthmus methods'.")] = None,
    model: Annotated[str | None, typer.Option(help="gcn, sage, gin, gat, pna, mlp, multi-pna.")] = None,
    silos: Annotated[int | None, typer.Option(help="Number of silos.")] = None,
    split: Annotated[str | None, typer.Option(help="louvain, metis, random, label:ALPHA, attribute:COLUMN.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs to train.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps to train, instead of epochs.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of parameters, sampling, dropout and shuffles.")] = None,
    seeds: Annotated[int, typer.Option(help="Repeat with this many seeds; report mean and deviation.")] = 1,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    hosts: Annotated[int | None, typer.Option(help="Processes to start on this machine.")] = None,
    out: Annotated[str | None, typer.Option(help="Run folder (default: runs/DATA-METHOD).")] = None,
    set_: Set = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model over the silos of a graph."""
    from isthmus.run.main import Request, run_request

    options = {
        "method": method, "seed": seed, "dtype": dtype,
        "data": {"name": data, "silos": silos, "split": split},
        "model": {"name": model},
        "train": {"epochs": epochs, "steps": steps},
        "system": {"device": device, "hosts": hosts},
    }  # fmt: skip
    request = Request(recipe, _given(options), tuple(set_ or ()), out, seeds, resume, overwrite)
    try:
        metrics = run_request(request)
    except KeyboardInterrupt:
        raise IsthmusError("Interrupted; the run continues from its last checkpoint with --resume.") from None
    if metrics is None:  # another host reports
        return
    if as_json:
        print(json.dumps(metrics))
    else:
        _print_result(metrics)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Only what the user said."""
    said: dict[str, Any] = {}
    for key, value in options.items():
        inner = _given(value) if isinstance(value, dict) else value
        if inner is not None and inner != {}:
            said[key] = inner
    return said


def _print_result(metrics: dict[str, Any]) -> None:
    from isthmus.run.text import bytes_text, wait_text

    spread = metrics.get("test_std", {})
    table = Table(title=f"{metrics['method']} on {metrics['data']}, {metrics['silos']} silos", title_justify="left")
    table.add_column("metric")
    table.add_column("valid", justify="right")
    table.add_column("test", justify="right")
    for name, value in metrics["test"].items():
        if name != "silos":
            deviation = f" ± {spread[name]:.4f}" if spread.get(name) is not None else ""
            table.add_row(name, _number(metrics["valid"].get(name)), _number(value) + deviation)
    for name, value in metrics.get("test_pooled", {}).items():
        table.add_row(f"{name}, pooled", _number(metrics.get("valid_pooled", {}).get(name)), _number(value))
    _out.print(table)
    for note in metrics.get("notes", []):
        _out.print(f"note: {note}", markup=False, highlight=False)
    crossed = f"{bytes_text(metrics['bytes']['total'])} crossed in {metrics['steps']} steps"
    wire = f" ({metrics['seconds_on_wire']:.1f} s on the wire)" if metrics["hosts"] > 1 else ""
    line = f"{crossed}; {metrics['seconds']:.1f} s{wire}; {metrics['folder']}/report.html"
    _out.print(line, highlight=False, soft_wrap=True)
    link = metrics["link"]
    if link["round_trips"]:
        where = f"Over links of {link['mbps']:g} Mbit/s and {link['latency_ms']:g} ms"
        _out.print(f"{where}: {wait_text(link['seconds'])}", highlight=False, soft_wrap=True)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods: what crosses, how parameters agree, whose paper."""
    from isthmus import methods as catalogue

    rows = []
    for name in catalogue.names():
        method = catalogue.get(name)
        options = {
            f"{axis}.{key}": value
            for axis in catalogue.AXES
            for key, value in catalogue.part_options(getattr(method, axis)).items()
        }
        parts = {axis: type(getattr(method, axis)).__name__ for axis in catalogue.AXES}
        rows.append({"name": name, "summary": method.summary, "paper": method.paper, **parts, "options": options})
    _show(rows, ("name", "summary", "paper"), as_json)


@app.command()
def datasets(as_json: Json = False) -> None:
    """List the data sets."""
    from isthmus.data import DATASETS

    rows = [
        {"name": d.name, "summary": d.summary, "model": d.default_model, "source": d.source} for d in DATASETS.values()
    ]
    _show(rows, ("name", "summary", "model"), as_json)


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, default=list))
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    _out.print(table)


@app.command()
def split(
    data: Annotated[str, typer.Argument(help="A data set, a folder with nodes and edges, or a .csv of transfers.")],
    silos: Annotated[int, typer.Option(help="Number of silos.")] = 5,
    how: Annotated[
        str, typer.Option("--split", help="louvain, metis, random, label:ALPHA, attribute:COLUMN.")
    ] = "louvain",
    out: Annotated[str | None, typer.Option(help="Write one folder of parts for each silo here.")] = None,
    set_: Set = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing parts.")] = False,
    as_json: Json = False,
) -> None:
    """Split a graph between silos: statistics, and parts on disk."""
    from isthmus.run.splitting import split_command, stats_table

    rows = split_command(data, silos, how, tuple(set_ or ()), Path(out) if out else None, overwrite)
    if as_json:
        print(json.dumps(rows))
    else:
        _out.print(stats_table(rows))
        if out:
            _out.print(
                f"Parts are in {out}; train on them with: isthmus run --data {out}",
                highlight=False,
                soft_wrap=True,
            )


@app.command()
def score(
    run_folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    data: Annotated[str, typer.Option(help="A data set, a folder with nodes and edges, or a folder of parts.")],
    out: Annotated[
        str | None, typer.Option(help="Where to write the predictions (default: RUN/predictions.parquet).")
    ] = None,
    silo: Annotated[int | None, typer.Option(help="Use this silo's model, where silos have their own.")] = None,
    set_: Set = None,
) -> None:
    """Predict with a trained model on new data, as Parquet."""
    from isthmus.run.scoring import score_command

    path, rows = score_command(run_folder, data, tuple(set_ or ()), Path(out) if out else None, silo)
    _out.print(f"{rows} predictions in {path}", highlight=False, soft_wrap=True)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    out: Annotated[str, typer.Option(help="Folder for comparison.html and comparison.json.")] = "runs/comparison",
    as_json: Json = False,
) -> None:
    """Compare finished runs: a table, and a page with plots."""
    from isthmus.run.compare import comparison, comparison_table, write_comparison
    from isthmus.run.folder import RunFolder

    folders = [RunFolder.open(path) for path in runs]
    page = write_comparison(folders, Path(out))
    if as_json:
        print((Path(out) / "comparison.json").read_text(), end="")
    else:
        _out.print(comparison_table(comparison(folders)))
        _out.print(str(page), highlight=False, soft_wrap=True)


@app.command()
def report(
    run_folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    alone: Annotated[str | None, typer.Option(help="A 'local' run of the same data, to show each silo's gain.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Another link, like link.mbps=100.")] = None,
) -> None:
    """Write report.html of a run anew."""
    from isthmus.run.emulated import relinked
    from isthmus.run.folder import RunFolder
    from isthmus.run.report import write_report

    folder = RunFolder.open(run_folder)
    path = write_report(folder, RunFolder.open(alone) if alone else None, relinked(folder, tuple(set_ or ())))
    _out.print(str(path), highlight=False, soft_wrap=True)


@app.command()
def audit(
    run_folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    targets: Annotated[int, typer.Option(help="Nodes to attack at each layer.")] = 64,
    sigma: Annotated[
        str | None,
        typer.Option(help="What if so much noise were added, like 0.1,0.3,1 (default: if the run has none)."),
    ] = None,
    deepest: Annotated[int | None, typer.Option(help="Leave out rows beyond this layer (default: none).")] = None,
    seed: Annotated[int, typer.Option(help="Seed of targets and added noise.")] = 0,
    as_json: Json = False,
) -> None:
    """Attack the rows that a run released: how well features can be inferred from them."""
    from isthmus.run.audit import Wish, audit, parse_sigmas
    from isthmus.run.audited import NOTHING, audit_table, watched

    with watched() as watch:
        found = audit(run_folder, Wish(targets, seed, parse_sigmas(sigma), deepest), watch)
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    if found.findings:
        _out.print(audit_table(found))
    else:
        _out.print(f"No row has left a silo: {NOTHING}.", highlight=False)
    _out.print(f"The report shows it after: isthmus report {run_folder}", highlight=False, soft_wrap=True)


@app.command("simulate-aml")
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
    from isthmus.data.write_aml import simulate_aml, summary_table, watched

    wish = Interbank(transactions, banks, accounts, days, illicit_rate, seed)
    with watched() as tell:
        summary = simulate_aml(wish, Path(out), overwrite, tell)
    if as_json:
        print(json.dumps(summary))
        return
    _out.print(summary_table(summary))
    command = f"isthmus run --data aml --set data.path={summary['file']} --split attribute:bank"
    command += " --set train.messages=past"
    _out.print(f"Train on them with: {command}", highlight=False, soft_wrap=True)


@app.command()
def demo(out: Annotated[str, typer.Option(help="Folder for the runs.")] = "runs/demo") -> None:
    """Train the same model local, averaged and centralised on a generated graph, and compare."""
    from isthmus.run.demo import run_demo

    table, page = run_demo(Path(out))
    _out.print(table)
    _out.print(str(page), highlight=False, soft_wrap=True)


@app.command()
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
    from isthmus.reproduce.main import listing, reproduce
    from isthmus.reproduce.plan import Wish
    from isthmus.reproduce.text import study_tables

    if name is None:
        _show([dict(row) for row in listing()], ("name", "summary"), as_json)
        return
    sets = tuple(set_ or ())
    wish = Wish(quick, silos, seeds, epochs, tuple(rows or ()), device, jobs, out, sets, overwrite, tune, tuning_seeds)
    findings, folder, failed = reproduce(name, wish)
    if as_json:
        print((folder / "results.json").read_text(), end="")
    else:
        for table in study_tables(findings):
            _out.print(table)
        _out.print(f"{folder}/report.html", highlight=False, soft_wrap=True)
    if failed:
        raise IsthmusError(f"Failed: {'; '.join(failed)}. The same command tries them again.")


def main() -> None:
    """Entry point: problems that the user can mend are one line on stderr and exit code 2."""
    try:
        app()
    except IsthmusError as error:
        print(f"isthmus: {error}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2) if "RANK" in os.environ else sys.exit(2)


if __name__ == "__main__":
    main()
