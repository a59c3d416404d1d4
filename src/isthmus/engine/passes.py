"""From seeds to batches: along which edges a pass runs, and what it gets from beyond the boundary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.exchange.base import Exchange
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID
from isthmus.graph.stack import Stack
from isthmus.nn.model import LAYERS, ModelConfig
from isthmus.sample.batches import Batch, Batcher, Seeds
from isthmus.sample.neighbours import Sampler

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass(frozen=True)
class Way:
    """How passes of one kind are made; ``whole``: without sampling, all rows and edges at once."""

    batcher: Batcher
    sampler: Sampler
    whole: bool

    def batch(self, seeds: Seeds, step: int, purpose: str = "train") -> Batch:
        """The whole graph, or a sample around the seeds."""
        if self.whole:
            return self.batcher.whole(seeds, step)
        sample = self.sampler.sample(self.batcher.roots(seeds), step, purpose)
        slots = self.batcher.slots(seeds)
        if slots is not None and self.batcher.target == "edge":  # the ends of a seed may lie in two silos
            slots = self.sampler.slots(slots, sample)
        return self.batcher.sampled(seeds, sample, step, slots)


@dataclass(frozen=True)
class Ways:
    """Across the boundary, as far as each split may see; and those of steps at which only some silos cross.

    A pass over whole graphs asks all silos for everything. Where ``some`` cross, only what their seeds depend on is
    asked for; a sample of all neighbours is just that. ``apart``: for the others.
    """

    across: Mapping[str, Way]
    some: Way
    apart: Way

    def train(self, seeds: Seeds, step: int, cross: Tensor, mine: tuple[int, ...]) -> list[Batch]:
        """The passes of a training step: one for the silos that cross ([silos] bool), one for the others.

        All hosts make the same passes, also those that have no seeds for one of them.
        """
        train, here = SPLIT_NAMES[TRAIN], cross[list(mine)]
        if bool(cross.all()):
            return [self.across[train].batch(seeds, step)]
        if not bool(cross.any()):
            return [self.apart.batch(seeds, step)]
        return [self.some.batch(seeds.of(here), step), self.apart.batch(seeds.of(~here), step)]

    def score(self, split: str, across: bool) -> Way:
        """How parameters are scored."""
        return self.across[split] if across else self.apart


def make_ways(run: Run, model: ModelConfig) -> Ways:
    """The ways of a run whose stack is laid out."""
    _check_schedule(run)
    splits = (TRAIN, VALID, TEST)
    if run.train.messages == "past":
        _check_past(run, model)
        across = {SPLIT_NAMES[split]: _way(run, run.exchange, run.stack.until(split), model) for split in splits}
    else:
        across = dict.fromkeys((SPLIT_NAMES[split] for split in splits), _way(run, run.exchange, run.stack, model))
    train = across[SPLIT_NAMES[TRAIN]]
    always = run.schedule.always and run.schedule.scores_across and run.exchange.trains_across
    apart = train if always else _way(run, *run.exchange.apart(run.stack), model)
    return Ways(across, replace(train, whole=False), apart)


def _way(run: Run, exchange: Exchange, stack: Stack, model: ModelConfig) -> Way:
    degrees, fanout = LAYERS[model.name].uses_degrees, run.train.fanouts(model.layers)
    size = stack, model.layers, model.directed
    batcher = Batcher(*size, run.schema.target, model.ego, exchange, degrees, run.train.trim)
    return Way(batcher, exchange.sampler(run, stack, fanout, model.directed), run.train.batch == 0)


def _check_schedule(run: Run) -> None:
    """A schedule needs an exchange within steps, and seeds that a silo can score by itself."""
    schedule = run.schedule
    if schedule.always and schedule.scores_across:
        return
    schedule.check(run.wire.silos)
    if not run.exchange.stepwise:
        raise IsthmusError(
            f"Method '{run.method.name}' exchanges nothing within steps, so that there is nothing to schedule; leave "
            "schedule.* out, or use a method such as swift-fedgnn or sync-sgd+fwd-bwd-le."
        )
    if run.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, and a silo that does not cross could not score those that leave it; use "
            "sync-sgd+fwd-bwd-le without schedule.*, or a method that crosses once a round, such as ce-fedgnn."
        )
    if not schedule.ever and schedule.every > 1:
        run.federation.note("No silo ever crosses (schedule.silos=0), so that schedule.every says nothing.")


def _check_past(run: Run, model: ModelConfig) -> None:
    """Messages of the past need splits on edges, and a model that does not read degrees of the whole graph."""
    if run.schema.target != "edge" or run.stack.edge_split is None:
        raise IsthmusError("train.messages=past needs labels and splits on edges; use train.messages=all.")
    if LAYERS[model.name].uses_degrees:
        readers = [name for name, layer in LAYERS.items() if not layer.uses_degrees]
        raise IsthmusError(
            f"train.messages=past, but {model.name} reads degrees, in which the future counts; use one of: "
            f"{', '.join(readers)}."
        )
