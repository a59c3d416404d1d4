"""What a message carries, why it was sent, and who can send one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:  # commands that compute nothing do without it
    import numpy as np

_Silos = TypeVar("_Silos", int, "np.ndarray")

SERVER = -1
SERVER_NAME = "server"
BELOW = "devices of "  # how the name of the party begins that the devices of a silo are together
SILO, DEVICE = "silo", "device"
LEVELS = (SILO, DEVICE)  # whose the rows of a silo are: its own, or those of devices below it
_DEVICES = -2  # the devices of silo 0; those of silo i stand under _DEVICES - i


def devices_of(silo: _Silos) -> _Silos:
    """The number of the party that the devices of a silo are together (each owns one node), or numbers for an array."""
    return _DEVICES - silo


def silo_of_devices(party: int) -> int | None:
    """The silo whose devices a party number stands for; None where it stands for a silo or the server."""
    return _DEVICES - party if party <= _DEVICES else None


def devices_name(silo: str) -> str:
    """The name of the party that the devices of a silo are together, from the silo's name."""
    return f"{BELOW}{silo}"


def owner_of_devices(name: str) -> str | None:
    """The name of the silo whose devices a name stands for; None where it stands for a silo or the server."""
    return name.removeprefix(BELOW) if name.startswith(BELOW) else None


class Kind(StrEnum):
    """What a message carries; the disclosure sheet explains each in plain words."""

    SCHEMA = "schema"
    IDS = "ids"
    ORDER = "order"
    STATISTICS = "statistics"
    PORTS = "ports"
    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    EMBEDDINGS = "embeddings"
    ADJOINTS = "adjoints"
    PARTIALS = "partials"
    METRICS = "metrics"
    SCORES = "scores"
    AGGREGATES = "aggregates"
    FEATURES = "features"
    LABELS = "labels"
    EDGES = "edges"
    LEDGER = "ledger"
    PROTOTYPES = "prototypes"
    GENERATED = "generated"
    ROW_GRADIENTS = "row-gradients"
    SHARE_SUMS = "share-sums"
    NEIGHBOUR_SUMS = "neighbour-sums"
    KEYS = "keys"
    KEY_SHARES = "key-shares"
    MASKED = "masked"


class Purpose(StrEnum):
    """What a run was doing when a message left."""

    SETUP = "setup"  # the handshake, and what is agreed before the first step
    ORDER = "order"  # who learns from which seed at which step, once an epoch
    STEP = "step"
    CROSSING = "crossing"  # a step at which all silos cross the boundary, where a schedule lets them rest at others
    MIXED = "mixed"  # a step at which some silos cross, in a pass of their own, and the others do not
    CORRECTION = "correction"  # a step that the server takes for all silos
    ROUND = "round"  # the end of a round of local training
    VALIDATION = "validation"  # scores that a model is selected by
    LOSSES = "losses"  # silos tell the losses of an epoch's steps
    END = "end"  # the final validation scores, and what the report needs
    TEST_TRAINED = "test, as trained"  # the test split, scored once: as in training
    TEST_OWN = "test, own edges"  # along each silo's own edges
    TEST_ACROSS = "test, across"  # across the boundary
    TEST_GLOBAL = "test, merged graph"
    TEST_EVERYWHERE = "test, all nodes of the merged graph"
    HANDOVER = "handover"  # between two phases: what the first has found, for the second


KINDS, PURPOSES = tuple(Kind), tuple(Purpose)
SCORES = {  # ways in which parameters are scored
    "trained": "with what the exchange of the last phase brings",
    "own": "along each silo's own edges alone",
    "across": "with fresh rows from beyond the boundary, which their owners compute",
    "global": "on the merged graph (simulation alone)",
    "everywhere": "on the merged graph, every silo's parameters on the nodes of all silos (simulation alone)",
}
TESTS = {
    "trained": Purpose.TEST_TRAINED,
    "own": Purpose.TEST_OWN,
    "across": Purpose.TEST_ACROSS,
    "global": Purpose.TEST_GLOBAL,
    "everywhere": Purpose.TEST_EVERYWHERE,
}  # by the way in which the test split is scored
FINAL = (Purpose.END, *TESTS.values())  # after the last step
STEPS = (Purpose.STEP, Purpose.CROSSING, Purpose.MIXED)
# What belongs to single nodes, or to a few of them; how often each left is counted.
ROWS = (Kind.EMBEDDINGS, Kind.ADJOINTS, Kind.AGGREGATES, Kind.PARTIALS)
