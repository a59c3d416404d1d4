"""A stage: a phase whose parts were opened on one host, with its first and last step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Purpose
from isthmus.engine.absence import AbsenceConfig
from isthmus.engine.layout import Layout, check_seeds, lay_out
from isthmus.engine.learner import Learned, Learner
from isthmus.engine.settings import TrainConfig
from isthmus.engine.site import Site
from isthmus.federation.federation import Federation
from isthmus.federation.statistics import mean_log_degree
from isthmus.graph.graph import TRAIN, VALID
from isthmus.methods.exchange.base import LiveExchange
from isthmus.methods.objective.base import LiveObjective
from isthmus.methods.phase import Phase
from isthmus.methods.schedule import Timetable
from isthmus.methods.sync.base import LiveSync
from isthmus.sample.batches import Seeds
from isthmus.sample.order import draw_batches, rule_of
from isthmus.train.judge import Judge
from isthmus.train.passes import Passes, Work, make_passes
from isthmus.train.progress import Progress
from isthmus.train.scorers import Scorer, open_scorer
from isthmus.train.seed_gradients import check_bounded
from isthmus.train.select import Best
from isthmus.wire.membership import Membership


@dataclass
class Stage:
    """An opened phase. Its parts count steps and epochs from where the phase began, the run from its start."""

    phase: Phase
    site: Site
    exchange: LiveExchange
    timetable: Timetable
    objective: LiveObjective
    syncs: dict[str, LiveSync]  # by the model that learns
    passes: Passes
    judges: tuple[Judge, ...]  # the first is the run's own; the others score the same training in other ways
    first_step: int
    first_epoch: int
    last_step: int
    last_epoch: int
    _everybody: tuple[Passes, tuple[Judge, ...]] | None = None  # for all silos, where some are absent
    _dealt: Iterator[Seeds] = field(default_factory=lambda: iter(()))
    _next: tuple[int, int, tuple[int, ...]] | None = None  # epoch, step and silos that ``_dealt`` goes on with

    @property
    def layout(self) -> Layout:
        """The layout of rows and seeds on this host."""
        return self.site.layout

    @property
    def scorer(self) -> Scorer:
        """The scorer of the first judge, whose scores are the run's own."""
        return self.judges[0].scorer

    @property
    def best(self) -> Best:
        """The selection by which training may stop early."""
        return self.judges[0].best

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one epoch."""
        return self.layout.steps_per_epoch(self.site.train.batch)

    @property
    def learned(self) -> list[Learned]:
        """The models that learn in this phase."""
        return [self.site.learner.models[name] for name in self.phase.learns]

    def purpose(self, step: int) -> Purpose:
        """The ledger's purpose of a step of the run (counted from 0): whether all silos cross, some, or none."""
        return self.timetable.purpose(step - self.first_step)

    def who_crosses(self, step: int) -> Tensor:
        """The silos that the schedule lets cross at a step of the run (counted from 0): [silos] bool."""
        return self.timetable.across(step - self.first_step)

    def works(self, seeds: Seeds, step: int) -> list[Work]:
        """The passes of a training step (counted from 0): the schedule says which silos cross."""
        return self.passes.train(seeds, step, self.who_crosses(step), self.site.wire.mine)

    def epoch_over(self, step: int) -> bool:
        """Whether an epoch ends after a step of the run (counted from 1)."""
        return (step - self.first_step) % self.steps_per_epoch == 0

    def round_over(self, step: int, epoch: int) -> bool:
        """Whether a round ends after a step of the run, which lies in ``epoch`` of it (both counted from 1)."""
        ended = self.phase.sync.round_over(step - self.first_step, epoch - self.first_epoch, self.epoch_over(step))
        return ended or step >= self.last_step

    def regroup(self, members: Membership) -> None:
        """Let all further steps be those of ``members``: every host that has one of them calls this."""
        self.site.wire.regroup(members)
        passes, judges = self._everybody = self._everybody or (self.passes, self.judges)
        self.passes = passes.among_members(self.site)
        self.judges = tuple(replace(judge, scorer=judge.scorer.among_members()) for judge in judges)
        self.exchange.regroup()

    def seeds(self, progress: Progress) -> Seeds:
        """The seeds of the next step, dealt anew where an epoch begins, others are present, or a round is repeated."""
        present = self.site.wire.members.present
        if self._next != (progress.epoch, progress.step, present):
            self._dealt = self.epoch_seeds(progress)
        seeds = next(self._dealt)
        self._next = progress.epoch, progress.step + 1, present
        return seeds

    def epoch_seeds(self, progress: Progress) -> Iterator[Seeds]:
        """The seeds of the steps that are left of this epoch, up to the last step of the phase."""
        taken = (progress.step - self.first_step) % self.steps_per_epoch
        site, ledger = self.site, self.site.wire.ledger
        ledger.epoch, ledger.step, ledger.purpose = progress.epoch + 1, progress.step + 1, Purpose.ORDER
        pool, size = self.layout.pools[TRAIN], site.train.batch
        every = draw_batches(pool, site.wire, self.layout.order, size, site.seed, "train", progress.epoch)
        for seeds in islice(every, taken, None):
            if progress.over:
                return
            ledger.step = progress.step + 1
            ledger.purpose = progress.purpose = self.purpose(progress.step)
            yield seeds

    def evaluates(self, epoch: int) -> bool:
        """Whether validation is due after an epoch."""
        due = epoch % self.site.train.evaluate_every == 0 or epoch == self.last_epoch
        return due and int(self.scorer.pool(VALID).counts.sum()) > 0

    def inherit(self, handed: Mapping[str, dict[str, Tensor]]) -> None:
        """Add what the phase before handed over to the state of parts: {axis: {name: tensor}}."""
        for axis, tensors in handed.items():
            part = self.objective if axis == "objective" else self.exchange
            part.state = {**part.state, **tensors}

    def states(self) -> dict[str, dict[str, Tensor]]:
        """The states of all live parts and judges, for a checkpoint: {part: {name: tensor}}."""
        found = {"exchange": self.exchange.state, "objective": self.objective.state}
        found |= {f"judge-{judge.how}": judge.best.state for judge in self.judges}
        return found | {f"sync-{name}": sync.state for name, sync in self.syncs.items()}

    def load_states(self, states: dict[str, dict[str, Tensor]]) -> None:
        """Set the states of all live parts and judges to what :meth:`states` gave."""
        self.exchange.state = states.get("exchange", {})
        self.objective.state = states.get("objective", {})
        for name, sync in self.syncs.items():
            sync.state = states.get(f"sync-{name}", {})
        for judge in self.judges:
            judge.best.state = states[f"judge-{judge.how}"]


def lay_out_phase(
    phase: Phase, federation: Federation, device: torch.device, dtype: torch.dtype, ports: bool
) -> Layout:
    """The layout that a phase computes on; ``ports``: its model reads them."""
    order = rule_of(phase.batches, phase.sync.seed_weights)
    return lay_out(federation, phase.exchange.view, order, phase.exchange.doubles, device, dtype, ports)


def open_stage(
    phase: Phase,
    layout: Layout,
    learner: Learner,
    train: TrainConfig,
    seed: int,
    dtype: torch.dtype,
    scores: tuple[str, ...],
    begun: Progress,
    absence: AbsenceConfig,
) -> Stage:
    """The stage of a phase: its parts opened on this host; ``begun`` says how far training has come."""
    wire, schedule = layout.federation.wire, phase.schedule
    _check_schedule(phase, layout)
    _check_ends(phase, layout)
    check_seeds(layout)
    crossing = schedule.everybody(int(layout.learn.sum())) or "trained" in scores
    whole = not train.batch and crossing
    site = Site(layout, learner, train, seed, dtype, train.agrees(phase.batches), whole, phase.net, absence)
    timetable = schedule.open(seed, layout.learn)
    objective = phase.objective.open(site)
    if wire.protect.bounds_seeds:
        check_bounded(site, objective)
    _tell_degrees(site)
    exchange = phase.exchange.open(site)
    passes = make_passes(site, exchange, schedule.always)
    models = {name: learner.models[name] for name in phase.learns}
    syncs = {name: phase.sync.open(site, model, objective) for name, model in models.items()}
    alone = selects_alone(phase, wire.silos)
    judges = tuple(
        Judge(how, open_scorer(how, site, exchange, passes), Best(wire.mine, alone, phase.learns)) for how in scores
    )
    size = layout.steps_per_epoch(train.batch)
    epochs, steps = phase_length(phase, train, size, begun)
    ends = begun.step + steps, begun.epoch + epochs
    return Stage(phase, site, exchange, timetable, objective, syncs, passes, judges, begun.step, begun.epoch, *ends)


def _tell_degrees(site: Site) -> None:
    """Give the classifier each silo's mean of log(degree + 1), or that of all where silos agree on statistics."""
    site.net.set_degree(*mean_log_degree(site.wire, site.train_stack, site.agreed))


def selects_alone(phase: Phase, silos: int) -> bool:
    """Whether each silo selects a model for itself; a merged silo has one model, and scores of several silos."""
    return phase.sync.alone and silos > 1


def phase_length(phase: Phase, train: TrainConfig, size: int, begun: Progress) -> tuple[int, int]:
    """Epochs and steps of a phase: as many as it says, or what is left of training."""
    left = train.steps - begun.step if train.steps else (train.epochs - begun.epoch) * size
    steps = max(min(phase.epochs * size, left) if phase.epochs else left, 0)
    return -(-steps // size), steps


def _check_ends(phase: Phase, layout: Layout) -> None:
    """Refuse to leave out edges of absent silos where labels lie on edges."""
    chosen = hasattr(phase.exchange, "absent")  # an exchange that leaves edges out always says for itself why not
    if chosen and phase.exchange.leaves_out and layout.federation.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, and with exchange.absent=drop one that leads to an absent silo would have an end "
            "without a row; use exchange.absent=last."
        )


def _check_schedule(phase: Phase, layout: Layout) -> None:
    """Refuse a schedule where seeds are edges that a silo cannot score alone, or with fewer silos than it draws."""
    schedule, federation = phase.schedule, layout.federation
    if schedule.always:
        return
    schedule.check(federation.wire.silos)
    if federation.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, and a silo that does not cross could not score those that leave it; use "
            "sync-sgd+fwd-bwd-le without schedule.*, or a method that crosses once a round, such as ce-fedgnn."
        )
    if not schedule.ever and schedule.every > 1:
        federation.note("No silo ever crosses (schedule.silos=0), so that schedule.every says nothing.")
