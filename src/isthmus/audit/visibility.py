"""Who may see what where nodes are devices: a run's ledger against the table of its three kinds of parties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.core.kinds import BELOW, DEVICE, SERVER_NAME, SILO, Kind
from isthmus.protect.events import silos_in_sum

SERVER = SERVER_NAME
OPEN, SHARES, MASKED = "open", "shares", "masked sums"  # how messages must have left
_MARKS = {SHARES: "shares, ", MASKED: "masked, "}  # how events of the ledger begin

# By sender and receiver the kinds that may pass, and how. A cell that is not here must stay empty. Silos are their
# devices' own: of another silo's devices, or of another silo, a silo sees no more than shares, and sums of them.
TABLE: Mapping[tuple[str, str], Mapping[Kind, str]] = {
    # a device learns who its neighbours are, and holds shares of their rows: no feature, embedding or degree
    (DEVICE, DEVICE): {Kind.IDS: OPEN, Kind.EMBEDDINGS: SHARES, Kind.ADJOINTS: SHARES},
    (SILO, DEVICE): {Kind.PARAMETERS: OPEN, Kind.NEIGHBOUR_SUMS: OPEN},
    (SERVER, DEVICE): {},
    # a silo reads sums of its devices, and their aggregates
    (DEVICE, SILO): {
        Kind.EMBEDDINGS: SHARES,
        Kind.ADJOINTS: SHARES,
        Kind.SHARE_SUMS: SHARES,
        Kind.GRADIENTS: MASKED,
        Kind.STATISTICS: MASKED,
        Kind.METRICS: MASKED,
    },
    (SILO, SILO): {Kind.SHARE_SUMS: SHARES},
    (SERVER, SILO): dict.fromkeys((Kind.SCHEMA, Kind.PARAMETERS, Kind.GRADIENTS, Kind.STATISTICS, Kind.METRICS), OPEN),
    # the server reads models and sums of silos, and nothing below them
    (DEVICE, SERVER): {},
    (SILO, SERVER): dict.fromkeys(
        (Kind.SCHEMA, Kind.PARAMETERS, Kind.GRADIENTS, Kind.STATISTICS, Kind.METRICS, Kind.LEDGER), OPEN
    ),
}


# What is a sum over a silo's devices, and must be one over enough of them: a model tells the gradients in it.
SUMS = ((DEVICE, SILO, Kind.GRADIENTS), (SILO, SERVER, Kind.GRADIENTS), (SILO, SERVER, Kind.PARAMETERS))


@dataclass(frozen=True)
class Violation:
    """Messages that the table forbids: ``rows`` of a kind from ``sender`` to ``receiver``, and why not."""

    sender: str
    receiver: str
    kind: str
    event: str
    rows: int
    why: str

    def __str__(self) -> str:
        return (
            f"{self.receiver} received {self.rows:,} rows of {self.kind} from {self.sender} ({self.event}): {self.why}"
        )


def violations(
    lines: Iterable[Mapping[str, Any]], devices: Mapping[str, int] | None = None, least: int = 2
) -> list[Violation]:
    """What a ledger's lines (``ledger.parquet``) say that a party received and must not see; empty: nothing.

    ``devices``: how many each silo has, by its name, where known. A sum over fewer than ``least`` of them is no sum.
    Where every silo has one device, that silo is the device, and sees what its device sees.
    """
    found: dict[tuple[str, str, str, str], int] = {}
    for line in lines:
        key = line["sender"], line["receiver"], line["kind"], line["event"]
        found[key] = found.get(key, 0) + line["rows"]
    judged = ((key, rows, _why_not(*key, devices or {}, least)) for key, rows in sorted(found.items()) if rows)
    return [Violation(*key, rows, why) for key, rows, why in judged if why]


def _why_not(sender: str, receiver: str, kind: str, event: str, devices: Mapping[str, int], least: int) -> str:
    """The reason why a message may not pass; an empty string where it may."""
    ends = role(sender), role(receiver)
    wanted = TABLE[ends].get(Kind(kind))
    if wanted is None:
        return f"a {ends[1]} must not see {kind} of a {ends[0]}"
    foreign = DEVICE in ends and SILO in ends and _silo(sender) != _silo(receiver)
    if foreign and wanted != SHARES:
        return "they are of another silo's devices"
    if wanted in _MARKS and _MARKS[wanted] not in event:
        return f"they must leave as {wanted}"
    size = devices.get(_silo(sender), least)
    if ends == (SILO, SERVER):
        size *= max(silos_in_sum(event), 1)
    one_each = ends == (DEVICE, SILO) and set(devices.values()) == {1}
    if (*ends, kind) in SUMS and size < least and not one_each:
        return f"they are a sum over {size} of its devices, fewer than {least}"
    return ""


def role(party: str) -> str:
    """Whether a party of the ledger is a device, a silo or the server."""
    if party == SERVER_NAME:
        return SERVER
    return DEVICE if party.startswith(BELOW) else SILO


def _silo(party: str) -> str:
    """The silo that a party is, or is a device of."""
    return party.removeprefix(BELOW)
