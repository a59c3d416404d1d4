"""Circumstances of a run on which the words for its messages depend, so that nothing is said that did not happen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

from isthmus.core.kinds import STEPS, Kind, Purpose
from isthmus.protect.events import hides, veil


class Circumstance(StrEnum):
    """Something that some runs do and others do not."""

    MERGING = "the server merges aggregates"
    CORRECTING = "the server corrects the model by steps of its own"
    SAMPLING = "which nodes a step needs is asked for"
    TOUCHING = "rows are released once a round"
    EDGE_LABELS = "edges carry labels"
    NOISE = "noise was added"
    TWO_HOPS = "features are summed over two hops"
    READING_PORTS = "the model reads ports"
    READING_DEGREES = "the model reads degrees"
    MASKED = "what devices hand in is masked"
    SHARED = "rows are divided into shares"


Circumstances = frozenset[Circumstance]
WITHOUT_DEGREES = ("sage", "sage-gcn", "gin", "gat", "pna", "multi-pna", "mlp")  # models that do not read degrees


def circumstances(
    crossed: Iterable[tuple[str, str]], events: Collection[str], config: Mapping[str, Any], target: str = "node"
) -> Circumstances:
    """The circumstances of a run.

    ``crossed``: the pairs of kind and purpose in its ledger; ``events``: the protections there. ``target``: what
    carries labels.
    """
    when: dict[str, set[str]] = {}
    for kind, purpose in crossed:
        when.setdefault(kind, set()).add(purpose)
    ids, exchange = when.get(Kind.IDS, set()), config.get("exchange", {})
    hops = exchange.get("hops", 0) if isinstance(exchange, Mapping) else 0
    model = config.get("model", {}).get("name", "")
    holds = {
        Circumstance.MERGING: Kind.PARTIALS in when,
        Circumstance.CORRECTING: any(Purpose.CORRECTION in purposes for purposes in when.values()),
        Circumstance.SAMPLING: bool(ids & set(STEPS)),
        Circumstance.TOUCHING: Purpose.ROUND in ids,
        Circumstance.EDGE_LABELS: target == "edge",
        Circumstance.NOISE: any(map(hides, events)),
        Circumstance.TWO_HOPS: hops == 2,
        Circumstance.READING_PORTS: Kind.PORTS in when,
        Circumstance.READING_DEGREES: model not in WITHOUT_DEGREES,
    }
    return frozenset(each for each, there in holds.items() if there)


def of_event(event: str) -> Circumstances:
    """The circumstances that the protection of a single message tells of."""
    told = {"masked sums": Circumstance.MASKED, "shares": Circumstance.SHARED}.get(veil(event))
    return frozenset([told] if told else [])
