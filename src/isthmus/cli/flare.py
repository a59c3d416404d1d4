"""Commands for runs across organisations: ``isthmus flare init``, ``site``, ``job`` and ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.shared import Set, console
from isthmus.core.errors import IsthmusError

app = typer.Typer(
    help="Runs across organisations, over NVIDIA FLARE with mutual TLS.", no_args_is_help=True, rich_markup_mode=None
)
Sites = Annotated[str, typer.Option(help="The silos, by name and in order, like bank-a,bank-b,bank-c.")]
Kit = Annotated[Path, typer.Argument(help="A startup kit, which 'nvflare package' wrote.")]
Server = Annotated[
    str, typer.Option(help="The silo at whose site the Isthmus server lives (default: in FLARE's server job).")
]


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command()
def init(
    sites: Sites,
    server: Annotated[str, typer.Option(help="The address of FLARE's server, as sites reach it.")],
    out: Annotated[Path, typer.Option(help="Folder for the files.")],
    port: Annotated[int, typer.Option(help="The server's port.")] = 8002,
    project: Annotated[str, typer.Option(help="The name of the federation.")] = "isthmus",
    coordinator: Annotated[str, typer.Option(help="Who submits jobs.")] = "coordinator@isthmus.local",
    scheme: Annotated[str, typer.Option(help="tcp, grpc or http; all of them with mutual TLS.")] = "tcp",
) -> None:
    """Write what 'nvflare cert' reads: a profile for the coordinator, a request for everybody."""
    from isthmus.commands.flare.provision import write_requests
    from isthmus.commands.flare.system import require

    require()
    files = write_requests(out, project, server, port, sites.split(","), coordinator, scheme)
    profile, *requests = [str(file) for file in files]
    _say(f"{len(files)} files are in {out}. Keys never leave whoever makes them:")
    _say(f"  coordinator       nvflare cert init --profile {profile} -o ca")
    _say(
        "  everybody, NAME   nvflare cert request -p NAME.yml --out req   (send req/NAME.request.zip, and nothing else)"
    )
    _say(f"  coordinator       nvflare cert approve NAME.request.zip -c ca --profile {profile}")
    _say("  everybody, NAME   nvflare package NAME.signed.zip --request-dir req --fingerprint SHA256:... -w kits")
    _say("  sites, server     isthmus flare site KIT --data PARTS --runs RUNS --start   (the server without --data)")


@app.command()
def site(
    kit: Kit,
    runs: Annotated[Path, typer.Option(help="Folder for the runs of this party.")],
    data: Annotated[Path | None, typer.Option(help="Folder with this silo's part; the server has none.")] = None,
    policy: Annotated[
        str, typer.Option(help="This party's policy, where its part has no policy.toml: a file, or bank or strict.")
    ] = "",
    pin: Annotated[
        list[str] | None,
        typer.Option(help="Another party's certificate, like bank-b=SHA256:AB:CD:... (again for each party)."),
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Then run FLARE here until Ctrl-C.")] = False,
) -> None:
    """Check a kit's certificate and data, write its local files, and run it where asked."""
    from isthmus.commands.flare.local_files import known_parties, prepare_kit
    from isthmus.commands.flare.system import require, running
    from isthmus.wire.flare.known_parties import parse_pins

    require()
    papers = prepare_kit(kit, data, runs, policy, parse_pins(pin or []))
    _say(f"{papers.name} is ready; its certificate's fingerprint is {papers.fingerprint}.")
    for name, fingerprint in known_parties(kit).fingerprints.items():
        _say(f"It knows {name} by {fingerprint}.")
    if not start:
        return
    from isthmus.launch.processes import terminable

    with terminable(), running([kit]) as [process]:
        _say(f"{papers.name} runs; what FLARE prints is in {kit / 'flare.out'}. Ctrl-C ends it.")
        try:
            code = process.wait()
        except KeyboardInterrupt:
            _say(f"{papers.name} ends.")
            return
    raise IsthmusError(f"FLARE has ended with code {code}; {kit / 'flare.out'} says why.")


@app.command()
def job(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe, or a TOML file; its [data] is each party's own.")],
    sites: Sites,
    out: Annotated[Path, typer.Option(help="Folder for the job.")],
    name: Annotated[str, typer.Option(help="Name of the job, and of the run folder of every party.")] = "run",
    server: Server = "",
    set_: Set = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run of this name from its checkpoints.")
    ] = False,
    kit: Annotated[Path | None, typer.Option(help="The coordinator's kit: submit the job with it.")] = None,
    wait: Annotated[bool, typer.Option(help="Whether to wait for the end of a job that was submitted.")] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a job in --out.")] = False,
) -> None:
    """Make a job of a recipe, and submit it where a coordinator's kit is given."""
    from isthmus.commands.flare.job import SUCCEEDED, explain, make_job, submit
    from isthmus.commands.flare.system import require
    from isthmus.runs.config import resolve
    from isthmus.runs.recipe import merge_into, parse_set, read_recipe

    require()
    config = resolve(merge_into(read_recipe(recipe), parse_set(tuple(set_ or ()))))
    folder = make_job(config, sites.split(","), name, server, resume, out, overwrite)
    if kit is None:
        _say(f"The job is in {folder}. Submit it: nvflare job submit -j {folder} --startup-kit KIT")
        return
    number, status = submit(folder, kit, wait)
    if wait and status != SUCCEEDED:
        raise explain(status, {})
    _say(f"Job {number}: {status}.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the kits, data and runs of everybody.")] = Path(
        "runs/flare-demo"
    ),
    server: Server = "",
    set_: Set = None,
) -> None:
    """Three banks and a server on this machine, one run between them over mutual TLS, compared with one process."""
    from isthmus.commands.flare.demo import run_demo
    from isthmus.commands.flare.text import tell
    from isthmus.runs.recipe import parse_set

    try:
        outcome = run_demo(out, parse_set(tuple(set_ or ())), server, _say)
    except KeyboardInterrupt:
        raise IsthmusError("Interrupted; all processes of the demonstration have ended.") from None
    for line in tell(outcome):
        _say(line)
