"""Where a run stands on one host: its silos' graph, parameters, optimiser, and history."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.evaluate import Scores
from isthmus.federation import Federation
from isthmus.graph.agree import mean_log_degree, positive_weights
from isthmus.graph.boundary import build_boundary
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID, labelled
from isthmus.graph.stack import build_stack
from isthmus.methods import Method
from isthmus.nn.model import GNN, ModelConfig
from isthmus.nn.sets import reset_apart
from isthmus.sample.batches import Batch, Seeds
from isthmus.sample.neighbours import Draws
from isthmus.sample.order import Pool, draw_batches, rule_of
from isthmus.select import Best
from isthmus.settings import TrainConfig
from isthmus.sync.sets import ParameterSets
from isthmus.ways import make_ways
from isthmus.wire.ledger import Kind, Purpose
from isthmus.wire.route import Boundary

OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
}


class Run:
    """One host's side of a training run: its silos' graph, parameters, optimiser, and where it stands."""

    def __init__(
        self,
        federation: Federation,
        method: Method,
        model: ModelConfig,
        train: TrainConfig,
        seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        train.check(model.layers)
        self.federation, self.method, self.train, self.seed = federation, method, train, seed
        self.wire, self.schema, self.dtype, self.device = (
            federation.wire,
            federation.schema,
            dtype,
            torch.device(device),
        )
        self.batches = train.batches or method.batches
        self.agreed = train.agrees(self.batches)
        self.order = rule_of(self.batches, method.sync.seed_weights)
        self.draws = Draws(seed, train.redraw)
        self.exchange = method.exchange.with_batches(self.batches)
        self.schedule, self.sync, self.objective = method.schedule, method.sync, method.objective
        self.epoch = self.step = 0
        self.last_loss = float("nan")
        self.seconds = self.wire_seconds = 0.0  # of training, and of them in the hands of the transport
        self.computing: list[float] = []  # of each epoch, the seconds that the transport had no part in
        self.round_starts = True
        self.due = False  # a validation waits for the end of a round
        self.scores: Scores | None = None  # what the last validation of this epoch found
        self.history: list[dict[str, Any]] = []
        self._losses: list[Tensor] = []
        self.active = torch.ones(len(self.wire.mine), dtype=torch.bool)
        self._lay_out(model)
        self._build_model(model)
        self._count_labels()
        self.epochs = train.total_epochs(self.steps_per_epoch)
        self.exchange.begin(self)

    def _lay_out(self, model: ModelConfig) -> None:
        """Stack my silos, and find the seeds of every split."""
        self.stack = build_stack(self.federation.silos, self.exchange.view, self.dtype).to(self.device)
        self.wire.releases.open(sum(silo.n + silo.h for silo in self.federation.silos))
        self.ways = make_ways(self, model)
        self.batcher = self.ways.across[SPLIT_NAMES[TRAIN]].batcher
        labels = self.stack.y if self.schema.target == "node" else self.stack.edge_y
        assert labels is not None
        self.labels = labels
        self.pools = {split: self._pool(split) for split in (TRAIN, VALID, TEST)}
        self.train_pool = self.pools[TRAIN]
        self.learn = self.train_pool.counts > 0
        self.steps_per_epoch = self.federation.check_seeds(self.pools, self.batches, self.train.batch)

    @cached_property
    def boundary(self) -> Boundary:
        """Which rows of this host's silos others hold, and which of others' they hold."""
        return build_boundary(self.wire, self.federation.plan, self.stack)

    def _pool(self, split: int) -> Pool:
        """Labelled, owned seeds of a split; an edge is a seed of its target's owner, in training perhaps of both."""
        known = labelled(self.labels)
        share = None
        if self.schema.target == "node":
            index = ((self.stack.split == split) & known & self.stack.owned).nonzero().flatten()
            at = index
        else:
            assert self.stack.edge_split is not None
            owned, double = self.stack.owned[self.stack.ends], split == TRAIN and self.exchange.doubles
            mine = owned.any(0) if double else owned[1]
            index = ((self.stack.edge_split == split) & known & mine).nonzero().flatten()
            at = self.stack.ends[1][index]
            share = owned[:, index].to(self.dtype).mean(0) if double else None
        silo = self.stack.silo_of(at)
        held = torch.bincount(silo, minlength=len(self.wire.mine)).cpu()
        keys = self.stack.keys if self.schema.target == "node" else self.stack.edge_keys
        counts = self.wire.share(Kind.STATISTICS, held)
        return Pool(index, keys[index], (0, *held.cumsum(0).tolist()), counts, share)

    def _build_model(self, config: ModelConfig) -> None:
        """One parameter set where silos move in lockstep and nobody must see them apart, else one for each silo."""
        self.model = GNN(config, self.schema, self.train.batch)
        self.model.reset(self.seed)
        silos = len(self.wire.mine)
        shared = self.sync.lockstep and not self.wire.protect.separates(Kind.GRADIENTS)
        self.model.to(self.device, self.dtype)
        self.sets = ParameterSets(self.model, 1 if shared else silos, silos)
        if self.train.start == "own":
            reset_apart(self.model, self.seed, self.wire.mine, self.sync.shares)
        self.model.set_degree(*mean_log_degree(self.wire, self.batcher.stack, self.agreed))
        self.optimiser = OPTIMISERS[self.train.optimiser](
            self.sets.for_optimiser(), lr=self.train.lr, weight_decay=self.train.weight_decay, fused=True
        )
        self.best = Best(self.sets, len(self.wire.mine), self.sync.alone)

    def _count_labels(self) -> None:
        """Class weights of the loss, and which class is rare: both from training labels only."""
        width = len(self.schema.labels)
        y, pool = self.labels[self.train_pool.index].cpu(), self.train_pool
        parts = [y[a:b] for a, b in zip(pool.ptr, pool.ptr[1:], strict=False)]
        if self.schema.task != "classes" and self.objective.minority_weight != 1:
            raise IsthmusError("objective.minority_weight is for classes; tasks weigh positives by themselves.")
        if self.schema.task == "classes":
            counts = torch.stack([torch.bincount(part.long(), minlength=width) for part in parts]).double()
            self.positive_weight: Tensor | None = None
        else:
            counts = torch.stack([torch.stack([(part == 0).sum(0), (part == 1).sum(0)], 1) for part in parts]).double()
            self.positive_weight = positive_weights(self.wire, counts, self.agreed).to(self.device, self.dtype)
        total = self.wire.total(Kind.STATISTICS, counts)
        self.minority = total.flip(-1).argmin(-1).neg() + total.shape[-1] - 1  # of equals, the later class

    @property
    def total_moments(self) -> Callable[[Tensor], Tensor] | None:
        """Sums over all silos for normalisation moments, where they are agreed."""
        return (lambda x: self.wire.total(Kind.STATISTICS, x)) if self.agreed else None

    def make_batch(self, seeds: Seeds, step: int, purpose: str = "train") -> Batch:
        """One pass for all silos, as far as the purpose (a split) may see the graph."""
        return self.ways.score(purpose, self.schedule.scores_across).batch(seeds, step, purpose)

    def who_crosses(self, step: int) -> Tensor:
        """The silos that the schedule lets cross at a training step (counted from 0): [silos] bool."""
        return self.schedule.across(step, self.seed, self.learn)

    def kind_of(self, step: int) -> Purpose:
        """What the ledger calls a training step (counted from 0)."""
        if self.schedule.always:
            return Purpose.STEP
        cross = self.who_crosses(step)
        if not bool(cross.any()):
            return Purpose.STEP
        return Purpose.CROSSING if bool(cross.all()) else Purpose.MIXED

    @property
    def crosses_whole(self) -> bool:
        """Whether passes over whole graphs, without sampling, cross the boundary."""
        train = self.exchange.trains_across and self.schedule.everybody(int(self.learn.sum()))
        return not self.train.batch and (train or self.schedule.scores_across)

    def step_batches(self, seeds: Seeds) -> list[Batch]:
        """The passes of this training step: the schedule says which silos cross."""
        cross = self.who_crosses(self.step) & self.exchange.trains_across
        return self.ways.train(seeds, self.step, cross, self.wire.mine)

    def weights_of(self, batch: Batch) -> Tensor | None:
        """The positive weights of the silo that each seed belongs to."""
        return None if self.positive_weight is None else self.positive_weight[batch.seed_rows.silo]

    @property
    def over(self) -> bool:
        """Whether the last step has been taken."""
        last = self.train.steps or self.epochs * self.steps_per_epoch
        return self.step >= last

    @property
    def epoch_over(self) -> bool:
        """Whether the last step of an epoch has been taken."""
        return self.step % self.steps_per_epoch == 0

    def epoch_seeds(self) -> Iterator[Seeds]:
        """The seeds of each step of this epoch, and not beyond the last step that was asked for."""
        ledger = self.wire.ledger
        ledger.epoch, ledger.step, ledger.purpose = self.epoch + 1, self.step + 1, Purpose.ORDER
        drawn = draw_batches(self.train_pool, self.wire, self.order, self.train.batch, self.seed, "train", self.epoch)
        for seeds in drawn:
            if self.over:
                return
            ledger.step = self.step + 1
            ledger.purpose = self.kind_of(self.step)
            yield seeds

    def evaluates(self) -> bool:
        """Whether validation is due after this epoch."""
        due = self.epoch % self.train.evaluate_every == 0 or self.epoch == self.epochs
        return due and int(self.pools[VALID].counts.sum()) > 0

    def note_losses(self, sums: Tensor, counts: Tensor) -> None:
        """Keep a step's losses until the epoch ends."""
        self._losses.append(torch.stack([sums.double(), counts.double()], 1))
        self.last_loss = float(sums.sum() / counts.sum().clamp(min=1))

    def end_epoch(self) -> list[dict[str, Any]]:
        """Lines of this epoch: one for every step, and one with the scores, if there were any."""
        scores, self.scores = self.scores, None
        steps = torch.stack(self._losses, 1) if self._losses else torch.zeros(len(self.wire.mine), 0, 2)
        self._losses = []
        with self.wire.ledger.during(Purpose.LOSSES):
            sums, counts = self.wire.share(Kind.METRICS, steps.cpu().double()).unbind(2)
        loss = sums.sum(0) / counts.sum(0).clamp(min=1)
        first = self.step - len(loss) + 1
        lines: list[dict[str, Any]] = [
            {"step": first + i, "epoch": self.epoch, "loss": _finite(value)} for i, value in enumerate(loss.tolist())
        ]
        if scores is not None:
            per_silo = (sums.sum(1) / counts.sum(1).clamp(min=1)).tolist()
            mean = float(sums.sum() / counts.sum().clamp(min=1))
            lines.append(
                {
                    "step": self.step,
                    "epoch": self.epoch,
                    "loss": _finite(mean),
                    "valid": scores.as_dict(),
                    "silo_loss": [_finite(v) for v in per_silo],
                    "silo_valid": [_finite(v) for v in scores.silos[:, 0].tolist()],
                }
            )
        self.history += lines
        return lines


def _finite(value: float) -> float | None:
    """A number as JSON can write it: None for nan and infinity."""
    return value if math.isfinite(value) else None
