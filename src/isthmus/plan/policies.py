"""What policies say of a run that is planned: every refusal of its trial, and of what the whole run would spend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

from isthmus.core.kinds import Kind
from isthmus.graph.silo import Silo
from isthmus.launch.policies import Found, Policies, end_for, starters, watch
from isthmus.plan.disclosed import Factors, planned_flows
from isthmus.policy.chain_file import read_chain
from isthmus.policy.foreseen import Collector
from isthmus.policy.guard import Party
from isthmus.policy.parties import account_of
from isthmus.policy.rules import Budget, Refusal
from isthmus.policy.spending import SpentTotals, Treatment
from isthmus.policy.units import NODE, ROW, UNITS
from isthmus.protect.accounting.charges import charge, noise_of
from isthmus.protect.releases import Releases
from isthmus.train.training import Training
from isthmus.wire.wire import Wire


class AskedPolicies:
    """The policies of all silos of a run, beside its trial in this process; ``found`` is what they refuse.

    ``out`` is where run folders lie, beside which accounts of silos without folders do.
    """

    def __init__(self, policies: Policies, wire: Wire, out: Path = Path("runs/run"), strict: bool = True) -> None:
        """With ``strict`` the first refusal of each stage ends the plan."""
        self.policies, self.wire, self.out, self.strict = policies, wire, out, strict
        self.found: Found = policies.of_run(starters(wire.members, policies.others))
        self.collector: Collector | None = None
        self._end()

    def _end(self) -> None:
        if self.strict:
            end_for(self.found)

    def set_up(self, silos: Sequence[Silo]) -> None:
        """Look at the columns of the data, and stand at the door."""
        if self.policies.config.method.merged:
            return
        self.found += self.policies.of_data(silos)
        self._end()
        if self.policies.open:
            return
        rules = self.policies.rules
        self.collector = Collector({silo.number: Party(silo.name, rules[silo.number]) for silo in silos})
        self.wire.policy = self.collector

    def watch(self, training: Training) -> None:
        """Count what parameters are trained with."""
        if self.collector is not None:
            watch(self.collector, training)

    def answer(self, training: Training, releases: Releases, factors: Factors) -> None:
        """Gather what was refused, and what the whole run would exceed: budgets of releases, and bounds on bytes.

        ``releases`` are the whole run's; ``factors`` scale what the trial sent.
        """
        if self.collector is None:
            return
        self.found += [(party, refusal) for (party, _, _), refusal in self.collector.found.items()]
        unbudgeted = {(party, refusal.rule) for party, refusal in self.found}
        for party, refusal in [*self._over_budget(training, releases), *self._over_bytes(training, factors)]:
            if (party, refusal.rule) not in unbudgeted:
                self.found.append((party, refusal))
        self._end()

    def _over_budget(self, training: Training, releases: Releases) -> Found:
        found = Found()
        ends = accumulate([silo.n + silo.h for silo in training.federation.silos], initial=0)
        for silo, rows in zip(training.federation.silos, pairwise(ends), strict=True):
            rules = self.policies.rules[silo.number]
            path = account_of(rules, silo.name, self.policies.parts, self.out)
            spent = SpentTotals.of(read_chain(path) if rules.budgets and path.is_file() else [])
            for budget in rules.budgets:
                if not UNITS[budget.unit].trained:
                    more = dict(_whole_run(budget, releases, slice(*rows), silo.number))
                    refusal = _refused(budget, spent, more)
                    found += [(silo.name, refusal)] if refusal is not None else []
        return found

    def _over_bytes(self, training: Training, factors: Factors) -> Found:
        sent: dict[str, int] = {}
        for flow in planned_flows(training.wire.ledger.table().to_pylist(), factors):
            sent[flow.sender] = sent.get(flow.sender, 0) + flow.bytes
        found = Found()
        for silo in training.federation.silos:
            most, size = self.policies.rules[silo.number].bytes, sent.get(silo.name, 0)
            if most and size > most:
                found.append(
                    (silo.name, Refusal("the whole run", "bytes", f"it would send {size:,} bytes, of {most:,}"))
                )
        return found


def _whole_run(budget: Budget, releases: Releases, rows: slice, silo: int) -> Iterator[tuple[Treatment, int]]:
    """By noise, the releases of a run that a budget counts; kinds without noise are refused elsewhere."""
    found: dict[Treatment, int] = {}
    for kind in UNITS[budget.unit].charged:
        noise = noise_of(releases.events.get(kind, []))
        each = charge(releases, kind, rows, silo)
        by_row = budget.unit == ROW or (budget.unit == NODE and kind == Kind.AGGREGATES)
        count = each.row if by_row else max(each.node, each.nodes)
        if noise is not None and count:
            found[noise, each.width] = found.get((noise, each.width), 0) + count
    yield from found.items()


def _refused(budget: Budget, spent: SpentTotals, more: dict[Treatment, int]) -> Refusal | None:
    after = spent.spent(budget, more)
    if after <= budget.epsilon:
        return None
    room = min((spent.room(budget, how) for how in more), default=0)
    why = (
        f"its {sum(more.values()):,} releases of one {budget.unit} would make epsilon {after:.4g} at delta "
        f"{budget.delta:g}, of {budget.epsilon:g}; there is room for {room:,}"
    )
    return Refusal("the whole run", budget.rule, why)
