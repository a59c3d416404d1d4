"""A method: models, phases of training, protection, ways of scoring, and which of them go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import DEVICE, SCORES, SILO
from isthmus.engine.absence import AbsenceConfig
from isthmus.engine.learner import CLASSIFIER, ModelSpec
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import KNOWN
from isthmus.methods.phase import AXES, Phase
from isthmus.nn.model import ModelConfig
from isthmus.protect.base import Chain, Mechanism


@dataclass(frozen=True)
class Method:
    """A named composition.

    ``models``: those that learn, by name; the ``classifier`` is scored. ``protect`` is done, in order, to what leaves
    a silo. ``scores``: the ways in which parameters are scored (names of ``SCORES``), each with a selection of its own;
    the first gives the run's scores. ``merged``: one silo owns all. ``model``: the model that the
    method prescribes, if any; it may have one of ``instead`` in its place, where that is asked for.
    ``cross``: whether silos know of edges between them (``known``), or nobody does (``unknown``). ``level``: whether
    nodes belong to their ``silo``, or each to a ``device`` of its own below it.
    """

    name: str
    summary: str
    paper: str = ""
    phases: tuple[Phase, ...] = (Phase(),)
    models: Mapping[str, ModelSpec] = field(default_factory=lambda: {CLASSIFIER: ModelSpec()})
    protect: tuple[Mechanism, ...] = ()
    scores: tuple[str, ...] = ("trained",)
    merged: bool = False
    model: str = ""
    instead: tuple[str, ...] = ()
    cross: str = KNOWN
    level: str = SILO

    def __post_init__(self) -> None:
        names = [phase.name for phase in self.phases]
        if not names or len(set(names)) < len(names):
            raise IsthmusError(
                f"Method '{self.name}' has the phases {names}; it needs at least one, and their names must differ."
            )
        if CLASSIFIER not in self.models:
            raise IsthmusError(
                f"Method '{self.name}' has no model called '{CLASSIFIER}', which is the one that is scored."
            )
        for phase in self.phases:
            for name in (*phase.learns, phase.net):
                if name not in self.models:
                    raise unknown(f"model in phase '{phase.name}'", name, self.models)
        if self.last.net != CLASSIFIER:
            raise IsthmusError(
                f"The last phase of '{self.name}' is about the model '{self.last.net}', but '{CLASSIFIER}' is scored."
            )
        if any(phase.epochs < 1 for phase in self.phases[:-1]) or self.phases[-1].epochs < 0:
            raise IsthmusError(
                f"Every phase of '{self.name}' but the last must say how many epochs it lasts, 1 or more."
            )
        for how in self.scores:
            if how not in SCORES:
                raise unknown("score", how, SCORES)
        if not self.scores or len(set(self.scores)) < len(self.scores):
            raise IsthmusError(
                f"score is {', '.join(self.scores) or 'empty'}; give one way of scoring or more, each once."
            )

    @property
    def last(self) -> Phase:
        """The phase whose parameters are selected and scored at the end."""
        return self.phases[-1]

    @property
    def chain(self) -> Chain:
        """The mechanisms that change whatever leaves a silo, as one chain."""
        return Chain(self.protect)

    @property
    def noisy(self) -> bool:
        """Whether a mechanism or a sync of this method draws noise from silos' secrets."""
        return self.chain.noisy or any(phase.sync.noisy for phase in self.phases)

    def check(self, model: ModelConfig, train: TrainConfig) -> None:
        """Refuse parts that cannot go together, before any data is read."""
        self.chain.check()
        self._check_models()
        train.check_draws(model)
        for phase in self.phases:
            phase.check(model, train, self.chain)
        for earlier, later in pairwise(self.phases):
            if later.sync.lockstep and not earlier.sync.lockstep:
                raise IsthmusError(
                    f"Phase '{later.name}' has all silos step alike (sync={later.sync.name}), but after phase "
                    f"'{earlier.name}' (sync={earlier.sync.name}) each has an optimiser state of its own; use fedavg."
                )
        if self.chain.of_totals and all(phase.sync.alone for phase in self.phases):
            raise IsthmusError(
                f"protect=server-masks masks models and gradients that the server adds up, and in method '{self.name}' "
                "none reach it; leave server-masks out, or use a method such as fedavg."
            )
        before = sum(phase.epochs for phase in self.phases[:-1])
        if before and not train.steps and before >= train.epochs:
            raise IsthmusError(
                f"train.epochs is {train.epochs}, but the phases before '{self.last.name}' take {before} of them; give "
                "more, or shorten one with --set phase.NAME.epochs=…"
            )

    def _check_models(self) -> None:
        """Refuse parts that need a model which the method does not have, or has of another kind."""
        for phase in self.phases:
            for axis, part in (("exchange", phase.exchange), ("objective", phase.objective)):
                for name, spec in part.needs.items():
                    if not isinstance(self.models.get(name), type(spec)):
                        raise IsthmusError(
                            f"{axis}={part.name} needs the model '{name}' to be a {type(spec).__name__}, which method "
                            f"'{self.name}' does not have; use a method that does, such as feddep."
                        )

    def check_cross(self, cross: str) -> None:
        """Refuse parts that read rows of far ends where nobody knows of edges between silos."""
        if cross == KNOWN:
            return
        reading = [phase.exchange for phase in self.phases if phase.exchange.view != "drop"]
        if reading:
            raise IsthmusError(
                f"Nobody knows of edges between silos (data.cross=unknown), but exchange={reading[0].name} of method "
                f"'{self.name}' reads their far ends; use data.cross=known, or a method such as fedavg."
            )
        if "across" in self.scores:
            raise IsthmusError(
                "score=across needs edges between silos, of which nobody knows here (data.cross=unknown); use "
                "score=own or, in a simulation, score=global."
            )
        if self.merged:
            raise IsthmusError(
                f"Method '{self.name}' merges all silos, with the edges between them; use data.cross=known."
            )

    def check_absence(self, absence: AbsenceConfig) -> None:
        """Refuse parts that cannot go on without a member, and options that say how, where the run ends without one."""
        parts: list[tuple[str, Any]] = [(axis, getattr(phase, axis)) for phase in self.phases for axis in AXES]
        parts += [("protect", mechanism) for mechanism in self.protect]
        for axis, part in parts:
            why = str(getattr(part, "needs_all", ""))
            if absence.goes_on and why:
                raise IsthmusError(
                    f"federation.absent=stale, but {axis}={part.name} cannot go on without a member: {why}; "
                    "use federation.absent=stop, or another method."
                )
            if not absence.goes_on and getattr(part, "absent", None) != getattr(type(part), "absent", None):
                raise IsthmusError(
                    f"{axis}.absent={part.absent} says what is read for rows of absent silos, but a run ends without "
                    "one (federation.absent=stop); use federation.absent=stale."
                )

    def check_level(self, level: str, pooled: bool = False) -> None:
        """Refuse parts that work on rows of another level than the data's, and scores for which silos read devices."""
        for phase in self.phases:
            if level not in phase.exchange.levels:
                raise IsthmusError(
                    f"data.level={level}, but exchange={phase.exchange.name} of method '{self.name}' works at the "
                    f"level {' or '.join(phase.exchange.levels)}; use data.level={phase.exchange.levels[0]}, or "
                    "another method (hifgl is for devices)."
                )
        below = [mechanism.name for mechanism in self.protect if mechanism.of_devices]
        if level == SILO and below:
            raise IsthmusError(
                f"protect={below[0]} hides what devices hand in to their silo, and with data.level=silo there are "
                f"none; leave {below[0]} out."
            )
        if level == SILO and self.chain.shares and "across" in self.scores:
            raise IsthmusError(
                "score=across sends rows of single nodes to other silos, and protect=shares opens sums alone; use "
                "score=trained, score=own or, in a simulation, score=global."
            )
        reading = [how for how in self.scores if how in ("own", "across")]
        if level == DEVICE and reading:
            raise IsthmusError(
                f"score={reading[0]} has silos compute with rows and edges of their nodes, which with "
                "data.level=device their devices alone know; use score=trained or, in a simulation, score=global."
            )
        if level == DEVICE and pooled:
            raise IsthmusError(
                "train.pooled=true sends the label and the scores of every single node to the server, which with "
                "data.level=device nobody may read; use train.pooled=false."
            )

    def with_phase(self, name: str, **changes: Any) -> Method:
        """The method with parts of one phase replaced."""
        if name not in {phase.name for phase in self.phases}:
            raise unknown(f"phase of '{self.name}'", name, [phase.name for phase in self.phases])
        phases = (replace(phase, **changes) if phase.name == name else phase for phase in self.phases)
        return replace(self, phases=tuple(phases))


def vary(method: Method, name: str, summary: str, paper: str | None = None, **parts: Any) -> Method:
    """A method of one phase like another one, with a name of its own and some parts replaced."""
    [phase] = method.phases
    paper = method.paper if paper is None else paper
    return replace(method, name=name, summary=summary, paper=paper, phases=(replace(phase, **parts),))
