"""What crosses in one epoch of training: the formulas of the paper on layer-wise exchange, and the ledger's count.

Ceydeli 2026, Table 8.1. The formulas count numbers, not bytes, and one embedding for each cross edge over which a silo
aggregates; a ledger also sees ids, order and statistics, and parameters on their way up and down.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.nn.block import Block
from isthmus.sample.batches import Batch, Seeds
from isthmus.train.loop import end_round, step
from isthmus.train.passes import Passes, Work
from isthmus.train.training import Training

EXCHANGES = ("", "+fwd-le", "+fwd-bwd-le")
METHODS = (*(base + exchange for base in ("local", "fedavg", "sync-sgd") for exchange in EXCHANGES), "optimes")


@dataclass(frozen=True)
class Sizes:
    """The paper's letters; those that differ between clients are sums over all of them."""

    clients: int
    parameters: int  # P
    steps: int  # S
    layers: int  # L
    width: int  # d
    cut: int  # sum of |E_c^rem|: cross edges, each counted by both of its clients
    sampled: float  # sum of |R_c|: cross edges over which a client aggregates, mean over layers and steps


@dataclass(frozen=True)
class Volume:
    """Numbers that cross in an epoch, by term."""

    parameters: float
    embeddings: float
    adjoints: float


def formula(method: str, sizes: Sizes) -> Volume:
    """P, S P or nothing for parameters; S L d |R_c| for embeddings, L d |E_c^rem| for OptimES; as much for adjoints."""
    base, _, exchange = method.partition("+")
    often = {"local": 0, "fedavg": 1, "sync-sgd": sizes.steps, "optimes": 1}[base]
    edges = {"": 0.0, "fwd-le": sizes.steps * sizes.sampled, "fwd-bwd-le": sizes.steps * sizes.sampled}[exchange]
    embeddings = sizes.layers * sizes.width * (sizes.cut if base == "optimes" else edges)
    return Volume(often * sizes.clients * sizes.parameters, embeddings, embeddings if exchange == "fwd-bwd-le" else 0)


@dataclass
class Tally:
    """Cross edges that batches aggregate over and halo rows that they read, layer by layer."""

    edges: int = 0
    rows: int = 0
    sampled: int = 0

    def add(self, batch: Batch) -> None:
        """Count a batch; its first layer aggregates over every sampled edge, later ones over fewer."""
        layers = [crossing(block) for block in batch.blocks]
        self.edges += sum(edges for edges, _ in layers)
        self.rows += sum(rows for _, rows in layers)
        self.sampled += layers[0][0]


@dataclass(frozen=True)
class CountedPasses(Passes):
    """Passes whose training batches are counted."""

    tally: Tally = field(default_factory=Tally)

    def train(self, seeds: Seeds, step: int, cross: Tensor, mine: tuple[int, ...]) -> list[Work]:
        """The passes of a step, counted."""
        works = super().train(seeds, step, cross, mine)
        for work in works:
            self.tally.add(work.batch)
        return works


class Counted(Training):
    """A training of one phase that counts what its steps aggregate over."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        passes = CountedPasses(**vars(self.stage.passes))
        self.stage.passes, self.tally = passes, passes.tally

    def epoch_seeds(self) -> Iterator[Seeds]:
        """The seeds of each step of this epoch."""
        return self.stage.epoch_seeds(self.progress)

    def make_batch(self, seeds: Seeds, step: int) -> Batch:
        """The batch of all silos' seeds, across the boundary."""
        return self.stage.passes.across["train"].make(seeds, step).batch


def crossing(block: Block) -> tuple[int, int]:
    """Edges over which owned rows aggregate halo rows, in both directions, and how many halo rows these are."""
    mine, theirs = block.targets.owned, block.sources.owned
    if mine is None or theirs is None:
        return 0, 0
    sides = [side for side in (block, block.reverse) if side is not None]
    far = torch.cat([side.src[mine[side.dst] & ~theirs[side.src]] for side in sides])
    return len(far), len(far.unique())


@dataclass(frozen=True)
class Epoch:
    """One epoch: the paper's letters, as the run had them, and the ledger's bytes by kind."""

    sizes: Sizes
    at_every_layer: float  # sum of |R_c| if every layer aggregated over all sampled edges, as in the paper's code
    rows_per_edge: float  # distinct (node, receiving silo) among the cross edges of a layer
    bytes: dict[str, float]


def one_epoch(training: Counted, steps: int = 0) -> Epoch:
    """Train for an epoch (or its first steps, scaled up), and count what crosses; evaluation is left out."""
    stage, tally, ledger = training.stage, training.tally, training.wire.ledger
    before = ledger.by_kind()
    taken = 0
    for seeds in training.epoch_seeds():
        if taken == (steps or stage.steps_per_epoch):
            break
        step(stage, training.progress, seeds)
        taken += 1
    during = _since(before, training, stage.steps_per_epoch / taken)
    before = ledger.by_kind()
    end_round(stage)
    after = _since(before, training, 1.0)
    crossed = {kind: during.get(kind, 0.0) + after.get(kind, 0.0) for kind in {**during, **after}}
    return Epoch(_sizes(training, taken), tally.sampled / taken, tally.rows / max(tally.edges, 1), crossed)


def _since(before: dict[str, int], training: Training, scale: float) -> dict[str, float]:
    """Bytes by kind since then; the order of the seeds is drawn once an epoch, whatever the number of steps."""
    now = training.wire.ledger.by_kind()
    new = {kind: size - before.get(kind, 0) for kind, size in now.items()}
    return {kind: size * (1.0 if kind == Kind.ORDER else scale) for kind, size in new.items() if size}


def _sizes(training: Counted, taken: int) -> Sizes:
    config = training.stage.site.net.config
    return Sizes(
        clients=training.wire.silos,
        parameters=sum(parameter[0].numel() for parameter in training.learner.classifier.sets.parameters.values()),
        steps=training.stage.steps_per_epoch,
        layers=config.layers,
        width=config.hidden,
        cut=sum(int(silo.crosses.sum()) for silo in training.federation.silos),
        sampled=training.tally.edges / (config.layers * taken),
    )
