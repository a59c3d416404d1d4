"""What every method sent when it was tried, as tables and sentences of its page."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from isthmus.core.kinds import Kind
from isthmus.protect.events import UNPROTECTED
from isthmus.runs.circumstances import Circumstance
from isthmus.runs.plain_words import WORDS, Text, Words

USUAL = {
    Kind.SCHEMA,
    Kind.IDS,
    Kind.STATISTICS,
    Kind.ORDER,
    Kind.METRICS,
    Kind.PORTS,
}  # every method sends some of them
RECORDS = (Kind.FEATURES, Kind.LABELS, Kind.EDGES)
FACTS = Path(__file__).parent / "method_facts.json"
DIRECTIONS = {
    "both": "silo ⇄ server",
    "up": "silo → server",
    "down": "server → silo",
    "peer": "silo → silo",
    "handed_in": "device → its silo",
    "handed_down": "silo → its devices",
    "between_devices": "device → device",
}


@cache
def tried() -> dict[str, dict[str, Any]]:
    """What every method did when it was tried."""
    found: dict[str, dict[str, Any]] = json.loads(FACTS.read_text())
    return found


def flow_table(flows: list[list[str]]) -> str:
    """Flows as a table: when, from whom to whom, what; directions that carry the same share a line."""
    told: dict[str, dict[str, list[str]]] = {}
    for when, direction, kind, event in flows:
        what = WORDS[Kind(kind)].name + ("" if event == UNPROTECTED else f" ({event})")
        told.setdefault(when, {}).setdefault(direction, []).append(what)
    rows = []
    for when, ways in told.items():
        alike: dict[str, list[str]] = {}
        for direction, what in ways.items():
            alike.setdefault("; ".join(dict.fromkeys(what)), []).append(direction)
        rows += [f"| {when} | {both(directions)} | {what} |" for what, directions in alike.items()]
    return "| when | from → to | what |\n|---|---|---|\n" + "\n".join(rows)


def both(directions: list[str]) -> str:
    """Directions in words; up and down together as one."""
    if {"up", "down"} <= set(directions):
        directions = ["both", *(each for each in directions if each not in ("up", "down"))]
    return ", ".join(DIRECTIONS[each] for each in directions)


def more_kinds(flows: list[list[str]]) -> str:
    """A sentence on what crosses in addition with sampled batches; empty where nothing does."""
    if not flows:
        return ""
    moments: dict[tuple[str, str], list[str]] = {}
    for when, way, kind, _ in flows:
        moments.setdefault((WORDS[Kind(kind)].name, when), []).append(way)
    told = [f"{name} {when} ({both(ways)})" for (name, when), ways in moments.items()]
    return f"With sampled batches also: {'; '.join(told)}."


def unseen(flows: list[list[str]]) -> str:
    """A sentence on records that never crossed, and on what all that did was computed from."""
    kinds = [Kind(kind) for kind in dict.fromkeys(flow[2] for flow in flows)]
    raw = [WORDS[kind].name for kind in RECORDS if kind not in kinds]
    sources = dict.fromkeys(WORDS[kind].source for kind in kinds if kind not in USUAL and kind not in RECORDS)
    never = [f"No line of the ledger holds, as they are: {', '.join(raw)}."] if raw else []
    return " ".join([*never, *([f"What crosses is computed from: {'; '.join(sources)}."] if sources else [])])


def spelled(text: Text) -> str:
    """A sentence of ``Words`` with all its clauses, each with the circumstance in which it holds."""
    parts = [text] if isinstance(text, str) else text
    return "".join(part if isinstance(part, str) else f"{part.text} (where {part.where})" for part in parts)


def of_devices(words: Words, direction: str) -> str:
    """What a message from or to devices carries, where it is masked and divided into shares."""
    return words.meaning(direction, in_a_run=frozenset(Circumstance)).removesuffix(words.risk).strip()
