"""The policies of the silos on one host through a run: read, asked what can be foreseen, and set up at the door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

from isthmus.core.kinds import SERVER_NAME
from isthmus.data.members import is_parts, member_names
from isthmus.federation.federation import Federation
from isthmus.graph.encoding import source_columns
from isthmus.graph.silo import Silo
from isthmus.launch.release_files import by_seed
from isthmus.launch.trial import Opened, foresee
from isthmus.policy.chain_file import appending
from isthmus.policy.foreseen import Demand, permitted, refusals
from isthmus.policy.guard import Guard, Party
from isthmus.policy.parties import account_of, note_on_open, policies_of
from isthmus.policy.rules import Refusal, Rules
from isthmus.policy.spending import RunId, Spending
from isthmus.policy.trained import Trained
from isthmus.runs.config import RunConfig
from isthmus.train.training import Training
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire

UNKNOWN = "What this run sends could not be foreseen for policies, which were asked at every step alone: {}"
Found = list[tuple[str, Refusal]]  # the party that refuses, and what


class Policies:
    """The policies of ``names`` {number of a silo: its name}, which live in this process; ``others`` are all silos."""

    def __init__(self, config: RunConfig, names: dict[int, str], others: Sequence[str], named: str = "") -> None:
        self.config, self.names, self.others, self.named = config, names, others, named
        self.parts = Path(config.data.name) if is_parts(config.data.name) else None
        self.rules = policies_of(names, self.parts, named)
        self.notes: list[str] = []
        self.permits: dict[int, str] = {}  # hashes of what the policies of silos permit, of those that refuse something

    @staticmethod
    def on(mine: Iterable[int], config: RunConfig, named: str) -> Policies:
        """The policies of the silos ``mine`` of this process; where all are merged, of all of them."""
        every = all_names(config)
        mine = range(len(every)) if config.method.merged else mine
        return Policies(config, {silo: every[silo] for silo in mine}, every, named)

    @property
    def open(self) -> bool:
        """Whether no silo here refuses anything that leaves."""
        return all(rules.open for rules in self.rules.values())

    @property
    def refuses_nothing(self) -> bool:
        """Whether no silo here refuses a run, whatever it does with which data."""
        return all(rules.refuses_nothing for rules in self.rules.values())

    def of_run(self, starters: Sequence[str]) -> Found:
        """What is refused before any data is read: the method, the model, and who has started the run."""
        method, found = self.config.method, Found()
        for silo, rules in self.rules.items():
            asked = (
                rules.of_method(self.config.label, method.merged),
                rules.run.of_model(self.config.model.name),
                rules.run.of_starter(starters),
            )
            found += [(self.names[silo], refusal) for refusal in asked if refusal is not None]
        return found

    def of_data(self, silos: Sequence[Silo]) -> Found:
        """What is refused of the columns of this host's data."""
        found = Found()
        for silo in silos:
            refusal = self._columns(self.rules[silo.number], silo) if silo.number in self.rules else None
            found += [(silo.name, refusal)] if refusal is not None else []
        return found

    @staticmethod
    def _columns(rules: Rules, silo: Silo) -> Refusal | None:
        schema = silo.schema
        named = source_columns(schema.feature_names, silo.node_encoding)
        named += source_columns(schema.edge_feature_names, silo.edge_encoding)
        unnamed = schema.features * (not schema.feature_names)
        return rules.run.of_columns(named, unnamed + schema.edge_features * (not schema.edge_feature_names))

    def of_steps(self, silos: Sequence[Silo], demands: Sequence[Demand]) -> Found:
        """What is refused of what the run would send, by a trial that was made of it."""
        train, found = self.config.train, Found()
        by_draws = train.draws == "refill" and bool(train.batch)
        for silo in silos:
            near = [self.others[owner] for owner in silo.halo_owner.unique().tolist()]
            rest = [name for number, name in enumerate(self.others) if number != silo.number]
            told = refusals(self.rules[silo.number], demands, near, rest, by_draws)
            found += [(silo.name, refusal) for refusal in told]
        return found

    def summary(self, silo: Silo, demands: Sequence[Demand]) -> str:
        """A hash of what the policy of a silo permits of what a run would send."""
        mine = [refusal for name, refusal in self.of_steps([silo], demands) if name == silo.name]
        return permitted(self.rules[silo.number], demands, mine)

    def check_run(self, members: Membership) -> None:
        """Raise `Refused` for what is refused before any data is read."""
        end_for(self.of_run(starters(members, self.others)))

    def check_columns(self, silos: Sequence[Silo]) -> None:
        """Raise `Refused` for what is refused of the columns of this host's data."""
        end_for(self.of_data(silos))

    def check_data(self, silos: Sequence[Silo], opened: Opened) -> None:
        """Raise `Refused` for what is refused of this host's data, or of what a trial shows that the run would send."""
        if not self.config.method.merged:
            self.check_columns(silos)
            if silos and not self.open:
                told = foresee(self.config, silos[0].schema, opened)
                self.notes = [UNKNOWN.format(told.unknown)] if told.unknown else []
                shut = [silo for silo in silos if not self.rules[silo.number].open]
                self.permits = {silo.number: self.summary(silo, told.demands) for silo in shut}
                end_for(self.of_steps(silos, told.demands))

    @contextmanager
    def guarding(self, wire: Wire, out: Path, resume: bool) -> Iterator[Callable[[Training], None]]:
        """Set up the policies at the door; yields what is to be called with the training before its first step."""
        if self.open or self.config.method.merged:
            yield lambda training: None
            return
        seeded = by_seed(wire)
        run = RunId(self.config.digest(), str(out.absolute()), seeded, resume)
        with ExitStack() as accounts:
            parties = {}
            for silo, rules in self.rules.items():
                parties[silo] = Party(self.names[silo], rules)
                if rules.budgets or rules.bytes:
                    path = account_of(rules, self.names[silo], self.parts, out)
                    chain = accounts.enter_context(appending(path))
                    parties[silo].spending = Spending(chain, rules, self.names[silo], run)
            guard = Guard(parties)
            wire.policy = guard
            yield lambda training: watch(guard, training)

    def note(self, federation: Federation) -> None:
        """Note which silos have no policy of their own, where several hosts read folders of parties."""
        told = self.parts is not None and federation.wire.hosts > 1
        own = [note_on_open(self.names, self.parts, self.named)] if self.parts is not None and told else []
        for sentence in filter(None, [*own, *self.notes]):
            federation.note(sentence)


def watch(guard: Guard, training: Training) -> None:
    """Let a guard count, from here on, what parameters are trained with."""
    train, federation = training.train, training.federation
    ends = list(accumulate([silo.n + silo.h for silo in federation.silos], initial=0))
    places = {silo.number: slice(*both) for silo, both in zip(federation.silos, pairwise(ends), strict=True)}
    by_draws = train.draws == "refill" and bool(train.batch)
    guard.trained = Trained(federation.learnt, federation.drawn, by_draws, places)
    guard.trained.begin()


def all_names(config: RunConfig) -> list[str]:
    """Names of all silos of a run, as far as they are known before data is read."""
    if is_parts(config.data.name):
        return member_names(Path(config.data.name))
    return [f"silo-{silo}" for silo in range(config.data.silos)]


def starters(members: Membership, names: Sequence[str]) -> list[str]:
    """Who has started a run: the silos in whose process the server lives, or the server where it lives alone."""
    return [names[silo] for silo in members.shared_with_server] or [SERVER_NAME]


def end_for(found: Found) -> None:
    """Raise `Refused` for the first refusal; it says how many others there are."""
    if not found:
        return
    party, refusal = found[0]
    if len(found) > 1:
        more = f"{refusal.reason}; {len(found) - 1} more, which 'isthmus policy check' lists"
        refusal = replace(refusal, reason=more)
    raise refusal.by(party)
