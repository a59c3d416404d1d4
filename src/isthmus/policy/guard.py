"""The policies of the silos on one host, at the one door: asked before anything is sealed, whatever the transport."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from isthmus.core.kinds import FINAL, SERVER, Kind, Purpose, silo_of_devices
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.policy.counting import RowCounts
from isthmus.policy.rules import Budget, Leaving, Refusal, Rules
from isthmus.policy.spending import Spending
from isthmus.policy.trained import Trained, no_sums, noise_of_steps
from isthmus.policy.units import EDGE, LABEL, UNITS
from isthmus.protect.accounting.privacy_loss import Noised
from isthmus.protect.events import Events
from isthmus.protect.secrets import Noise
from isthmus.wire.door import row_size
from isthmus.wire.policy import Policy, Sender

_KNOWN = 8192  # ways to send that are kept as allowed
BESIDE = (Purpose.SETUP, Purpose.HANDOVER, *FINAL)  # statistics of these are counts and moments of raw columns


@dataclass
class Party:
    """A silo of this host: its name, its rules, and where it has budgets what it has spent."""

    name: str
    rules: Rules
    spending: Spending | None = None


@dataclass(frozen=True)
class Way:
    """What a parcel looks like when it leaves: its events, those of the steps before it, and bytes of a row."""

    events: Events
    steps: Events
    bytes: int
    divided: bool  # into shares

    @property
    def all(self) -> Events:
        """Everything that protects what is inside."""
        return (*self.events, *self.steps)

    def routes(self, parcel: Parcel) -> tuple[Traffic, ...]:
        """From whom to whom a parcel goes; where it is divided, the way of each share."""
        return parcel.holders if self.divided and parcel.holders else (parcel.traffic,)


class Guard(Policy):
    """Applies the rules of ``parties`` {number of a silo: its rules} to what leaves their host.

    What depends on kind, form, sender and receiver alone is decided once. Bytes and budgets are counted at every call,
    for silos that have such rules, and booked in their accounts before this returns.
    """

    def __init__(self, parties: dict[int, Party]) -> None:
        self.parties = parties
        self.counted = {n: each for n, each in parties.items() if each.rules.budgets or each.rules.bytes}
        self.rows = RowCounts()
        self.trained: Trained | None = None
        self._taken: dict[int, int] = {}  # steps of labels that are charged, by silo
        self._ways: dict[tuple[object, ...], Way] = {}
        self._allowed: set[tuple[object, ...]] = set()

    def admit(self, sender: Sender, parcels: Collection[Parcel]) -> None:
        """Raise `Refused` for the first thing that a party here does not let leave; book what it lets leave."""
        mine = [parcel for parcel in parcels if not parcel.by_server]
        for parcel in mine:
            self._judge(sender, parcel)
        if not self.counted:
            return
        for parcel in mine:
            way = self.way(sender, parcel)
            self._weigh(parcel, way)
            self._charge(sender, parcel, way)
        for party in self.counted.values():
            if party.spending is not None:
                party.spending.book(sender.ledger.step, sender.noise.draws)

    def refuse(self, silo: int, refusal: Refusal | None) -> None:
        """End the run if there is a refusal."""
        if refusal is not None:
            raise refusal.by(self.parties[silo].name)

    # ---- by kind, form, sender and receiver

    def _judge(self, sender: Sender, parcel: Parcel) -> None:
        way = self.way(sender, parcel)
        routes = way.routes(parcel)
        ends = tuple(end.tobytes() for route in routes for end in (route.sender, route.receiver))
        key = (parcel.kind, way, parcel.origin.fewest, len(sender.ledger.names), ends)
        if key in self._allowed:
            return
        for silo, receiver in pairs(routes):
            if silo in self.parties:
                what = Leaving(parcel.kind, sender.party(receiver), way.all, parcel.origin.fewest)
                self.refuse(silo, self.parties[silo].rules.refusal(what))
        if len(self._allowed) >= _KNOWN:
            self._allowed.clear()
        self._allowed.add(key)

    def way(self, sender: Sender, parcel: Parcel) -> Way:
        """What a parcel will look like, from one of its kind without rows that passes the chain."""
        rows, chain = parcel.rows, sender.protect
        below = bool((parcel.traffic.sender < SERVER).any())
        form = parcel.derived, below, rows.shape[1:], rows.dtype, len(parcel.holders), len(parcel.added)
        key = (chain, parcel.kind, *form)
        if key not in self._ways:
            none = torch.zeros(0, dtype=torch.int64)
            empty = replace(parcel, rows=rows[:0], origin=Origin(none, none), copies=None, weights=None)
            sealed = chain.seal(empty, Noise())
            steps = chain.perturb(no_sums(), [], Noise())[1] if chain.bounds_seeds else ()
            size = row_size(sealed.rows, sealed.shares)
            self._ways[key] = Way(sealed.events, steps, size, sealed.shares > 1)
        return self._ways[key]

    # ---- by amounts

    def _weigh(self, parcel: Parcel, way: Way) -> None:
        """Count bytes against the bounds of silos."""
        for silo, party in self.counted.items():
            if party.spending is not None and party.rules.bytes:
                rows = sum(_rows_of(route, silo) for route in way.routes(parcel))
                if rows:
                    self.refuse(silo, party.spending.send(rows * way.bytes, parcel.kind))

    def _charge(self, sender: Sender, parcel: Parcel, way: Way) -> None:
        """Count releases against the budgets of silos whose data is in a parcel."""
        if parcel.derived:  # what is inside was charged when it left, sealed
            return
        inside = [silo for silo in self.counted if bool((parcel.origin.silo == silo).any())]
        by_draws = self.trained is not None and self.trained.by_draws
        for silo, budget in self._budgets(inside):
            moments = parcel.kind == Kind.STATISTICS and sender.ledger.purpose not in BESIDE
            self.refuse(silo, bare(parcel.kind, way, budget, moments, by_draws))
        self._charge_released(sender, parcel, way, inside)
        self._charge_trained(sender, parcel, way, inside)

    def _charge_released(self, sender: Sender, parcel: Parcel, way: Way, inside: Sequence[int]) -> None:
        noise = _noise(way.events)
        wanted = [
            (silo, budget)
            for silo, budget in self._budgets(inside)
            if not UNITS[budget.unit].trained and parcel.kind in UNITS[budget.unit].charged
        ]
        wanted = [(silo, budget) for silo, budget in wanted if not self._repeats(sender, silo)]
        if noise is None or not wanted:
            return
        units = tuple({budget.unit for _, budget in wanted})
        added = self.rows.added(parcel, noise, sender.mine, sender.releases.sizes, units)
        width = 0 if parcel.of_nodes else parcel.rows.shape[1:].numel()
        for silo, budget in wanted:
            more = added.get(budget.unit, {}).get(silo, 0)
            spending = self.counted[silo].spending
            if more and spending is not None:
                self.refuse(silo, spending.charge(budget, parcel.kind, (noise, width), more))

    def _charge_trained(self, sender: Sender, parcel: Parcel, way: Way, inside: Sequence[int]) -> None:
        for silo, budget in self._budgets(inside):
            spending, unit = self.counted[silo].spending, UNITS[budget.unit]
            if not unit.trained or parcel.kind not in unit.charged or spending is None or self.trained is None:
                continue
            again = sender.ledger.step < spending.steps if unit.name == EDGE else self._repeats(sender, silo)
            if again:
                self.trained.begin()  # what a resumed run computes again, number for number
                continue
            noise = noise_of_steps(way.steps)
            if unit.name == EDGE:
                pair, draws = self.trained.pair(silo)
                self.refuse(silo, spending.charge_edges(budget, parcel.kind, pair, draws))
            elif noise is not None:
                taken = self.trained.steps(silo)
                more = taken - self._taken.get(silo, 0)
                if more > 0:
                    self._taken[silo] = taken
                    self.refuse(silo, spending.charge(budget, parcel.kind, (noise, 0), more))

    def _budgets(self, silos: Sequence[int]) -> Iterator[tuple[int, Budget]]:
        for silo in silos:
            for budget in self.counted[silo].rules.budgets:
                yield silo, budget

    def _repeats(self, sender: Sender, silo: int) -> bool:
        """Whether a resumed run, whose noise follows from its seed, sends again what it has booked and sent before."""
        spending = self.counted[silo].spending
        return spending is not None and sender.noise.draws <= spending.repeats


def bare(kind: Kind, way: Way, budget: Budget, moments: bool = False, by_draws: bool = False) -> Refusal | None:
    """A refusal of data of a unit that would leave without what its budget counts.

    ``moments``: the statistics are moments of rows of a batch. ``by_draws``: lists of neighbours are drawn from.
    """
    unit, why = UNITS[budget.unit], ""
    if kind in unit.bare or (moments and not unit.trained):
        why = f"they carry data of one {unit.name}, to which no noise is ever added"
    elif kind in unit.charged and unit.name == EDGE and not by_draws:
        why = "lists of neighbours would be read as a whole; use train.draws=refill, a train.batch and a train.fanout"
    elif kind in unit.charged and unit.name == LABEL and noise_of_steps(way.steps) is None:
        why = "parameters would be trained without the bounds and the noise of protect=dp-sgd"
    elif kind in unit.charged and not unit.trained and _noise(way.events) is None:
        why = f"data of one {unit.name} would leave without noise"
    return Refusal(kind.value, budget.rule, why) if why else None


def _noise(events: Events) -> Noised | None:
    return next((event for event in events if isinstance(event, Noised)), None)


def pairs(routes: Collection[Traffic]) -> list[tuple[int, int]]:
    """Each pair of a silo that sends, by itself or its devices, and a party that is not below it, once."""
    found = set[tuple[int, int]]()
    for route in routes:
        both = np.unique(np.stack([route.sender, route.receiver], 1), axis=0).tolist() if len(route.sender) else []
        found |= {(_owner(sender), _owner(receiver)) for sender, receiver in both}
    return sorted((sender, receiver) for sender, receiver in found if sender != receiver and sender != SERVER)


def _owner(party: int) -> int:
    """The silo that a party number stands for or lies below; the server's stays."""
    below = silo_of_devices(party)
    return party if below is None else below


def _rows_of(route: Traffic, silo: int) -> int:
    """Rows that a silo and its devices send to others."""
    sender, receiver = (np.where(end < SERVER, SERVER - 1 - end, end) for end in (route.sender, route.receiver))
    return int(route.rows[(sender == silo) & (receiver != silo)].sum())
