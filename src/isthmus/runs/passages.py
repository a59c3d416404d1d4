"""What crossed in a run, gathered by kind, direction and protection: from whom to whom, how much, and how it came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from isthmus.runs.circumstances import Circumstances, circumstances
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import Flow, fact, members, rank
from isthmus.runs.text import party_order


@dataclass(frozen=True)
class Passage:
    """All messages of one kind in one direction under one protection; names of parties stand in their order."""

    kind: str
    direction: str
    event: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    messages: int
    rows: int
    bytes: int


def passages_of(flows: Iterable[Flow]) -> list[Passage]:
    """Flows gathered, the most revealing kind first."""
    alike: dict[tuple[str, str, str], list[Flow]] = {}
    for flow in flows:
        alike.setdefault((flow.kind, flow.direction, flow.event), []).append(flow)
    order = sorted(alike, key=lambda key: (-rank(key[0]), *key))
    return [_gathered(*key, alike[key]) for key in order]


def _gathered(kind: str, direction: str, event: str, flows: list[Flow]) -> Passage:
    """One passage of the flows that are alike."""
    senders, receivers = (
        tuple(sorted({getattr(flow, end) for flow in flows}, key=party_order)) for end in ("sender", "receiver")
    )
    sums = (sum(getattr(flow, name) for flow in flows) for name in ("messages", "rows", "bytes"))
    return Passage(kind, direction, event, senders, receivers, *sums)


def circumstances_of(folder: RunFolder) -> Circumstances:
    """The circumstances of a run, on which the words for its messages depend."""
    crossed, events = set[tuple[str, str]](), set[str]()
    for part in members(folder):
        table = part.ledger.group_by(["kind", "purpose", "event"]).aggregate([("messages", "sum")])
        crossed |= set(zip(table["kind"].to_pylist(), table["purpose"].to_pylist(), strict=True))
        events |= set(table["event"].to_pylist())
    return circumstances(crossed, events, folder.config, fact(folder, "schema", {}).get("target", "node"))
