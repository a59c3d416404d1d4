"""The one loop that every method runs through, over "my silos"."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus.evaluate import Scores, evaluate
from isthmus.forward import forward
from isthmus.graph.graph import TEST, VALID
from isthmus.metrics import led_by
from isthmus.sample.batches import Batch, Seeds
from isthmus.state import Run
from isthmus.wire.ledger import Purpose


@dataclass
class Watcher:
    """Who is told how training goes: a progress bar, a run folder. The nothing of its kind."""

    def on_step(self, run: Run, loss: float) -> None:
        """After every step, with this host's loss."""

    def on_epoch(self, run: Run, lines: list[dict[str, Any]]) -> None:
        """After every epoch, with the lines for ``metrics.jsonl``; the place to write a checkpoint."""

    def close(self) -> None:
        """When the run has ended, also by an error."""


def train(run: Run, watcher: Watcher | None = None) -> Result:
    """Train to the end (or from where a checkpoint left off), then score the selected parameters on test, once."""
    watcher = watcher or Watcher()
    led_by(run.train.metric, run.schema)  # one that does not exist is refused now, not at the first validation
    while run.epoch < run.epochs and not run.best.exhausted(run.train.patience):
        started, waited = time.perf_counter(), run.wire.seconds
        for seeds in run.epoch_seeds():
            if run.round_starts:
                run.objective.round_begin(run)
            step(run, seeds)
            run.exchange.step_end(run)
            run.round_starts = run.sync.round_over(run.step, run.epoch + 1, run.epoch_over) or run.over
            if run.round_starts:
                with run.wire.ledger.during(Purpose.ROUND):
                    run.exchange.round_end(run)
                    run.sync.round_end(run)
                if not run.epoch_over:  # what was due in the middle of the round
                    validate(run)
            watcher.on_step(run, run.last_loss)
        run.epoch += 1
        run.due |= run.evaluates()
        if run.round_starts:
            validate(run)
        lines = run.end_epoch()
        spent, waited = time.perf_counter() - started, run.wire.seconds - waited
        run.seconds, run.wire_seconds = run.seconds + spent, run.wire_seconds + waited
        run.computing.append(spent - waited)
        watcher.on_epoch(run, lines)
    return finish(run)


def validate(run: Run) -> None:
    """Score the parameters that silos have just agreed on, if an epoch that has ended asks for it."""
    if run.due:
        with run.wire.ledger.during(Purpose.VALIDATION):
            run.scores = evaluate(run, VALID)
        run.best.offer(run, run.scores)
        run.due = False


def step(run: Run, seeds: Seeds) -> None:
    """One optimiser step on the given seeds."""
    batches = run.step_batches(seeds)
    run.step += 1
    per_silo = torch.stack([_silo_losses(run, batch) for batch in batches]).sum(0)
    counts = seeds.amounts().to(per_silo)
    run.active = counts > 0
    if run.sync.lockstep:
        loss = (per_silo * seeds.weights.to(per_silo)).sum()
    else:
        loss = (per_silo / torch.where(run.active, counts, 1.0)).sum()
    penalty = run.objective.penalty(run)
    loss = run.wire.close(loss if penalty is None else loss + penalty)
    run.sets.zero_gradients()
    loss.backward()
    run.sync.gradients(run)
    run.sets.hand_out_gradients([True] * run.sets.count if run.sync.lockstep else run.active.tolist())
    run.optimiser.step()
    run.note_losses(per_silo.detach(), counts)


def _silo_losses(run: Run, batch: Batch) -> Tensor:
    """The losses of a pass, summed over the seeds of each of my silos."""
    logits, seeds = forward(run, batch, training=True), batch.seeds
    losses = run.objective.seed_losses(logits, batch.y, run.weights_of(batch), run.minority)
    losses = losses if seeds.share is None else losses * seeds.share
    return torch.stack([losses[a:b].sum() for a, b in zip(seeds.ptr, seeds.ptr[1:], strict=False)])


@dataclass(frozen=True)
class Result:
    """What a run found: scores of the selected parameters, every line of its history, bytes by kind.

    ``last`` are the parameters that training ended with, before those that validation selected took their place.
    """

    valid: Scores | None
    test: Scores
    history: list[dict[str, Any]]
    bytes: dict[str, int]
    best_epoch: list[int]
    run: Run = field(repr=False)
    last: dict[str, Tensor] = field(repr=False)


def finish(run: Run) -> Result:
    """Load what validation selected; only now the test split is read."""
    last = {name: tensor.clone() for name, tensor in run.sets.everything().items()}
    run.wire.ledger.purpose = Purpose.END
    run.best.restore(run)
    valid = evaluate(run, VALID, run.train.pooled) if int(run.pools[VALID].counts.sum()) else None
    test = evaluate(run, TEST, run.train.pooled)
    return Result(valid, test, run.history, run.wire.ledger.by_kind(), run.best.epochs(run), run, last)
