"""The report's section on secret messages between devices: shares, smallest sums that a silo reads, lone neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from isthmus.report.page import CellRow, table
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import fact, members

FIXED_POINT, SHARES, MASKS = "fixed-point", "shares", "masks"  # names of mechanisms in a run's configuration
DEVICES, ALONE = "devices", "devices with one neighbour"  # as silo_figures of metrics.json have them
NOTE = (
    "Smallest sum: how many devices' gradients and losses are in the smallest sum that the silo reads. One neighbour: "
    "devices for which the sum over neighbours is a single row."
)


def secret_messages(folder: RunFolder) -> str:
    """The section as markup; empty where nodes belong to silos, not to devices."""
    figures: Mapping[str, Mapping[str, float]] = fact(folder, "silo_figures", {})
    known = {silo: each for silo, each in figures.items() if DEVICES in each}
    if not known:
        return ""
    protect, exchange = (folder.config.get(name, {}) for name in ("protect", "exchange"))
    said = " ".join((_on_rows(protect), _on_sums(exchange), _on_gradients(protect)))
    first = " Of several seeds these are figures of the first." if len(members(folder)) > 1 else ""
    rows = [_line(silo, each, protect) for silo, each in known.items()]
    shown = table(["Silo", "Devices", "Smallest sum", "One neighbour"], rows, NOTE + first)
    return f"<h2>Secret messages</h2><p>{escape(said)}</p>{shown}"


def _line(silo: str, figures: Mapping[str, float], protect: Mapping[str, Any]) -> CellRow:
    """The figures of one silo as cells."""
    from isthmus.protect.masked_sums import groups  # loads torch, which other reports do without

    devices = int(figures[DEVICES])
    least = groups(devices, int(protect["group"])).smallest if _has(protect, MASKS) else 1
    return [silo, f"{devices:,}", f"{least:,}", f"{int(figures.get(ALONE, 0)):,}"]


def _has(protect: Mapping[str, Any], name: str) -> bool:
    """Whether a mechanism is in the run's chain of protection."""
    return name in protect.get("name", ())


def _on_rows(protect: Mapping[str, Any]) -> str:
    """A sentence on how rows travelled."""
    if not _has(protect, SHARES):
        return "Rows of nodes were not divided into shares: the devices of a node's neighbours read them."
    degree = int(protect["threshold"])
    places = f" with {protect['fraction']} binary places" if _has(protect, FIXED_POINT) else ""
    return (
        f"Every row of a node travelled as {degree + 1} shares in the field of 2^61 - 1 (T = {degree}), as whole "
        f"numbers{places}: {_to_whom(degree)}"
    )


def _to_whom(degree: int) -> str:
    """Who held the shares of degree T, and who reads a row together."""
    if degree == 1:
        return (
            "the first to the target's device, the other to the target's silo, and neither reads it alone. A "
            "neighbour's device together with the silo of a neighbour can."
        )
    return (
        f"one to the target's device, one to its silo, and one to each of the next {degree - 1} silos by number. No "
        f"{degree} of them read it together; that device and these {degree} silos do."
    )


def _on_sums(exchange: Mapping[str, Any]) -> str:
    """A sentence on which sums were opened, and how much of a degree a silo saw."""
    least, to = int(exchange.get("fewest", 1)), int(exchange.get("padded_to", 0))
    opened = f"over {least} neighbours or more" if least > 1 else "over any number of neighbours"
    seen = f"{to:,} shares for each of them" if to else "as many shares for each as the next power of two of the degree"
    return f"Sums {opened} were opened; a silo saw {seen}."


def _on_gradients(protect: Mapping[str, Any]) -> str:
    """A sentence on how devices handed in their gradients."""
    if not _has(protect, MASKS):
        return "Devices handed in gradients and losses unmasked: their silo reads those of each."
    size = int(protect["group"])
    return f"Gradients and losses reached silos as sums over groups of {size} devices or more, or over all of a silo."
