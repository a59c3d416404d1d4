"""The report's section on time over a network: waiting times of a run's parts, and scores against their price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean

from isthmus.core.errors import unknown
from isthmus.core.kinds import DEVICE, FINAL, Purpose
from isthmus.report.compare_plots import price_curves
from isthmus.report.drawing import Values
from isthmus.report.page import CellRow, figure, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.network_time import LinkConfig, Usage, link_of, link_times, phases, used
from isthmus.runs.recipe import merge_into, parse_set
from isthmus.runs.summary import curves, fact, is_merged, members, primary
from isthmus.runs.text import bytes_text, metric_label, wait_text

_NAMES = {"setup": "before training", "training": "training", "validation": "validation"}  # the end is told apart

DEVICES_NOTE = (
    "The devices of a silo are one party here, with one link for all their messages; with a line of its own for each "
    "device transfers would take less."
)


@dataclass(frozen=True)
class Price:
    """Validation scores, and the emulated seconds and bytes until each; bytes are None for a merged run."""

    seconds: list[float]
    bytes: list[float] | None
    valid: Values


def relinked(folder: RunFolder, sets: Sequence[str]) -> LinkConfig:
    """The link of a run after changes such as ``link.mbps=100``."""
    asked = parse_set(sets)
    for key in asked:
        if key != "link":
            raise unknown("key of a report", key, ["link.mbps", "link.latency_ms"])
    return link_of(merge_into({"link": dict(folder.config.get("link", {}))}, asked))


def counted(folder: RunFolder) -> bool:
    """Whether a run has counted its one-way trips; runs of older versions have not."""
    files = ("steps.parquet", "legs.parquet")
    return all((part.path / name).is_file() for part in members(folder) for name in files)


def price(folder: RunFolder, link: LinkConfig) -> Price | None:
    """The price of each validation, mean over seeds; None without validations, or where trips were not counted."""
    found = curves(folder)
    if not found.epochs or not counted(folder):
        return None
    each = [_until(part, found.epochs, link) for part in members(folder)]
    seconds, sizes = ([fmean(values) for values in zip(*part, strict=True)] for part in zip(*each, strict=True))
    return Price(seconds, None if is_merged(folder) else sizes, found.valid)


def _until(part: RunFolder, epochs: Sequence[int], link: LinkConfig) -> tuple[list[float], list[float]]:
    """Emulated seconds, and bytes, from the start of a run to the end of each of some epochs."""
    usage = {} if is_merged(part) else used(phases(part.steps, part.legs), "epoch", leave_out=FINAL)
    spent, crossed = [0.0], [0.0]
    for epoch, computing in enumerate([0.0, *part.metrics["seconds_by_epoch"]]):
        here = usage.get(epoch, Usage())
        spent.append(spent[-1] + computing + link.transfer(here.busiest) + link.latency(here.legs))
        crossed.append(crossed[-1] + here.bytes)
    return [spent[epoch + 1] for epoch in epochs], [crossed[epoch + 1] for epoch in epochs]


def over_network(folder: RunFolder, link: LinkConfig) -> str:
    """The section as markup: waiting times of each part of the run, and the score against seconds and bytes."""
    if not counted(folder) or is_merged(folder):
        return ""
    parts = members(folder)
    usage = [used(phases(part.steps, part.legs), "purpose") for part in parts]
    mean = {p.value: sum((each.get(p, Usage()) for each in usage), Usage()).times(1 / len(parts)) for p in Purpose}
    computing = sum(sum(part.metrics["seconds_by_epoch"]) for part in parts) / len(parts)
    return f"<h2>How long it takes over a network</h2>{_waits(folder, link, mean, computing)}{_curves(folder, link)}"


def _waits(folder: RunFolder, link: LinkConfig, usage: dict[str, Usage], computing: float) -> str:
    """The sentence and the table of waiting times; ``usage`` by purpose, ``computing`` in seconds."""
    times = link_times(link, usage, computing)
    parts, waits = times["parts"], ("transfer_seconds", "latency_seconds")
    rows = [_line(name, parts[key]["bytes"], parts[key]) for key, name in _NAMES.items()]
    total = _line("until training ended", sum(parts[key]["bytes"] for key in _NAMES), times)
    seeds = " Means over seeds." if len(members(folder)) > 1 else ""
    alone = " All silos of a process compute one after the other." if fact(folder, "hosts", 1) == 1 else ""
    alone += f" {DEVICES_NOTE}" if folder.config.get("data", {}).get("level") == DEVICE else ""
    transfer, latency = (wait_text(times[key]) for key in waits)
    lead = (
        f"Emulated, not measured: every party has a link of {link} a round trip. Until training ended "
        f"{wait_text(times['seconds'])} would have passed: {wait_text(computing)} of computing, as measured here, "
        f"{transfer} of transfer and {latency} of latency.{alone}{seeds}"
    )
    note = (
        "Transfer: at each step, the time of the party that sends or receives most. A round trip is two trips one way."
    )
    note += f" The final scores take {wait_text(sum(parts['end'][key] for key in waits))} more."
    return f"<p>{escape(lead)}</p>{table(['', 'Bytes', 'Round trips', 'Transfer', 'Latency'], rows, note, total=total)}"


def _line(name: str, size: float, waits: dict[str, float]) -> CellRow:
    """One row of the table of waiting times."""
    seconds = (wait_text(waits[key]) for key in ("transfer_seconds", "latency_seconds"))
    return [name, bytes_text(size), f"{waits['round_trips']:,.10g}", *seconds]


def _curves(folder: RunFolder, link: LinkConfig) -> str:
    """The figure of the validation score against seconds and bytes; empty where there is none."""
    found, metric = price(folder, link), primary(folder)
    if found is None:
        return ""
    drawn = price_curves({"": (found.seconds, found.bytes, found.valid)}, metric)
    return figure(drawn, f"Validation {metric_label(metric)} against emulated seconds, and against bytes.")
