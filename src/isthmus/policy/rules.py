"""The rules of a party, each with a refusal of its own: a sentence that names the rule as the file spells it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from isthmus.core.kinds import SERVER_NAME, Kind
from isthmus.core.name_lists import some_of
from isthmus.policy.protections import RequiredProtection
from isthmus.protect.events import Events, describe
from isthmus.wire.policy import Refused


@dataclass(frozen=True)
class Refusal:
    """Why something is refused: ``what`` it is, by which ``rule``, and the ``reason``, which only its own party reads.

    Other parties hear what is refused and the name of the rule: no value of the policy, and nothing of the data.
    """

    what: str
    rule: str
    reason: str

    def by(self, party: str) -> Refused:
        """The error that ends a run, in which ``party`` refuses."""
        told = f"The policy of {party} refuses {self.what} by its rule {self.rule}."
        return Refused(f"The policy of {party} refuses {self.what}: {self.reason} ({self.rule}).", told)


EVERYBODY, SILOS = "*", "silos"  # words in lists of receivers: everybody, and every silo
ALLOW, REFUSE = "allow", "refuse"


@dataclass(frozen=True)
class Leaving:
    """What one party is about to send to one other: a kind of message, as what, and the smallest sum in it."""

    kind: Kind
    receiver: str
    events: Events
    fewest: int = 1


@dataclass(frozen=True)
class KindRules:
    """The rules for one kind of message: to whom it may go, with which protection at least, of how many at least.

    ``to``: names of parties, ``server``, ``silos`` (every one) or ``*``. ``protect``: alternatives, of which one must
    hold; each is one or more protections that must all hold (none: nothing is asked for). ``smallest_sum``: of how many
    rows, or silos, a sum that somebody reads must be made.
    """

    kind: Kind
    to: tuple[str, ...] = (EVERYBODY,)
    protect: tuple[tuple[RequiredProtection, ...], ...] = ()
    smallest_sum: int = 1

    @property
    def free(self) -> bool:
        """Whether nothing is refused."""
        return EVERYBODY in self.to and not self.protect and self.smallest_sum <= 1

    def refusal(self, what: Leaving) -> Refusal | None:
        """Why something of this kind may not leave; None where it may."""
        return self._to(what) or self._protected(what) or self._summed(what)

    def _refused(self, key: str, reason: str) -> Refusal:
        return Refusal(self.kind.value, f"[leave.{self.kind}] {key}", reason)

    def _to(self, what: Leaving) -> Refusal | None:
        words = {EVERYBODY, what.receiver, *([] if what.receiver == SERVER_NAME else [SILOS])}
        if words & set(self.to):
            return None
        return self._refused("to", f"they may go to {quoted(self.to)}, and would go to {what.receiver}")

    def _protected(self, what: Leaving) -> Refusal | None:
        if not self.protect or any(all(demand.met(what.events) for demand in each) for each in self.protect):
            return None
        asked = " or ".join(" and ".join(map(str, each)) for each in self.protect)
        has = describe(what.events).partition("/")[0]
        return self._refused("protect", f"they would leave {has}, and must have {asked}")

    def _summed(self, what: Leaving) -> Refusal | None:
        if what.fewest >= self.smallest_sum:
            return None
        told = f"the smallest sum would be of {what.fewest}, and must be of {self.smallest_sum}"
        return self._refused("smallest_sum", told)


@dataclass(frozen=True)
class RunRules:
    """The rules for a run as a whole: methods, models and columns that may be used, and who may start one."""

    methods: tuple[str, ...] = (EVERYBODY,)
    models: tuple[str, ...] = (EVERYBODY,)
    columns: tuple[str, ...] = (EVERYBODY,)
    started_by: tuple[str, ...] = (EVERYBODY,)

    def of_method(self, label: str) -> Refusal | None:
        """Why a method may not be run; ``label`` is its name with the parts that are not its own."""
        if label in self.methods or EVERYBODY in self.methods:
            return None
        return Refusal(f"method '{label}'", "[run] methods", f"it may be one of {quoted(self.methods)}")

    def of_model(self, name: str) -> Refusal | None:
        """Why a model may not be trained; None where it may."""
        if EVERYBODY in self.models or name in self.models:
            return None
        return Refusal(f"model '{name}'", "[run] models", f"it may be one of {quoted(self.models)}")

    def of_columns(self, names: Collection[str], unnamed: int) -> Refusal | None:
        """Why data may not be used: a column of it is not listed, or ``unnamed`` features have no names to go by."""
        if EVERYBODY in self.columns:
            return None
        others = [name for name in names if not any(fnmatchcase(name, each) for each in self.columns)]
        if not others and not unnamed:
            return None
        what = some_of(others) if others else f"{unnamed} features without names"
        return Refusal(
            "columns of its data", "[run] columns", f"{what} would be used, and {quoted(self.columns)} may be"
        )

    def of_starter(self, names: Collection[str]) -> Refusal | None:
        """Why a run may not be started by the parties ``names``, those in whose process the server lives."""
        if EVERYBODY in self.started_by or set(names) & set(self.started_by):
            return None
        return Refusal(
            f"a run that {some_of(list(names))} started", "[run] started_by", f"{quoted(self.started_by)} may start one"
        )


@dataclass(frozen=True)
class Budget:
    """The most that this party may lose over all its runs: (epsilon, delta) of one ``unit``."""

    unit: str
    epsilon: float
    delta: float

    @property
    def rule(self) -> str:
        """The name of the rule."""
        return f"[budget.{self.unit}] epsilon"


@dataclass(frozen=True)
class Rules:
    """The whole policy of one party, as read from ``source``; by itself it refuses nothing."""

    source: str = "open"
    run: RunRules = RunRules()
    others: str = ALLOW  # kinds that no table names
    leave: Mapping[Kind, KindRules] = field(default_factory=dict)
    bytes: int = 0  # most bytes of one run; 0: no bound
    budgets: tuple[Budget, ...] = ()
    account: str = ""  # where the account lies, beside the policy; empty: where it lies by default

    @property
    def open(self) -> bool:
        """Whether nothing is refused that leaves."""
        free = all(each.free for each in self.leave.values())
        return self.others == ALLOW and free and not self.bytes and not self.budgets

    @property
    def refuses_nothing(self) -> bool:
        """Whether nothing is refused, neither what leaves nor a run, whatever it does with which data."""
        return self.open and self.run == RunRules()

    def of_method(self, label: str, merged: bool) -> Refusal | None:
        """Why a method may not be run; one that is ``merged`` sends nothing, for all data is in one place before."""
        if merged and not self.refuses_nothing:
            rule = "[run]" if self.open else "[leave]"
            return Refusal(f"method '{label}'", rule, "it puts all data in one place, past every rule on what leaves")
        return self.run.of_method(label)

    def refusal(self, what: Leaving) -> Refusal | None:
        """Why something may not leave; None where it may."""
        known = self.leave.get(what.kind)
        if known is not None:
            return known.refusal(what)
        if self.others == ALLOW:
            return None
        return Refusal(what.kind.value, "[leave] others", f"there is no [leave.{what.kind}]")


def quoted(names: Collection[str]) -> str:
    """A list of names as TOML writes it."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
