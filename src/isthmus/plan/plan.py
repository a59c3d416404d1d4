"""The plan of a run: bytes, time over a network and epsilon, estimated from a few trial steps in one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from isthmus.core.kinds import ROWS, STEPS, Kind, Purpose
from isthmus.launch.host import open_run, prepare, set_up_process
from isthmus.launch.policies import Policies
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.launch.silo_tables import silo_figures, silo_sizes
from isthmus.launch.silos import load_silos
from isthmus.plan.disclosed import disclosure_of
from isthmus.plan.policies import AskedPolicies
from isthmus.plan.run_length import Length
from isthmus.plan.scaling import SAMPLED, Sizes, bytes_by_phase, factors_of, network_times, over_phases
from isthmus.plan.trial import ByPurpose, try_phases
from isthmus.protect.accounting.guarantee import EDGE, EVERYTHING, NODE, Guarantee, as_json, headline
from isthmus.runs.config import RunConfig
from isthmus.runs.network_time import PARTS
from isthmus.runs.smaller import advice
from isthmus.runs.text import count_text
from isthmus.train.result import finish
from isthmus.train.stage import Stage, selects_alone
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire


@dataclass(frozen=True)
class Plan:
    """An estimate: bytes by part and kind, the time over the link, epsilon of one node by kind (None without noise)."""

    length: Length
    trial: Length
    bytes: dict[str, dict[str, int]]
    extrapolated: list[str]  # kinds; all others are exact
    link: dict[str, Any]
    epsilon: dict[str, float | str] | None
    notes: list[str]
    disclosure: dict[str, Any]  # what a disclosure sheet before the run is made of
    smaller: str = ""  # settings that would make a long run shorter

    @property
    def by_kind(self) -> dict[str, int]:
        """Bytes of each kind in the whole run, most first."""
        kinds = dict.fromkeys(kind for part in self.bytes.values() for kind in part)
        sums = {kind: sum(part.get(kind, 0) for part in self.bytes.values()) for kind in kinds}
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON; ``bytes`` and ``link`` have the keys of ``metrics.json``."""
        rest = {key: value for key, value in asdict(self).items() if key not in ("length", "trial")}
        total = {"total": sum(self.by_kind.values()), **self.by_kind}
        length = {key: value for key, value in asdict(self.length).items() if key != "seeds"}
        return {**length, "trial_steps": self.trial.steps, **rest, "bytes": total}


def make_plan(config: RunConfig, trial_steps: int | None = None, policy: str = "") -> Plan:
    """Open the run with all silos in this process, train a few steps of each phase, and scale what they cost.

    The trial is a run to its end, so that final scores and report are counted too; its scores, made by a model that has
    hardly learnt, are not looked at. Nothing is booked. Policies (those of silos, or the one that ``policy`` names)
    look at everything that would leave; where one refuses something the plan is refused too.
    """
    config = prepare(config)
    set_up_process(config)
    count = 1 if config.method.merged else config.data.silos
    wire = LocalWire(count, config.method.chain)
    asked = AskedPolicies(Policies.on(wire.mine, config, policy), wire)
    silos = load_silos(config.data, config.method.merged)
    asked.set_up(silos)
    wire.releases = releases = ByPurpose(wire.ledger)
    training = open_run(config, wire, silos)
    asked.watch(training)
    tried = try_phases(training, config.train, trial_steps, releases)
    said = list(training.federation.notes)
    finish(training)
    training.federation.notes[:] = said  # not what it says of the trial's scores
    held = silo_sizes(training)
    silo_figures(training)  # called, like the notes, for the messages that the end of a run sends
    training.stage.exchange.notes()
    releases.scale([each.rows for each in tried], [each.often for each in tried])
    asked.answer(training, releases, partial(factors_of, tried))
    accounts = take_account(training)
    by_phase = bytes_by_phase(wire.ledger, tried)
    sizes = over_phases(by_phase)
    length, trial = (sum((getattr(each, of) for each in tried), Length()) for of in ("length", "trial"))
    known = privacy_of(training, accounts)
    epsilon = _epsilon(training, known, length, trial, sizes)
    return Plan(
        length,
        trial,
        {part: _of_part(sizes, purposes) for part, purposes in PARTS.items()},
        _extrapolated(training, sizes),
        network_times(config, wire.ledger, tried, by_phase),
        epsilon,
        [*_notes(config, training, all(each.round_fits for each in tried), sizes), *training.federation.notes],
        disclosure_of(config, training, length.epochs, held, partial(factors_of, tried), known, epsilon or {}),
        advice(sum(phase.seconds for phase in tried), config),
    )


def _draws(training: Training) -> bool:
    """Whether what crosses at steps is random: nodes, silos, or seeds of corrections are drawn."""
    phase = training.stage.phase
    return bool(training.train.batch) or phase.schedule.draws or phase.sync.server_steps(0, round_over=True) > 0


def _extrapolated(training: Training, sizes: Sizes) -> list[str]:
    """Kinds whose bytes are estimates: those that are drawn, and prototypes, whose number depends on training."""
    drawn = [kind for kind in SAMPLED if _draws(training) and _in_training(kind, sizes)]
    return [*drawn, *([Kind.PROTOTYPES] if (Purpose.HANDOVER, Kind.PROTOTYPES) in sizes else [])]


def _of_part(sizes: Sizes, purposes: tuple[Purpose, ...]) -> dict[str, int]:
    found: dict[str, float] = {}
    for (purpose, kind), size in sizes.items():
        if purpose in purposes:
            found[kind] = found.get(kind, 0) + size
    return {kind: round(size) for kind, size in found.items()}


def _in_training(kind: Kind, sizes: Sizes) -> bool:
    """Whether a kind leaves at steps, corrections or ends of rounds; validations repeat one draw, and are exact."""
    return any((purpose, kind) in sizes for purpose in (*STEPS, Purpose.CORRECTION, Purpose.ROUND))


def _epsilon(
    training: Training, known: Sequence[Guarantee], length: Length, trial: Length, sizes: Sizes
) -> dict[str, float | str] | None:
    """Epsilon of one node over the whole run, of everything and by kind; a reason in words where it is unknown."""
    if not training.wire.protect.noisy:
        return None
    found: dict[str, float | str] = {each.of: as_json(each.epsilon) for each in known if each.unit in (NODE, EDGE)}
    found |= dict.fromkeys(headline(known).bare, "inf")
    for kind in ROWS:
        if kind in found and any((purpose, kind) in sizes for purpose in STEPS):
            why = _why_unknown(training.stage, length, trial)
            found |= {of: why for of in (kind.value, EVERYTHING) if why and found[of] != "inf"}
    return found


def _why_unknown(stage: Stage, length: Length, trial: Length) -> str:
    """Why a trial does not show how often nodes leave at steps; empty where it does."""
    if trial.crosses < min(stage.steps_per_epoch, length.crosses):
        what = count_text(trial.crosses, "trial step") + ("" if stage.phase.schedule.always else " across the boundary")
        return f"unknown: {what} do not show how often a node leaves in an epoch"
    if stage.phase.schedule.draws and trial.steps < length.steps:
        return f"unknown: {trial.steps} trial steps do not show how often each silo is drawn to cross"
    return ""


def _notes(config: RunConfig, training: Training, round_fits: bool, sizes: Sizes) -> list[str]:
    """Notes on what the figures of a plan do and do not cover."""
    notes = []
    if config.train.patience and not all(selects_alone(phase, training.wire.silos) for phase in training.phases):
        notes.append("train.patience may end the run earlier; these are the figures of its whole length.")
    if not round_fits and training.train.batch and any((Purpose.ROUND, kind) in sizes for kind in ROWS):
        notes.append(
            "The trial is shorter than a round, which releases more rows than the trial did; try --trial-steps."
        )
    if config.method.merged:
        notes.append("One party holds all data: a simulation, in which nothing leaves it.")
    if training.wire.protect.noisy:
        notes.append(
            "Epsilon is of one node in the worst case, by how often rows and payloads would leave in the whole run."
        )
    return notes
