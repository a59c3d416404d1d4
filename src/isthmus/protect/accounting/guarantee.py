"""A privacy guarantee as an accountant states it: of which unit, in which sense, how strong, on which assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.core.kinds import ROWS, Kind

CHARGED = (*ROWS, Kind.PARAMETERS, Kind.GRADIENTS)  # kinds that can get noise
# Kinds that no epsilon covers: names, who is linked to whom, the course of training, counts before and after it, keys.
APART = (
    Kind.SCHEMA, Kind.IDS, Kind.ORDER, Kind.PORTS, Kind.METRICS, Kind.LEDGER, Kind.STATISTICS, Kind.KEYS,
    Kind.KEY_SHARES,
)  # fmt: skip
# Sums of rows that were charged when they left, sealed, for every sum that they are in.
DERIVED = (Kind.SHARE_SUMS, Kind.NEIGHBOUR_SUMS)
RECORDS = tuple(kind for kind in Kind if kind not in (*CHARGED, *APART, *DERIVED))  # nodes' data that never gets noise

# Values of ``Guarantee.of``, beside kinds of messages.
STEPS_TAKEN = "steps"  # whatever is computed from parameters that were trained by bounded and noisy steps
LISTS = "neighbour lists"  # whatever is computed from draws of neighbour lists
EVERYTHING = "everything"  # all kinds of messages, composed

# Values of ``Guarantee.unit``: that of which one value is hidden among all others.
NODE, EDGE, ROW, ENTRY, LABEL = "node", "edge", "row", "list entry", "label"
UNITS = {
    NODE: "the features and the label of one node",
    EDGE: "the attributes and the label of one edge, or of one node",
    ROW: "the rows that the model computed for one node",
    ENTRY: "one edge of a node's neighbour list",
    LABEL: "the label of one training node, all else known",
}
DP = "DP, any two values"
METRIC = "metric DP, a node's rows against those of its k-th nearest neighbour"
OF_A_SAMPLE = f"{METRIC}, of a sample of nodes"
AS_SAMPLED = "DP, one label more or less, as if batches were Poisson samples"
EDGE_LDP = "edge-LDP, one entry of a list against another, the list's length known"
AS_CLAIMED = f"{EDGE_LDP}; as claimed, amplified by the rate of a generator"

MOST_DELTA = 0.5  # a promise that may fail more often than not is none

ASSUMED = (
    "noise secrets are unknown to readers",
    "who is linked to whom, and who is released when, is public",
    "noise in floating point is as good as exact noise",
)
ROWS_ALONE = "traces of a node in the rows of others, in weights and in gradients are not in it"
AS_LEFT_LAST = "rows were as near to each other at every release as at the last one"


@dataclass(frozen=True)
class Guarantee:
    """A bound on what releases can tell of one ``unit``: (epsilon, delta) in the sense of ``notion``.

    ``of``: a kind of message, or ``everything``. ``releases``: how many the worst unit may be inside. ``bare``: kinds
    that carried data of nodes without noise, and make epsilon infinite. ``apart``: kinds that no epsilon covers.
    ``silos``: figures of each silo, by its name. A guarantee whose delta is above a half is ``void``.
    """

    of: str
    unit: str
    notion: str
    epsilon: float
    delta: float
    releases: int = 0
    assumptions: tuple[str, ...] = ASSUMED
    bare: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    silos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def void(self) -> bool:
        """Whether delta is above a half: a promise that may fail more often than not is none, whatever epsilon is."""
        return self.delta > MOST_DELTA

    def as_dict(self) -> dict[str, Any]:
        """The guarantee as a dictionary for JSON; an infinite epsilon is the string "inf"."""
        return {
            "of": self.of,
            "unit": self.unit,
            "notion": self.notion,
            "epsilon": as_json(self.epsilon),
            "delta": self.delta,
            "void": self.void,
            "releases": self.releases,
            "assumptions": list(self.assumptions),
            "bare": list(self.bare),
            "apart": list(self.apart),
            "silos": {silo: {key: as_json(value) for key, value in each.items()} for silo, each in self.silos.items()},
        }

    @staticmethod
    def from_dict(told: Mapping[str, Any]) -> Guarantee:
        """The guarantee of which :meth:`as_dict` gave the dictionary ``told``."""
        named: dict[str, Any] = {key: told[key] for key in ("of", "unit", "notion", "delta", "releases")}
        named |= {key: tuple(told.get(key, ())) for key in ("assumptions", "bare", "apart")}
        return Guarantee(**named, epsilon=float(told["epsilon"]), silos=told.get("silos", {}))


def headline(guarantees: Sequence[Guarantee]) -> Guarantee:
    """The one guarantee that a run is known by: of everything that left, against any two values."""
    return next(each for each in guarantees if each.of == EVERYTHING)


def as_json(value: Any) -> Any:
    """A value for JSON, in which infinity, also within a dictionary, is the string "inf"."""
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items()}
    return "inf" if value == math.inf else value
