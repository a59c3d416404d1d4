"""What a run does without a party, and the calendar by which simulations let silos miss rounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.random import stream

STOP, STALE = "stop", "stale"
LAST, AVERAGE, DROP = "last", "average", "drop"
HALO_ROWS = (LAST, AVERAGE, DROP)  # what is read for rows of absent silos
READ_AS = {  # for the report
    LAST: "Its rows were read as it had released them last (exchange.absent=last).",
    AVERAGE: "Moving averages of what it had released stood in for its rows (exchange.absent=average).",
    DROP: "Edges to its nodes were left out.",
}
_FINE = 2**20  # steps in which a share of rounds is counted


@dataclass(frozen=True)
class AbsenceConfig:
    """What happens where a party is not there.

    ``absent``: the run ends (``stop``), or the others go on with what they have of it (``stale``). ``least``: parties
    with fewer than which nothing goes on: a mean over one party would be that party's own. ``away``, for simulations:
    silos that miss rounds, as ``SILO:FIRST-LAST`` (rounds of the run, counted from 1) or ``SILO:SHARE`` (that share of
    all rounds, drawn from the seed).
    """

    absent: str = STOP
    least: int = 2
    away: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuse values that mean nothing."""
        if self.absent not in (STOP, STALE):
            raise unknown("federation.absent", self.absent, (STOP, STALE))
        if self.least < 1:
            raise IsthmusError(f"federation.least is {self.least}; at least 1 party must be there.")
        if self.away and self.absent == STOP:
            raise IsthmusError(
                "federation.away lets silos miss rounds, but with federation.absent=stop a run ends without one; use "
                "federation.absent=stale."
            )
        _ = self.absences

    @property
    def goes_on(self) -> bool:
        """Whether the others go on without a party."""
        return self.absent == STALE

    @cached_property
    def absences(self) -> tuple[Absence, ...]:
        """The entries of ``away``; raises for one that cannot be read."""
        return tuple(_read(entry) for entry in self.away)

    def present(self, number: int, seed: int, silos: int) -> tuple[int, ...]:
        """The silos that take part in a round of the run (counted from 0), as ``away`` has it."""
        gone = {absence.silo for absence in self.absences if absence.covers(number, seed)}
        here = tuple(silo for silo in range(silos) if silo not in gone)
        if gone and len(here) < self.least:
            raise IsthmusError(
                f"federation.away leaves {len(here)} of {silos} silos in round {number + 1}, fewer than "
                f"federation.least={self.least}; let fewer be away at once."
            )
        return here

    def check_silos(self, silos: int, hosts: int) -> None:
        """Refuse fewer silos than ``least``, entries of ``away`` about other silos, and ``away`` with several hosts."""
        if self.goes_on and silos < self.least:
            raise IsthmusError(
                f"federation.least is {self.least}, but silos: {silos}; all would wait. Give a smaller one, or "
                "use federation.absent=stop."
            )
        for absence in self.absences:
            if absence.silo >= silos:
                raise IsthmusError(
                    f"federation.away names silo {absence.silo}, but there are {silos}: 0 to {silos - 1}."
                )
        if self.away and hosts > 1:
            raise IsthmusError(
                "federation.away lets silos of a simulation miss rounds, in one process; with several hosts leave it "
                "out, and stop a host."
            )


STOPPING = AbsenceConfig()  # a run ends without one of its parties


@dataclass(frozen=True)
class Absence:
    """One silo's missed rounds: from ``first`` to ``last`` (counted from 0), or a ``share`` of all rounds."""

    silo: int
    first: int = 0
    last: int = -1
    share: float = 0.0

    def covers(self, number: int, seed: int) -> bool:
        """Whether the silo misses a round (counted from 0)."""
        drawn = self.share > 0 and stream(seed, "away", number, self.silo) % _FINE < self.share * _FINE
        return drawn or self.first <= number <= self.last


def _read(entry: str) -> Absence:
    """An entry of ``federation.away``."""
    silo, _, rounds = entry.partition(":")
    first, _, last = rounds.partition("-")
    try:
        if last:
            found = Absence(int(silo), int(first) - 1, int(last) - 1)
            if 0 <= found.first <= found.last and found.silo >= 0:
                return found
        else:
            found = Absence(int(silo), share=float(rounds))
            if 0 <= found.share <= 1 and found.silo >= 0:
                return found
    except ValueError:
        pass
    raise IsthmusError(
        f"federation.away has '{entry}'; write SILO:FIRST-LAST, such as 2:10-20 (rounds counted from 1), or "
        "SILO:SHARE, such as 2:0.5."
    )
