"""What one party has spent over all its runs, and whether its budgets have room for what is about to leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from isthmus.policy.chain_file import ChainFile
from isthmus.policy.rules import Budget, Refusal, Rules
from isthmus.policy.units import EDGE
from isthmus.protect.accounting.privacy_loss import Loss, Noised, epsilons, loss_of
from isthmus.protect.events import from_json, to_json

RUN, RELEASE, BYTES = "run", "release", "bytes"  # what a line of an account is about
_MOST = 2**40  # releases that nobody sends
_PARTS = 64  # bytes are booked in advance, in so many parts of the bound

Treatment = tuple[Noised, int]  # the noise of a release, and the numbers in it (0: rows of nodes)


@dataclass(frozen=True)
class RunId:
    """The run that releases are booked under: its configuration and folder, and whether noise follows from its seed."""

    config: str
    folder: str
    by_seed: bool = False
    resumed: bool = False


@dataclass
class SpentTotals:
    """Releases by unit and treatment, and for edges the (epsilon, delta) of each stretch of a run."""

    releases: dict[str, dict[Treatment, int]] = field(default_factory=dict)
    pairs: dict[int, tuple[float, float]] = field(default_factory=dict)  # by the number of a stretch
    bytes: int = 0  # booked by the run

    @staticmethod
    def of(lines: Sequence[Mapping[str, Any]], run: str = "") -> SpentTotals:
        """What the lines of an account add up to; ``bytes`` are those of ``run``."""
        found = SpentTotals()
        for line in lines:
            if line["what"] == RELEASE and line["unit"] == EDGE:
                found.pairs[line["stretch"]] = (line["pair"][0], line["pair"][1])
            elif line["what"] == RELEASE:
                [event] = from_json([line["event"]])
                assert isinstance(event, Noised)
                found.add(line["unit"], (event, line["width"]), line["releases"])
            elif line["what"] == BYTES and line["run"] == run:
                found.bytes = line["bytes"]
        return found

    def add(self, unit: str, how: Treatment, releases: int) -> None:
        """Add releases of a unit."""
        mine = self.releases.setdefault(unit, {})
        mine[how] = mine.get(how, 0) + releases

    def loss(self, unit: str, more: Mapping[Treatment, int] | None = None) -> Loss:
        """The loss of a unit, with so many ``more`` releases."""
        each = dict(self.releases.get(unit, {}))
        for how, releases in (more or {}).items():
            each[how] = each.get(how, 0) + releases
        return Loss.total(loss_of(releases, width, noise) for (noise, width), releases in each.items())

    def spent(self, budget: Budget, more: Mapping[Treatment, int] | None = None) -> float:
        """Epsilon of a budget's unit at the budget's delta, with so many ``more`` releases."""
        return epsilons([self.loss(budget.unit, more)], budget.delta)[0]

    def pair(self) -> tuple[float, float]:
        """Epsilon and delta of edges: both add up over stretches."""
        return sum(pair[0] for pair in self.pairs.values()), sum(pair[1] for pair in self.pairs.values())

    def room(self, budget: Budget, how: Treatment) -> int:
        """The largest number of further releases that fits, found by bisecting the accountant."""
        return most(lambda releases: self.spent(budget, {how: releases}) <= budget.epsilon)


def most(fits: Callable[[int], bool]) -> int:
    """The largest whole number that fits, of those below 2^40; ``fits`` is true up to it, and false from there on."""
    if not fits(0):
        return 0
    least, bound = 0, 1
    while bound < _MOST and fits(bound):
        least, bound = bound, 2 * bound
    while bound - least > 1:
        middle = (least + bound) // 2
        least, bound = (middle, bound) if fits(middle) else (least, middle)
    return least


class Spending:
    """The account of one party during a run: charges what is about to leave, and books it before it does.

    A stretch is the part of a run that one process computes. Releases of a stretch count from its start on, so that
    what was booked before, also by a process that was killed, stands. Where noise follows from the run's seed, a
    resumed run repeats releases number for number: those that are booked already (``repeats``) are not booked again.
    """

    def __init__(self, chain: ChainFile, rules: Rules, party: str, run: RunId) -> None:
        self.chain, self.rules = chain, rules
        self.run = self._enter(run)
        self.stretch = len(chain.lines)
        mine = [line for line in chain.lines if line.get("run") == self.run]
        drawn = [line["draws"] for line in mine if line["what"] == RELEASE]
        self.repeats = max(drawn, default=-1) if run.by_seed else -1
        self.steps = max((line["step"] for line in mine if line["what"] == RELEASE), default=-1)
        self.totals = SpentTotals.of(chain.lines, self.run)
        self._pending: dict[tuple[str, str, Treatment], int] = {}
        self._lines: list[dict[str, Any]] = []
        self.bytes, self._booked = self.totals.bytes, self.totals.bytes
        told = {"resumed": run.resumed, "config": run.config, "folder": run.folder, "time": _now()}
        chain.append([{"what": RUN, "run": self.run, "party": party, **told}])

    def _enter(self, run: RunId) -> str:
        """The name of the run: a resumed one keeps its own."""
        known = [line for line in self.chain.lines if line["what"] == RUN]
        alike = [line["run"] for line in known if (line["config"], line["folder"]) == (run.config, run.folder)]
        if run.resumed and alike:
            return str(alike[-1])
        return f"{run.config}-{1 + len({line['run'] for line in known})}"

    def charge(self, budget: Budget, kind: str, how: Treatment, releases: int) -> Refusal | None:
        """Count releases that are about to leave; a refusal where the budget has no room for them."""
        after = self.totals.spent(budget, {how: releases})
        if after > budget.epsilon:
            return Refusal(kind, budget.rule, self._over(budget, how, releases, after))
        self.totals.add(budget.unit, how, releases)
        key = budget.unit, kind, how
        self._pending[key] = self._pending.get(key, 0) + releases
        return None

    def _over(self, budget: Budget, how: Treatment, releases: int, after: float) -> str:
        known = sum(self.totals.releases.get(budget.unit, {}).values())
        return (
            f"{releases} more releases of one {budget.unit} after {known} would make epsilon {after:.4g} at delta "
            f"{budget.delta:g}, of {budget.epsilon:g}; there is room for {self.totals.room(budget, how)}"
        )

    def charge_edges(self, budget: Budget, kind: str, pair: tuple[float, float], draws: int) -> Refusal | None:
        """Take note of what this stretch's draws tell of an edge by now; a refusal where that is too much."""
        if self.totals.pairs.get(self.stretch) == pair:
            return None
        self.totals.pairs[self.stretch] = pair
        epsilon, delta = self.totals.pair()
        if epsilon > budget.epsilon or delta > budget.delta:
            why = f"draws of lists would make epsilon {epsilon:.4g} and delta {delta:.4g}"
            return Refusal(kind, budget.rule, f"{why}, of {budget.epsilon:g} and {budget.delta:g}")
        told = {"unit": EDGE, "kind": kind, "stretch": self.stretch, "pair": list(pair), "releases": draws}
        self._lines.append({**told, "epsilon": epsilon, "of": budget.epsilon, "delta": delta})
        return None

    def send(self, size: int, kind: str) -> Refusal | None:
        """Count bytes that are about to leave; a refusal where the bound of the run has no room for them."""
        most, self.bytes = self.rules.bytes, self.bytes + size
        if not most or self.bytes <= self._booked:
            return None
        if self.bytes > most:
            return Refusal(kind, "bytes", f"this run would send {self.bytes:,} bytes, of {most:,}")
        self._booked = min(most, max(self.bytes, self._booked + -(-most // _PARTS)))
        self._lines.append({"what": BYTES, "bytes": self._booked})
        return None

    def book(self, step: int, draws: int) -> None:
        """Write into the account what was charged since the last call; when this returns it is on the disk."""
        if not self._pending and not self._lines:
            return
        about = {"run": self.run, "step": step, "draws": draws, "time": _now()}
        lines = [{"what": RELEASE, **about, **self._told(*key, count)} for key, count in self._pending.items()]
        self.chain.append([*lines, *({"what": RELEASE, **about, **line} for line in self._lines)])
        self._pending, self._lines = {}, []

    def _told(self, unit: str, kind: str, how: Treatment, releases: int) -> dict[str, Any]:
        budget = next(each for each in self.rules.budgets if each.unit == unit)
        noise, width = how
        told = {"unit": unit, "kind": kind, "event": to_json((noise,))[0], "width": width, "releases": releases}
        return {**told, "epsilon": self.totals.spent(budget), "of": budget.epsilon, "delta": budget.delta}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
