"""What a run would send, as seen in a trial, and what the rules of a party would say of it: every refusal at once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from isthmus.core.kinds import SERVER, SERVER_NAME, Kind
from isthmus.core.parcel import Parcel
from isthmus.policy.guard import BESIDE, Guard, Party, Way, bare, pairs
from isthmus.policy.rules import Leaving, Refusal, Rules
from isthmus.wire.policy import Policy, Sender

NEIGHBOURS, ALL = "neighbours", "silos"  # silos that have common edges with the sender, and any silo
_ENOUGH = 2**62  # the size of a sum in a trial says nothing of those in the run


@dataclass(frozen=True)
class Demand:
    """One way in which a run wants something to leave: a kind, to whom, and in what form.

    ``to``: ``server``, neighbours or all silos. ``moments``: they are statistics of a batch.
    """

    kind: Kind
    to: str
    way: Way
    moments: bool = False

    def receivers(self, neighbours: Collection[str], others: Collection[str]) -> Collection[str]:
        """The parties that a silo would send to, of its ``neighbours`` and all ``others``."""
        return {SERVER_NAME: (SERVER_NAME,), NEIGHBOURS: neighbours, ALL: others}[self.to]


class DemandRecorder(Policy):
    """Lets everything leave, and remembers in which ways it did; silos ``linked`` {(a, b)} have common edges."""

    def __init__(self, silos: int, linked: Collection[tuple[int, int]]) -> None:
        self.demands: set[Demand] = set()
        self._guard = Guard({silo: Party(str(silo), Rules()) for silo in range(silos)})
        self._linked = set(linked)

    def admit(self, sender: Sender, parcels: Collection[Parcel]) -> None:
        """Remember the ways in which parcels of silos leave."""
        for parcel in parcels:
            if parcel.by_server:
                continue
            way = self._guard.way(sender, parcel)
            moments = parcel.kind == Kind.STATISTICS and sender.ledger.purpose not in BESIDE
            for pair in pairs(way.routes(parcel)):
                to = SERVER_NAME if pair[1] == SERVER else NEIGHBOURS if pair in self._linked else ALL
                self.demands.add(Demand(parcel.kind, to, way, moments))

    def found(self) -> list[Demand]:
        """The demands of a run; where all silos are written to, nothing is said of neighbours."""
        every = {(each.kind, each.way, each.moments) for each in self.demands if each.to == ALL}
        told = [
            each for each in self.demands if each.to != NEIGHBOURS or (each.kind, each.way, each.moments) not in every
        ]
        return sorted(told, key=lambda each: (each.kind.value, each.to, str(each.way)))


def refusals(
    rules: Rules, demands: Sequence[Demand], neighbours: Collection[str], others: Collection[str], by_draws: bool
) -> list[Refusal]:
    """What the rules of a party refuse of the demands of a run, each rule once for a kind."""
    found: dict[tuple[str, str], Refusal] = {}
    for demand in demands:
        asked = [
            rules.refusal(Leaving(demand.kind, name, demand.way.all, _ENOUGH))
            for name in demand.receivers(neighbours, others)
        ]
        asked += [bare(demand.kind, demand.way, budget, demand.moments, by_draws) for budget in rules.budgets]
        for refusal in asked:
            if refusal is not None:
                found.setdefault((refusal.what, refusal.rule), refusal)
    return list(found.values())


def permitted(rules: Rules, demands: Sequence[Demand], found: Sequence[Refusal]) -> str:
    """A hash of what a policy permits of the demands of a run; the demands are known to all, and no rule is in it."""
    refused = {refusal.what for refusal in found}
    told = [f"{each.kind} {each.to} {each.way.events} {each.kind.value not in refused}" for each in demands]
    return hashlib.blake2b("\n".join([*told, str(not found)]).encode(), digest_size=8).hexdigest()


class Collector(Guard):
    """Asks all rules and ends nothing: what would be refused, by party, each rule once for a kind."""

    def __init__(self, parties: Mapping[int, Party]) -> None:
        super().__init__(dict(parties))
        self.found: dict[tuple[str, str, str], Refusal] = {}

    def refuse(self, silo: int, refusal: Refusal | None) -> None:
        """Remember a refusal and go on."""
        if refusal is not None:
            self.found.setdefault((self.parties[silo].name, refusal.what, refusal.rule), refusal)
