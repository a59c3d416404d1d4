"""The time of a run over a network: measured compute + bytes / bandwidth + latency x round trips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import STEPS, Kind, Purpose

if TYPE_CHECKING:
    import pyarrow as pa

# What people read of the purposes of the ledger. Training ends before the last part, whose time is told apart.
PARTS: dict[str, tuple[Purpose, ...]] = {
    "setup": (Purpose.SETUP,),
    "training": (Purpose.ORDER, *STEPS, Purpose.CORRECTION, Purpose.ROUND, Purpose.LOSSES),
    "validation": (Purpose.VALIDATION,),
    "end": (Purpose.END,),
}
_WHEN = ["epoch", "step", "purpose"]


@dataclass(frozen=True)
class LinkConfig:
    """The link of every party: ``mbps`` megabits a second in each direction, ``latency_ms`` for a round trip.

    It affects no result, only the time that a run is said to take over a network.
    """

    mbps: float = 1000.0
    latency_ms: float = 1.0

    def check(self) -> LinkConfig:
        """Refuse what no network is like."""
        if self.mbps < 0.001:
            raise IsthmusError(f"link.mbps is {self.mbps:g}; it must be at least 0.001 megabits a second.")
        if self.latency_ms < 0:
            raise IsthmusError(f"link.latency_ms is {self.latency_ms:g}; it must be 0 or more milliseconds.")
        return self

    def transfer(self, size: float) -> float:
        """Seconds until so many bytes have passed."""
        return size * 8 / (self.mbps * 1e6)

    def latency(self, legs: float) -> float:
        """Seconds that so many one-way trips wait."""
        return legs / 2 * self.latency_ms / 1000

    def __str__(self) -> str:
        return f"{self.mbps:g} Mbit/s and {self.latency_ms:g} ms"


@dataclass(frozen=True)
class Usage:
    """What crossed: ``bytes`` of all parties, those of the ``busiest`` one of each phase, and one-way trips."""

    bytes: float = 0
    busiest: float = 0
    legs: float = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.bytes + other.bytes, self.busiest + other.busiest, self.legs + other.legs)

    def times(self, factor: float, trips: float | None = None) -> Usage:
        """So many times as much; trips may have a factor of their own."""
        return Usage(self.bytes * factor, self.busiest * factor, self.legs * (factor if trips is None else trips))


def phases(ledger: pa.Table, legs: pa.Table) -> pa.Table:
    """For each (epoch, step, purpose): all bytes, the most that one party sent or received, and legs.

    Every party has one link in each direction, and all transfer at once, so that a phase lasts as long as its busiest
    party needs.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    moved = [ledger.group_by([*_WHEN, end]).aggregate([("bytes", "sum")]) for end in ("sender", "receiver")]
    ends = pa.concat_tables([table.select([*_WHEN, "bytes_sum"]) for table in moved])
    busiest = ends.group_by(_WHEN).aggregate([("bytes_sum", "max")])
    total = ledger.group_by(_WHEN).aggregate([("bytes", "sum")])
    found = legs.join(total, _WHEN).join(busiest, _WHEN)
    sizes = [pc.fill_null(found[name], 0) for name in ("bytes_sum", "bytes_sum_max")]  # nobody had anything to send
    table = pa.table([*(found[name] for name in _WHEN), *sizes, found["legs"]], [*_WHEN, "bytes", "busiest", "legs"])
    return table.sort_by([(name, "ascending") for name in _WHEN])


def used(table: pa.Table, key: str, leave_out: str = "") -> dict[Any, Usage]:
    """The phases summed by ``purpose`` or ``epoch``, without those of one purpose."""
    import pyarrow.compute as pc

    names = ("bytes", "busiest", "legs")
    table = table.filter(pc.not_equal(table["purpose"], leave_out))
    sums = table.group_by(key).aggregate([(name, "sum") for name in names]).to_pylist()
    return {line[key]: Usage(*(line[f"{name}_sum"] for name in names)) for line in sums}


def price_of_scores(ledger: pa.Table, legs: pa.Table, scores: Mapping[int, float | None]) -> dict[str, list[Any]]:
    """The ``curve`` of ``metrics.json``: validation scores by epoch, and what training alone had cost until then.

    Sums run from the start: all bytes, those that were no model's (``exchanged``), those of the busiest parties, and
    one-way trips.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = pa.array([purpose.value for name in ("setup", "training") for purpose in PARTS[name]])
    ledger, legs = (table.filter(pc.is_in(table["purpose"], kept)) for table in (ledger, legs))
    exchanged = ledger.filter(pc.invert(pc.is_in(ledger["kind"], pa.array([Kind.GRADIENTS, Kind.PARAMETERS]))))
    sums = {
        "exchanged": exchanged.group_by("epoch").aggregate([("bytes", "sum")]),
        **{name: phases(ledger, legs).group_by("epoch").aggregate([(name, "sum")])
           for name in ("bytes", "busiest", "legs")},
    }  # fmt: skip
    found: dict[str, list[Any]] = {"epoch": list(scores), "valid": list(scores.values())}
    for name, table in sums.items():
        column = next(column for column in table.column_names if column.endswith("_sum"))
        spent = list(zip(table["epoch"].to_pylist(), table[column].to_pylist(), strict=True))
        found[name] = [sum(size for epoch, size in spent if epoch <= last) for last in scores]
    return found


def link_times(link: LinkConfig, usage: Mapping[str, Usage], computing: float) -> dict[str, Any]:
    """The ``link`` table of ``metrics.json``: until training ends, part by part, and beside them the end."""
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
    return {
        "transfer_seconds": link.transfer(usage.busiest),
        "latency_seconds": link.latency(usage.legs),
        "round_trips": usage.legs / 2,
    }
