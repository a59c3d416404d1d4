"""On what footing a run's scores stand, and why two runs may not stand side by side."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# What must be equal, and how it is called where it is not.
_ALIKE = {
    "asked": "other data, or the same made in another way",
    "split": "another split",
    "silos": "another number of silos",
    "metric": "another metric",
    "average": "another mean",
}
# Keys of the table [data] that a method may choose, or that say where files lie.
_CHOSEN = ("folder", "scale", "edges", "cross", "level")


@dataclass(frozen=True)
class Footing:
    """What two runs must have in common before their scores are compared; ``sees``: what their scores saw.

    ``asked`` is a hash of the configuration's table of data, ``digest`` one of the data that silos really read: of a
    merged run it is empty, since its one silo holds all.
    """

    asked: str
    digest: str
    split: str
    silos: int
    metric: str
    average: str
    merged: bool
    sees: frozenset[str]

    def apart(self, other: Footing) -> str:
        """Why this run and another do not compare, in a few words; empty where they do."""
        for name, words in _ALIKE.items():
            if getattr(self, name) != getattr(other, name):
                return words
        if not (self.merged or other.merged):
            if not (self.digest and other.digest):
                return "a version that wrote no digest of its data"
            if self.digest != other.digest:
                return "the same data set with other content"
            if not self.sees & other.sees:
                return "scores that saw other edges; with --set score=own,across all runs have such that compare"
        return ""


def footing_of(config: Mapping[str, Any], metrics: Mapping[str, Any]) -> Footing:
    """The footing of a finished run, from its configuration and its metrics."""
    data, merged = dict(config.get("data") or {}), bool(metrics.get("merged"))
    asked = {key: value for key, value in data.items() if key not in _CHOSEN}
    digests = metrics.get("data_digests") or {}
    scored = (metrics.get("scored") or {}).values()
    return Footing(
        _hash(asked),
        _hash(digests) if digests and not merged else "",
        str(data.get("split", "–")),
        int(data.get("silos") or metrics.get("silos") or 0),
        str(metrics.get("metric", "")),
        str(metrics.get("average", "")),
        merged,
        frozenset(str(way.get("sees", "")) for way in scored),
    )


def common_sight(footings: Sequence[Footing]) -> frozenset[str]:
    """What the scores of all runs saw that are not merged."""
    each = [footing.sees for footing in footings if not footing.merged]
    return frozenset.intersection(*each) if each else frozenset()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
