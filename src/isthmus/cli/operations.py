"""Commands for whoever operates runs: ``isthmus status`` and ``forget``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli.shared import Json, console
from isthmus.core.errors import IsthmusError

if TYPE_CHECKING:
    from isthmus.runs.forgetting import Forgotten
    from isthmus.runs.status import HostStatus


def status(
    run_folder: Annotated[
        str, typer.Argument(metavar="RUN", help="The folder of a run, also of one that is going on.")
    ],
    as_json: Json = False,
) -> None:
    """Tell how a run stands: epoch, loss, rate, who is waited for, last checkpoint."""
    from isthmus.runs.status import status_of

    found = status_of(Path(run_folder))
    if as_json:
        print(json.dumps(found.as_dict()))
        return
    of_seed = f", {found.seed}" if found.seed else ""
    console.print(f"{found.folder}: {found.state}{of_seed}", markup=False, highlight=False, soft_wrap=True)
    for host in found.hosts:
        console.print(_line(host, found.checkpoints.get(host.host)), markup=False, highlight=False, soft_wrap=True)
    for host in found.hosts:
        if host.why:
            console.print(f"Host {host.host} ended: {host.why}", markup=False, highlight=False, soft_wrap=True)
    if not found.hosts and found.checkpoints:
        each = ", ".join(f"epoch {epoch} of host {host}" for host, epoch in found.checkpoints.items())
        console.print(f"Last checkpoint: {each}.", highlight=False, soft_wrap=True)
    if found.forgotten:
        console.print(f"Rows of nodes were deleted at {found.forgotten}.", highlight=False, soft_wrap=True)
    for name in found.damaged:
        console.print(f"Damaged: {name}", markup=False, highlight=False, soft_wrap=True)


def _line(host: HostStatus, kept: int | None) -> str:
    """How one host stands, in one line; ``kept`` is the epoch of its last checkpoint."""
    words = [host.state, f"epoch {host.epoch}/{host.epochs}" + (f" of {host.phase}" if host.phase else "")]
    words += [f"step {host.step}", "no loss yet" if host.loss is None else f"loss {host.loss:.4f}"]
    words += [f"{host.steps_per_second:.1f} steps/s"]
    words += [f"waits for {', '.join(host.waiting_for)}"] if host.waiting_for else []
    words += [
        "no checkpoint" if kept is None else f"checkpoint of epoch {kept}",
        f"told at {host.updated or 'no time'}",
    ]
    return f"host {host.host} ({host.party}): {', '.join(words)}"


def forget(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or folders that hold runs.")],
    older_than: Annotated[
        float | None, typer.Option(help="Only runs that ended more than so many days ago.", metavar="DAYS")
    ] = None,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Also runs that have not finished.")] = False,
    as_json: Json = False,
) -> None:
    """Delete what runs keep of single nodes (rows that left, checkpoints); scores, ledger and accounts stay."""
    from isthmus.runs.forgetting import days_since_end, forget, runs_below

    if older_than is not None and not older_than >= 0:
        raise IsthmusError(f"--older-than is {older_than:g}; it must be 0 days or more.")
    every = [run for path in runs for run in runs_below(Path(path))]
    chosen = [run for run in every if older_than is None or days_since_end(run) > older_than]
    done: list[Forgotten] = []
    left: dict[str, str] = {}
    for run in chosen:
        try:
            done.append(forget(run, unfinished))
        except IsthmusError as error:
            left[str(run)] = str(error)
            continue
        if not as_json:
            _print_forgotten(done[-1])
    if as_json:
        print(json.dumps([{"folder": str(d.folder), "deleted": d.deleted, "bytes": d.size} for d in done]))
    younger = len(every) - len(chosen)
    if younger and not as_json:
        console.print(f"{younger} of {len(every)} runs are younger than {older_than:g} days and keep what they have.")
    if left:
        why = " ".join(dict.fromkeys(left.values()))  # a run and its seeds are left for one reason
        raise IsthmusError(f"{len(left)} of {len(chosen)} runs were left as they are. {why}" if done else why)


def _print_forgotten(each: Forgotten) -> None:
    """Say what was deleted of one run, in one line."""
    from isthmus.runs.text import bytes_text

    what = "; ".join(f"{name} ({held})" for name, held in each.deleted.items())
    told = f"deleted {bytes_text(each.size)}: {what}" if what else "holds no rows of nodes"
    console.print(f"{each.folder}: {told}", markup=False, highlight=False, soft_wrap=True)
