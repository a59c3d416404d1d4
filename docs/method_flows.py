"""What every method sent when it was tried, as tables and sentences of its page."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from isthmus.core.kinds import Kind
from isthmus.protect.events import UNPROTECTED
from isthmus.runs.plain_words import WORDS, never

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
    """A sentence on records that never crossed."""
    kinds = {flow[2] for flow in flows}
    labels = [] if Kind.LABELS in kinds else [WORDS[Kind.LABELS].name]
    told = ", ".join(filter(None, [never(kinds), *labels]))
    computed = Kind.EMBEDDINGS in kinds or Kind.PARTIALS in kinds
    but = " (but rows that cross are computed from them)" if computed else ""
    return f"Not in the ledger, as they are{but}: {told}." if told else ""
