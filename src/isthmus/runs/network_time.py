"""The time that a run would take over a network: measured computing + bytes / bandwidth + latency x round trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.coerce import fill, table_of
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import FINAL, STEPS, Kind, Purpose

if TYPE_CHECKING:
    import pyarrow as pa

# The parts of a run that reports show, by the purposes of messages. The time of "end" is not part of training time.
PARTS: dict[str, tuple[Purpose, ...]] = {
    "setup": (Purpose.SETUP,),
    "training": (Purpose.ORDER, *STEPS, Purpose.CORRECTION, Purpose.ROUND, Purpose.LOSSES, Purpose.HANDOVER),
    "validation": (Purpose.VALIDATION,),
    "end": FINAL,
}
_WHEN = ["epoch", "step", "purpose"]


@dataclass(frozen=True)
class LinkConfig:
    """The network link that every party has: ``mbps`` megabits a second each way, ``latency_ms`` for a round trip.

    It affects no result, only the emulated time over a network.
    """

    mbps: float = 1000.0
    latency_ms: float = 1.0

    def check(self) -> LinkConfig:
        """Raise a clear error for a link that no network has; returns the link itself."""
        if self.mbps < 0.001:
            raise IsthmusError(f"link.mbps is {self.mbps:g}; it must be at least 0.001 megabits a second.")
        if self.latency_ms < 0:
            raise IsthmusError(f"link.latency_ms is {self.latency_ms:g}; it must be 0 or more milliseconds.")
        return self

    def transfer(self, size: float) -> float:
        """Seconds to transfer ``size`` bytes."""
        return size * 8 / (self.mbps * 1e6)

    def latency(self, legs: float) -> float:
        """Seconds of latency of so many one-way trips."""
        return legs / 2 * self.latency_ms / 1000

    def __str__(self) -> str:
        return f"{self.mbps:g} Mbit/s and {self.latency_ms:g} ms"


def link_of(recipe: Mapping[str, Any]) -> LinkConfig:
    """The link (bandwidth and latency) of a recipe, with defaults for what it leaves out."""
    return fill(LinkConfig(), table_of(recipe, "link"), "link").check()


@dataclass(frozen=True)
class Usage:
    """How much crossed: ``bytes`` of all parties, bytes of the ``busiest`` party of each phase, and one-way trips."""

    bytes: float = 0
    busiest: float = 0
    legs: float = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.bytes + other.bytes, self.busiest + other.busiest, self.legs + other.legs)

    def times(self, factor: float, trips: float | None = None) -> Usage:
        """The usage multiplied by ``factor``; one-way trips by ``trips``, if given."""
        return Usage(self.bytes * factor, self.busiest * factor, self.legs * (factor if trips is None else trips))


def phases(steps: pa.Table, legs: pa.Table) -> pa.Table:
    """A table of phases, (epoch, step, purpose): all bytes, bytes of the busiest party, and one-way trips.

    Every party has one link in each direction, and all parties transfer at once, so that a phase lasts as long as its
    busiest party sends or receives.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    total = steps.group_by(_WHEN).aggregate([("bytes", "sum")])
    found = legs.join(total, _WHEN)
    sizes = [pc.fill_null(found["bytes_sum"], 0), found["busiest"]]  # 0: nobody had anything to send
    table = pa.table([*(found[name] for name in _WHEN), *sizes, found["legs"]], [*_WHEN, "bytes", "busiest", "legs"])
    return table.sort_by([(name, "ascending") for name in _WHEN])


def used(table: pa.Table, key: str, leave_out: Sequence[str] = ()) -> dict[Any, Usage]:
    """The usage of all phases by ``key`` (``purpose`` or ``epoch``), without those of the purposes ``leave_out``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = ("bytes", "busiest", "legs")
    table = table.filter(pc.invert(pc.is_in(table["purpose"], pa.array(leave_out, pa.string()))))
    sums = table.group_by(key).aggregate([(name, "sum") for name in names]).to_pylist()
    return {line[key]: Usage(*(line[f"{name}_sum"] for name in names)) for line in sums}


def price_of_scores(steps: pa.Table, legs: pa.Table, scores: Mapping[int, float | None]) -> dict[str, list[Any]]:
    """The ``curve`` of ``metrics.json``: validation scores by epoch, and the network usage of training until then.

    Costs are sums from the start: all bytes, bytes of messages other than parameters and gradients (``exchanged``),
    bytes of the busiest parties, and one-way trips.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = pa.array([purpose.value for name in ("setup", "training") for purpose in PARTS[name]])
    steps, legs = (table.filter(pc.is_in(table["purpose"], kept)) for table in (steps, legs))
    exchanged = steps.filter(pc.invert(pc.is_in(steps["kind"], pa.array([Kind.GRADIENTS, Kind.PARAMETERS]))))
    sums = {
        "exchanged": exchanged.group_by("epoch").aggregate([("bytes", "sum")]),
        **{name: phases(steps, legs).group_by("epoch").aggregate([(name, "sum")])
           for name in ("bytes", "busiest", "legs")},
    }  # fmt: skip
    found: dict[str, list[Any]] = {"epoch": list(scores), "valid": list(scores.values())}
    for name, table in sums.items():
        column = next(column for column in table.column_names if column.endswith("_sum"))
        spent = list(zip(table["epoch"].to_pylist(), table[column].to_pylist(), strict=True))
        found[name] = [sum(size for epoch, size in spent if epoch <= last) for last in scores]
    return found


def link_times(link: LinkConfig, usage: Mapping[str, Usage], computing: float) -> dict[str, Any]:
    """The ``link`` table of ``metrics.json``: waiting times until training ends, and those of each part of the run."""
    parts = {name: sum((usage.get(p, Usage()) for p in purposes), Usage()) for name, purposes in PARTS.items()}
    told = {name: {"bytes": part.bytes, **_waits(link, part)} for name, part in parts.items()}
    waits = _waits(link, sum((part for name, part in parts.items() if name != "end"), Usage()))
    total = computing + waits["transfer_seconds"] + waits["latency_seconds"]
    return {
        "mbps": link.mbps,
        "latency_ms": link.latency_ms,
        "compute_seconds": computing,
        **waits,
        "seconds": total,
        "parts": told,
    }


def _waits(link: LinkConfig, usage: Usage) -> dict[str, float]:
    """Seconds of transfer, seconds of latency, and round trips of some usage."""
    return {
        "transfer_seconds": link.transfer(usage.busiest),
        "latency_seconds": link.latency(usage.legs),
        "round_trips": usage.legs / 2,
    }
