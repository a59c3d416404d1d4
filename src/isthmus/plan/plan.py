"""What a run would send, wait for and give away, estimated from a few trial steps before anything leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from isthmus.protect.accountant import NAMES, silo_loss
from isthmus.protect.base import ROWS
from isthmus.protect.gaussian import Gaussian
from isthmus.run.config import RunConfig
from isthmus.run.host import load_silos, open_run, prepare, set_up_process
from isthmus.run.leave import silo_sizes
from isthmus.run.length import Length, length_of, shorten
from isthmus.run.link import PARTS, link_times, phases, used
from isthmus.run.released import row_losses
from isthmus.run.text import count_text
from isthmus.run.trial import ByPurpose, Stopwatch
from isthmus.state import Run
from isthmus.train import train
from isthmus.wire.base import LocalWire
from isthmus.wire.ledger import SERVER_NAME, STEPS, Kind, Ledger, Purpose

Sizes = dict[tuple[str, str], float]  # bytes by purpose and kind
# How many of these leave depends on which nodes were drawn.
_SAMPLED = (Kind.IDS, *ROWS, Kind.FEATURES, Kind.LABELS, Kind.EDGES)


@dataclass(frozen=True)
class Plan:
    """An estimate: bytes by part and kind, the time over the link, epsilon by kind (None without noise)."""

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

    The trial goes the way of a run to its end, so that final scores and report are counted too; its scores, made by a
    model that has hardly learnt, are not looked at.
    """
    config = prepare(config)
    set_up_process(config)
    wire = LocalWire(1 if config.method.merged else config.data.silos, config.method.protect)
    wire.releases = releases = ByPurpose(wire.ledger)
    run = open_run(config, wire, load_silos(config.data, config.method.merged))
    round_fits, watch = shorten(run, trial_steps), Stopwatch()
    train(run, watch)
    length, trial = length_of(run, config.train), length_of(run, run.train)
    silo_sizes(run)  # what the end of a run tells, and sends
    run.exchange.notes(run)
    releases.scale(length.rows_over(trial))
    losses = row_losses(run)
    sizes = _bytes(wire.ledger, length, trial)
    return Plan(
        length,
        trial,
        {part: _of_part(sizes, purposes) for part, purposes in PARTS.items()},
        [kind for kind in _SAMPLED if _draws(run) and _in_training(kind, sizes)],
        _times(config, wire.ledger, length.over(trial), sizes, watch.whole(length)),
        _epsilon(run, losses, length, trial, sizes),
        [*_notes(config, run, round_fits, sizes), *run.federation.notes],
    )


def _draws(run: Run) -> bool:
    """Whether steps draw what crosses: nodes, silos, or seeds of corrections."""
    return bool(run.train.batch) or run.schedule.draws or not run.exchange.trains_across


def _bytes(ledger: Ledger, length: Length, trial: Length) -> Sizes:
    """Bytes of the whole run."""
    often, rows = length.over(trial), length.rows_over(trial)
    sizes: Sizes = {}
    for line in ledger.table().group_by(["purpose", "kind"]).aggregate([("bytes", "sum")]).to_pylist():
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
    """Whether a kind leaves at steps or at the ends of rounds; all else is drawn alike every time."""
    return any((purpose, kind) in sizes for purpose in (*STEPS, Purpose.ROUND))


def _times(
    config: RunConfig, ledger: Ledger, often: Mapping[Purpose, float], sizes: Sizes, computing: float
) -> dict[str, Any]:
    """The ``link`` table; trips of a message that grows with the steps of an epoch come once an epoch all the same."""
    trips = {**often, Purpose.LOSSES: often[Purpose.ORDER]}
    found = {} if config.method.merged else used(phases(ledger.table(), ledger.leg_table()), "purpose")
    whole = {purpose: sum(size for (of, _), size in sizes.items() if of == purpose) for purpose in found}
    usage = {
        purpose: use.times(whole[purpose] / use.bytes if use.bytes else 0.0, trips[purpose])
        for purpose, use in found.items()
    }
    return link_times(config.link, usage, computing)


def _epsilon(
    run: Run, losses: dict[Kind, Tensor], length: Length, trial: Length, sizes: Sizes
) -> dict[str, float | str] | None:
    """By kind the loss of the whole run, infinite where no noise is added; words where a trial cannot tell."""
    protect = run.wire.protect
    if not isinstance(protect, Gaussian) or not protect.noisy:
        return None
    found: dict[str, float | str] = dict.fromkeys((kind for _, kind in sizes), math.inf)
    for kind, numbers in losses.items():
        found[kind] = float(numbers[:, NAMES.index("epsilon 100")].max())
        at_steps = any((purpose, kind) in sizes for purpose in STEPS)
        if at_steps and trial.crosses < min(run.steps_per_epoch, length.crosses):
            what = count_text(trial.crosses, "trial step") + ("" if run.schedule.always else " across the boundary")
            found[kind] = f"unknown: {what} do not show how often a node leaves in an epoch"
        elif at_steps and run.schedule.draws and trial.steps < length.steps:
            found[kind] = f"unknown: {trial.steps} trial steps do not show how often each silo is drawn to cross"
    for kind in (Kind.PARAMETERS, Kind.GRADIENTS):
        if kind in found and protect.bounds(kind)[1]:
            found[kind] = silo_loss(_times_up(run.wire.ledger, kind, length.over(trial)), kind, protect)
    return {kind: "inf" if loss == math.inf else loss for kind, loss in found.items()}


def _times_up(ledger: Ledger, kind: Kind, factors: Mapping[Purpose, float]) -> int:
    """How often the silo that sends most often would send its own payload of a kind to the server."""
    times: dict[str, float] = {}
    for line in ledger.table().to_pylist():
        if line["kind"] == kind and line["receiver"] == SERVER_NAME:
            times[line["sender"]] = times.get(line["sender"], 0) + line["messages"] * factors[line["purpose"]]
    return round(max(times.values(), default=0))


def _notes(config: RunConfig, run: Run, round_fits: bool, sizes: Sizes) -> list[str]:
    """What the reader must know of the figures."""
    notes = []
    if config.train.patience:
        notes.append("train.patience may end the run earlier; these are the figures of its whole length.")
    if not round_fits and run.train.batch and any((Purpose.ROUND, kind) in sizes for kind in ROWS):
        notes.append(
            "The trial is shorter than a round, which releases more rows than the trial did; try --trial-steps."
        )
    if config.method.merged:
        notes.append("One party holds all data: a simulation, in which nothing leaves it.")
    if isinstance(run.wire.protect, Gaussian) and run.wire.protect.noisy:
        notes.append(
            "Epsilon of nodes: releases are those of the whole run, distances between rows those of the trial."
        )
    return notes
