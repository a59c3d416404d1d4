"""What a run would send, wait for and give away, estimated from a few trial steps before anything leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import ROWS, STEPS, Kind, Purpose
from isthmus.launch.artifacts import silo_sizes
from isthmus.launch.host import load_silos, open_run, prepare, set_up_process
from isthmus.launch.privacy import Accounts, privacy_of, take_account
from isthmus.plan.length import Length, length_of, trial_steps_of
from isthmus.plan.trial import ByPurpose, Stopwatch
from isthmus.protect.accounting.guarantee import EDGE, EVERYTHING, NODE, as_json, headline
from isthmus.runs.config import RunConfig
from isthmus.runs.network_time import PARTS, link_times, phases, used
from isthmus.runs.text import count_text
from isthmus.train.loop import train
from isthmus.train.stage import Stage
from isthmus.train.training import Training
from isthmus.wire.ledger import Ledger
from isthmus.wire.local import LocalWire

Sizes = dict[tuple[str, str], float]  # bytes by purpose and kind
# How many of these leave depends on which nodes were drawn.
_SAMPLED = (Kind.IDS, *ROWS, Kind.FEATURES, Kind.LABELS, Kind.EDGES)


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


def make_plan(config: RunConfig, trial_steps: int | None = None) -> Plan:
    """Open the run with all silos in this process, train a few steps, and scale what they cost to the whole length.

    The trial is a run to its end, so that final scores and report are counted too; its scores, made by a model that has
    hardly learnt, are not looked at.
    """
    config = prepare(config)
    set_up_process(config)
    if len(config.method.phases) > 1:
        raise IsthmusError(f"Method '{config.method.name}' has several phases, which cannot be planned yet; run it.")
    silos = load_silos(config.data, config.method.merged)
    wire = LocalWire(len(silos), config.method.chain)
    wire.releases = releases = ByPurpose(wire.ledger)
    training, watch = open_run(config, wire, silos), Stopwatch()
    steps, round_fits = trial_steps_of(training, trial_steps)
    training.stop_after(steps)
    train(training, watch)
    length, trial = length_of(training, config.train), length_of(training, training.train)
    silo_sizes(training)  # called for the messages that the end of a run sends
    training.stage.exchange.notes()
    releases.scale(length.rows_over(trial), length.over(trial))
    accounts = take_account(training)
    sizes = _bytes(wire.ledger, length, trial)
    return Plan(
        length,
        trial,
        {part: _of_part(sizes, purposes) for part, purposes in PARTS.items()},
        [kind for kind in _SAMPLED if _draws(training) and _in_training(kind, sizes)],
        _times(config, wire.ledger, length.over(trial), sizes, watch.whole(length)),
        _epsilon(training, accounts, length, trial, sizes),
        [*_notes(config, training, round_fits, sizes), *training.federation.notes],
    )


def _draws(training: Training) -> bool:
    """Whether steps draw what crosses: nodes, silos, or seeds of corrections."""
    phase = training.stage.phase
    return bool(training.train.batch) or phase.schedule.draws or phase.sync.corrects(0)


def _bytes(ledger: Ledger, length: Length, trial: Length) -> Sizes:
    """Bytes of the whole run, scaled from those of the trial."""
    often, rows = length.over(trial), length.rows_over(trial)
    sizes: Sizes = {}
    for line in ledger.step_table().group_by(["purpose", "kind"]).aggregate([("bytes", "sum")]).to_pylist():
        factors = rows if line["kind"] in _SAMPLED else often
        sizes[line["purpose"], line["kind"]] = line["bytes_sum"] * factors[line["purpose"]]
    return sizes


def _of_part(sizes: Sizes, purposes: tuple[Purpose, ...]) -> dict[str, int]:
    found: dict[str, float] = {}
    for (purpose, kind), size in sizes.items():
        if purpose in purposes:
            found[kind] = found.get(kind, 0) + size
    return {kind: round(size) for kind, size in found.items()}


def _in_training(kind: Kind, sizes: Sizes) -> bool:
    """Whether a kind leaves at steps or at the ends of rounds; elsewhere the draw is the same every time."""
    return any((purpose, kind) in sizes for purpose in (*STEPS, Purpose.CORRECTION, Purpose.ROUND))


def _times(
    config: RunConfig, ledger: Ledger, often: Mapping[Purpose, float], sizes: Sizes, computing: float
) -> dict[str, Any]:
    """The ``link`` table; losses grow with the steps of an epoch, but their trips come once an epoch."""
    trips = {**often, Purpose.LOSSES: often[Purpose.ORDER]}
    found = {} if config.method.merged else used(phases(ledger.step_table(), ledger.leg_table()), "purpose")
    whole = {purpose: sum(size for (of, _), size in sizes.items() if of == purpose) for purpose in found}
    usage = {
        purpose: use.times(whole[purpose] / use.bytes if use.bytes else 0.0, trips[purpose])
        for purpose, use in found.items()
    }
    return link_times(config.link, usage, computing)


def _epsilon(
    training: Training, accounts: Accounts, length: Length, trial: Length, sizes: Sizes
) -> dict[str, float | str] | None:
    """Epsilon of one node over the whole run, of everything and by kind; words where a trial cannot tell."""
    if not training.wire.protect.noisy:
        return None
    known = privacy_of(training, accounts)
    found: dict[str, float | str] = {each.of: as_json(each.epsilon) for each in known if each.unit in (NODE, EDGE)}
    found |= dict.fromkeys(headline(known).bare, "inf")
    for kind in ROWS:
        if kind in found and any((purpose, kind) in sizes for purpose in STEPS):
            why = _unknown(training.stage, length, trial)
            found |= {of: why for of in (kind.value, EVERYTHING) if why and found[of] != "inf"}
    return found


def _unknown(stage: Stage, length: Length, trial: Length) -> str:
    """Why a trial does not show how often nodes leave at steps; empty where it does."""
    if trial.crosses < min(stage.steps_per_epoch, length.crosses):
        what = count_text(trial.crosses, "trial step") + ("" if stage.phase.schedule.always else " across the boundary")
        return f"unknown: {what} do not show how often a node leaves in an epoch"
    if stage.phase.schedule.draws and trial.steps < length.steps:
        return f"unknown: {trial.steps} trial steps do not show how often each silo is drawn to cross"
    return ""


def _notes(config: RunConfig, training: Training, round_fits: bool, sizes: Sizes) -> list[str]:
    """What the reader must know of the figures."""
    notes = []
    if config.train.patience:
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
