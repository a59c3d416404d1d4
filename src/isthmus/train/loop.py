"""The one training loop that every method runs through, for the silos of one host ("my silos")."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from isthmus.core.kinds import Purpose
from isthmus.engine.forward import forward
from isthmus.graph.graph import VALID
from isthmus.methods.sync.base import LiveSync
from isthmus.sample.batches import Seeds
from isthmus.train.evaluate import evaluate
from isthmus.train.passes import Work
from isthmus.train.progress import Progress, silo_sums
from isthmus.train.result import Result, finish
from isthmus.train.rounds import Rounds
from isthmus.train.seed_gradients import bounded_backward
from isthmus.train.stage import Stage
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher


def train(training: Training, watcher: Watcher | None = None) -> Result:
    """Train to the end (or from where a checkpoint left off), then score the selected parameters on test, once."""
    watcher = watcher or Watcher()
    for phase in range(training.progress.phase, len(training.phases)):
        if phase != training.progress.phase:
            training.go_on(phase)
        train_phase(training, watcher)
    return finish(training)


def train_phase(training: Training, watcher: Watcher) -> None:
    """Train the epochs that are left of the current phase, round by round."""
    training.stage.exchange.begin()
    rounds = Rounds(training, watcher) if training.absence.goes_on else None
    while not training.phase_over:
        if rounds is None:
            train_round(training, watcher)
        else:  # it ends, or is rolled back as a whole and taken again without whoever was lost
            rounds.take(train_round)
    if rounds is not None:
        rounds.close()


def train_round(training: Training, watcher: Watcher) -> None:
    """Train up to the end of a round, or of the phase."""
    stage, progress = training.stage, training.progress
    while not training.phase_over:
        if stage.epoch_over(progress.step):
            begin_epoch(training)
        seeds = stage.seeds(progress)
        if progress.round_starts:
            begin_round(stage)
        step(stage, progress, seeds)
        progress.round_starts = ended = stage.round_over(progress.step, progress.epoch + 1)
        if ended:
            end_round(stage)
            training.count_round()
            if not stage.epoch_over(progress.step):  # a validation that fell due within the round
                validate(stage, progress)
        watcher.on_step(progress, progress.last_loss)
        if stage.epoch_over(progress.step) or progress.over:
            end_epoch(training, watcher)
        if ended:
            return


def begin_epoch(training: Training) -> None:
    """Start the clock of an epoch, and set its learning rate."""
    stage, progress = training.stage, training.progress
    progress.began = time.perf_counter(), training.wire.seconds
    for model in stage.learned:
        model.set_rate(training.train.rate(progress.epoch - stage.first_epoch))


def end_epoch(training: Training, watcher: Watcher) -> None:
    """Validate, if that is due and no round is in the middle; tell losses and scores, and stop the clock."""
    stage, progress, wire = training.stage, training.progress, training.wire
    progress.epoch += 1
    progress.due |= stage.evaluates(progress.epoch)
    if progress.round_starts:
        validate(stage, progress)
    lines = progress.end_epoch(wire, training.phase_name)
    started, waited = progress.began
    spent, waited = time.perf_counter() - started, wire.seconds - waited
    progress.seconds, progress.wire_seconds = progress.seconds + spent, progress.wire_seconds + waited
    progress.computing.append(spent - waited)
    watcher.on_epoch(progress, lines)


def step(stage: Stage, progress: Progress, seeds: Seeds) -> None:
    """One optimiser step of the models that learn, on the given seeds."""
    learner, wire, lockstep = stage.site.learner, stage.site.wire, stage.phase.sync.lockstep
    works = stage.works(seeds, progress.step)
    progress.step += 1
    each, dealt = [seed_losses(stage, work) for work in works], [work.batch.seeds for work in works]
    per_silo = torch.stack([silo_sums(losses, s.ptr) for losses, s in zip(each, dealt, strict=True)]).sum(0)
    counts = seeds.amounts().to(per_silo)
    active = counts > 0
    if lockstep:
        loss = (per_silo * seeds.weights.to(per_silo)).sum()
    else:
        loss = (per_silo / torch.where(active, counts, 1.0)).sum()
    batches = [work.batch for work in works]
    nodes, penalty = stage.objective.node_losses(batches, active), stage.objective.penalty(learner, batches, active)
    for model in learner.models.values():
        model.sets.zero_gradients()
    if wire.protect.bounds_seeds:
        bounded_backward(stage.site, stage.learned, each, dealt, counts, nodes)
        loss = loss.new_zeros((), requires_grad=True)  # only the penalty is left to differentiate
    elif nodes is not None:
        loss = loss + nodes.total()
    wire.close(loss if penalty is None else loss + penalty).backward()
    for name, sync in stage.syncs.items():
        with wire.ledger.about(name):
            move(stage, name, sync, active, seeds.count > 0)
            sync.step_end(progress.step - 1 - stage.first_step)
    progress.note_losses(per_silo.detach(), counts)


def move(stage: Stage, name: str, sync: LiveSync, active: Tensor, anybody: bool) -> None:
    """Let a model take an optimiser step, in the silos that had seeds, with what its sync makes of the gradients.

    Where all silos step alike, they do if ``anybody`` had seeds.
    """
    model = stage.site.learner.models[name]
    stage.exchange.hand_in(model)
    sync.gradients(active)
    model.step([anybody] * model.sets.count if stage.phase.sync.lockstep else active.tolist())


def seed_losses(stage: Stage, work: Work) -> Tensor:
    """The loss of each seed of a pass, times the seed's share in its silo: [seeds]."""
    this = stage.site.passing(training=True, step=work.batch.step)
    logits, seeds = forward(stage.site.net, work.exchange, work.batch, this), work.batch.seeds
    losses = stage.objective.seed_losses(logits, work.batch)
    return losses if seeds.share is None else losses * seeds.share


def begin_round(stage: Stage) -> None:
    """Objective and syncs take note of where a round of local training starts."""
    stage.objective.round_begin(stage.site.learner)
    for sync in stage.syncs.values():
        sync.round_begin()


def end_round(stage: Stage) -> None:
    """End a round: the exchange releases rows, then syncs average parameters.

    In this order, since released rows are computed with each silo's own parameters.
    """
    with stage.site.wire.ledger.during(Purpose.ROUND):
        stage.exchange.round_end()
        for name, sync in stage.syncs.items():
            with stage.site.wire.ledger.about(name):
                sync.round_end()


def validate(stage: Stage, progress: Progress) -> None:
    """Score the current parameters on the validation split and offer them for selection, if a validation is due."""
    if progress.due:
        with stage.site.wire.ledger.during(Purpose.VALIDATION):
            for judge in stage.judges:
                scores = evaluate(judge.scorer, stage.site.wire, stage.objective, VALID)
                if stage.site.absence.goes_on and len(scores.silos) == stage.site.wire.silos:
                    scores = judge.best.with_absent(scores, stage.site.wire.members.present)
                judge.best.offer(stage.site.learner, scores, progress.epoch)
                progress.scores[judge.how] = scores
            if stage.exchange.drift is not None:
                progress.drift = stage.exchange.drift.told()
        progress.due = False
