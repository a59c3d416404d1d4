"""What has crossed, summed from a ledger: by kind of message, by party, by pair of parties, and in time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.kinds import Kind
from isthmus.runs.plain_words import WORDS
from isthmus.runs.status import HostStatus
from isthmus.runs.text import party_order

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class OfKind:
    """All messages of one kind: its name for people, and sums."""

    kind: str
    words: str
    messages: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class OfParty:
    """The bytes that one party sent, and those that it received."""

    party: str
    sent: int
    received: int


@dataclass(frozen=True)
class Crossed:
    """Sums over a ledger; ``pairs`` has the bytes of every kind by (sender, receiver)."""

    kinds: list[OfKind]
    parties: list[OfParty]
    pairs: dict[tuple[str, str], dict[str, int]]

    @property
    def total(self) -> int:
        """All bytes that crossed."""
        return sum(each.bytes for each in self.kinds)


def crossed(table: pa.Table) -> Crossed:
    """The sums of a ledger, largest first."""
    kinds = [
        OfKind(kind, words_of(kind), messages, rows, size)
        for kind, messages, rows, size in _sums(table, ["kind"], ["messages", "rows", "bytes"])
    ]
    pairs: dict[tuple[str, str], dict[str, int]] = {}
    sent: dict[str, int] = {}
    received: dict[str, int] = {}
    for sender, receiver, kind, size in _sums(table, ["sender", "receiver", "kind"], ["bytes"]):
        pairs.setdefault((sender, receiver), {})[kind] = size
        sent[sender] = sent.get(sender, 0) + size
        received[receiver] = received.get(receiver, 0) + size
    names = sorted(sent.keys() | received.keys(), key=party_order)
    parties = [OfParty(name, sent.get(name, 0), received.get(name, 0)) for name in names]
    return Crossed(sorted(kinds, key=lambda each: -each.bytes), parties, pairs)


def so_far(hosts: Sequence[HostStatus]) -> tuple[Crossed, int] | None:
    """What hosts tell that has crossed, and the step up to which all have counted; None where one tells nothing.

    It has no pairs, and no parties where these are too many for a host to tell.
    """
    told = [host.crossed for host in hosts]
    if not told or not all(told):
        return None
    kinds: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for each in told:
        for sums, found in ((kinds, each["kinds"]), (ends, each["parties"])):
            for name, counts in found.items():
                sums[name] = [a + int(b) for a, b in zip(sums.get(name) or [0] * len(counts), counts, strict=True)]
    shown = [OfKind(kind, words_of(kind), *counts) for kind, counts in kinds.items()]
    parties = [OfParty(name, *ends[name]) for name in sorted(ends, key=party_order)]
    found = Crossed(sorted(shown, key=lambda each: -each.bytes), parties, {})
    return found, min(int(each["step"]) for each in told)


def words_of(kind: str) -> str:
    """The name of a kind of message for people; of a kind that a newer version knows, the name that it has there."""
    return WORDS[Kind(kind)].name if kind in set(Kind) else kind


def by_epoch(table: pa.Table) -> tuple[list[int], dict[str, list[float | None]]]:
    """Epochs, and for every kind the bytes that had crossed by their end."""
    found = _sums(table, ["epoch", "kind"], ["bytes"])
    epochs = sorted({epoch for epoch, _, _ in found})
    size = {(epoch, kind): each for epoch, kind, each in found}
    curves: dict[str, list[float | None]] = {}
    for kind in dict.fromkeys(kind for _, kind, _ in found):
        so_far, line = 0, list[float | None]()
        for epoch in epochs:
            so_far += size.get((epoch, kind), 0)
            line.append(float(so_far))
        curves[kind] = line
    return epochs, dict(sorted(curves.items(), key=lambda item: -(item[1][-1] or 0)))


def _sums(table: pa.Table, keys: list[str], columns: list[str]) -> list[tuple]:  # type: ignore[type-arg]
    """Sums of columns for each combination of keys: a tuple of both for each."""
    found = table.group_by(keys).aggregate([(name, "sum") for name in columns])
    each: Iterable[tuple] = zip(  # type: ignore[type-arg]
        *(found[name].to_pylist() for name in (*keys, *(f"{name}_sum" for name in columns))), strict=True
    )
    return list(each)
