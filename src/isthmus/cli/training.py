"""Commands that take a run's configuration: run it, or plan it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.table import Table

from isthmus.cli.completion import data_names, method_names, model_names, recipe_names, split_names
from isthmus.cli.party import Listen, Meet, Server, Silo, TokenFile, place_from
from isthmus.cli.shared import Json, Set, console
from isthmus.core.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.commands.run import Request


Text: TypeAlias = str | None
Number: TypeAlias = int | None
Recipe = Annotated[Text, typer.Argument(help="A shipped recipe, or a TOML file.", autocompletion=recipe_names)]
Data = Annotated[
    Text,
    typer.Option(
        help="A data set, a folder with nodes and edges or of parts, or a .csv of transfers.", autocompletion=data_names
    ),
]
Method = Annotated[Text, typer.Option(help="See 'isthmus methods'.", autocompletion=method_names)]
Model = Annotated[Text, typer.Option(help="gcn, sage, gin, gat, pna, mlp, multi-pna.", autocompletion=model_names)]
Silos = Annotated[Number, typer.Option(help="Number of silos.")]
Split = Annotated[
    Text, typer.Option(help="louvain, metis, random, label:ALPHA, attribute:COLUMN.", autocompletion=split_names)
]
Epochs = Annotated[Number, typer.Option(help="Epochs to train.")]
Steps = Annotated[Number, typer.Option(help="Steps to train, instead of epochs.")]
Seed = Annotated[Number, typer.Option(help="Seed of parameters, sampling, dropout and shuffles.")]
Seeds = Annotated[int, typer.Option(help="Repeat with this many seeds; report mean and deviation.")]
Dtype = Annotated[Text, typer.Option(help="float32 or float64.")]
Device = Annotated[Text, typer.Option(help="cpu or cuda.")]
Hosts = Annotated[Number, typer.Option(help="Processes to start on this machine; with --silo, parties in all.")]
Out = Annotated[Text, typer.Option(help="Run folder (default: runs/DATA-METHOD).")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")]
Log = Annotated[Text, typer.Option(help="Write JSON lines on what happens to this file.")]
Track = Annotated[
    Text, typer.Option(help="Follow the run with a tracker: tensorboard:DIR or mlflow:DIR, local files alone.")
]
Policy = Annotated[
    Text, typer.Option(help="A policy file, or open, bank or strict: for parties on this machine without their own.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")]


def run(
    context: typer.Context, recipe: Recipe = None, data: Data = None, method: Method = None, model: Model = None,
    silos: Silos = None, split: Split = None, epochs: Epochs = None, steps: Steps = None, seed: Seed = None,
    seeds: Seeds = 1, dtype: Dtype = None, device: Device = None, hosts: Hosts = None, out: Out = None,
    set_: Set = None, resume: Resume = False, overwrite: Overwrite = False, policy: Policy = None,
    as_json: Json = False, log: Log = None, silo: Silo = None, server: Server = False, meet: Meet = None,
    listen: Listen = None, token: TokenFile = None, track: Track = None,
) -> None:  # fmt: skip
    """Train a model over the silos of a graph."""
    from isthmus.commands.run import run_request

    try:
        metrics = run_request(replace(request_of(context.params), place=place_from(silo, server, meet, listen, token)))
    except KeyboardInterrupt:
        raise IsthmusError("Interrupted before the run began.") from None
    if metrics is None:  # another host reports
        return
    if as_json:
        print(json.dumps(metrics))
    else:
        _print_result(metrics)


def plan(
    context: typer.Context, recipe: Recipe = None, data: Data = None, method: Method = None, model: Model = None,
    silos: Silos = None, split: Split = None, epochs: Epochs = None, steps: Steps = None, seed: Seed = None,
    seeds: Seeds = 1, dtype: Dtype = None, device: Device = None, hosts: Hosts = None, out: Out = None,
    set_: Set = None, resume: Resume = False, overwrite: Overwrite = False, policy: Policy = None,
    as_json: Json = False,
    trial_steps: Annotated[
        Number, typer.Option(help="Steps to try (default: two, an epoch and a round, but at most 64).")
    ] = None,
) -> None:  # fmt: skip
    """Estimate what a run would send and wait for, and its epsilon; takes its options, sends and writes nothing."""
    from isthmus.commands.run import configure
    from isthmus.plan.plan import make_plan
    from isthmus.plan.text import plan_table, sentences

    config = configure(request_of(context.params))
    found = make_plan(config, trial_steps, policy or "")
    if as_json:
        about = {"method": config.method.name, "label": config.label, "data": config.data.name, "seeds": seeds}
        print(json.dumps({**about, **found.as_dict()}))
        return
    console.print(plan_table(found, f"{config.label} on {config.data.name}"))
    for sentence in sentences(found, config.link, seeds):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def request_of(said: dict[str, Any]) -> Request:
    """What the user asked for, from the parameters of a command."""
    from isthmus.commands.run import Request

    options = {
        "method": said["method"], "seed": said["seed"], "dtype": said["dtype"],
        "data": {"name": said["data"], "silos": said["silos"], "split": said["split"]},
        "model": {"name": said["model"]},
        "train": {"epochs": said["epochs"], "steps": said["steps"]},
        "system": {"device": said["device"], "hosts": said["hosts"], "log": said.get("log"),
                   "track": said.get("track")},
    }  # fmt: skip
    rest = {key: said[key] for key in ("out", "seeds", "resume", "overwrite")}
    return Request(said["recipe"], _given(options), tuple(said["set_"] or ()), **rest, policy=said["policy"] or "")


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the user gave: without those that are None, and without empty tables."""
    said: dict[str, Any] = {}
    for key, value in options.items():
        inner = _given(value) if isinstance(value, dict) else value
        if inner is not None and inner != {}:
            said[key] = inner
    return said


def _print_result(metrics: dict[str, Any]) -> None:
    from isthmus.cli.alerts import alerts_table
    from isthmus.protect.accounting.guarantee import Guarantee, headline
    from isthmus.report.compared_run import SAW
    from isthmus.runs.text import bytes_text, labels_line, lists_line, privacy_line, wait_text

    spread = metrics.get("test_std", {})
    known_by, *others = metrics["scored"].values()
    scored = "on the merged graph" if metrics["merged"] else f"scored {SAW[known_by['sees']]}"
    title = f"{metrics['label']} on {metrics['data']}, {metrics['silos']} silos, {scored}"
    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    table.add_column("valid", justify="right")
    table.add_column("test", justify="right")
    for name, value in metrics["test"].items():
        if name != "silos":
            deviation = f" ± {spread[name]:.4f}" if spread.get(name) is not None else ""
            table.add_row(name, _number(metrics["valid"].get(name)), _number(value) + deviation)
    for name, value in metrics.get("test_pooled", {}).items():
        table.add_row(f"{name}, pooled", _number(metrics.get("valid_pooled", {}).get(name)), _number(value))
    for way in others:  # each has selected its own epoch
        for splits, kind in ((("valid", "test"), ""), (("valid_pooled", "test_pooled"), ", pooled")):
            values = [_number((way.get(split) or {}).get(metrics["metric"])) for split in splits]
            table.add_row(f"{metrics['metric']}, {SAW[way['sees']]}{kind}", *values)
    console.print(table)
    alerts = alerts_table(metrics)
    if alerts is not None:
        console.print(alerts)
    for note in metrics.get("notes", []):
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    crossed = f"{bytes_text(metrics['bytes']['total'])} crossed in {metrics['steps']} steps"
    wire = f" ({metrics['seconds_on_wire']:.1f} s on the wire)" if metrics["hosts"] > 1 else ""
    line = f"{crossed}; {metrics['seconds']:.1f} s{wire}; {metrics['folder']}/report.html"
    console.print(line, highlight=False, soft_wrap=True)
    known = [Guarantee.from_dict(each) for each in metrics["privacy"]]
    for told in filter(None, (privacy_line(headline(known)), labels_line(known), lists_line(known))):
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    link = metrics["link"]
    if link["round_trips"]:
        where = f"Over links of {link['mbps']:g} Mbit/s and {link['latency_ms']:g} ms"
        console.print(f"{where}: {wait_text(link['seconds'])}", highlight=False, soft_wrap=True)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
