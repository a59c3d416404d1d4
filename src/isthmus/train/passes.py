"""From seeds to batches: along which edges a forward pass runs, and with which exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.layout import SPLITS
from isthmus.engine.site import Site
from isthmus.graph.graph import SPLIT_NAMES, TRAIN
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.absent_rows import absent_rows
from isthmus.methods.exchange.base import LiveExchange
from isthmus.nn.model import LAYERS
from isthmus.sample.batcher import Batcher, Ground
from isthmus.sample.batches import Batch, Seeds
from isthmus.sample.neighbours import Sampler

TRAINING = "train"  # the purpose of passes that are learnt from


@dataclass(frozen=True)
class Work:
    """A batch, and the exchange that serves its pass."""

    batch: Batch
    exchange: LiveExchange


@dataclass(frozen=True)
class BatchMaker:
    """Makes the batches of one kind of pass; ``whole``: without sampling, all rows and edges at once."""

    batcher: Batcher
    sampler: Sampler
    exchange: LiveExchange
    whole: bool

    def make(self, seeds: Seeds, step: int, purpose: str = TRAINING) -> Work:
        """A batch of the seeds: the whole graph, or a sample around them."""
        known = Ground(self.batcher, self.sampler)
        ground = self.exchange.ground(known, step, training=purpose == TRAINING)
        return Work(ground.batch(seeds, step, purpose, self.whole), self.exchange)

    def among_members(self, site: Site) -> BatchMaker:
        """A maker for the silos that are present, without edges to absent ones where the exchange leaves these out."""
        if site.wire.members.complete or not self.exchange.spec.leaves_out:
            return self
        return replace(make_maker(site, self.exchange, self.batcher.stack.without(absent_rows(site))), whole=self.whole)


def make_maker(site: Site, exchange: LiveExchange, stack: Stack) -> BatchMaker:
    """A maker of batches along the edges of ``stack``, for passes with ``exchange``."""
    fanout = site.train.fanouts(site.model.layers)
    sampler = exchange.sampler(stack, fanout)
    return BatchMaker(site.batcher(stack, exchange.reads_halo), sampler, exchange, site.train.batch == 0)


def makers_by_split(site: Site, exchange: LiveExchange, stack: Stack) -> dict[str, BatchMaker]:
    """By name of a split, a maker of batches along the edges that this split may see (``train.messages``)."""
    if site.train.messages == "past":
        _check_past(site)
        return {SPLIT_NAMES[split]: make_maker(site, exchange, stack.until(split)) for split in SPLITS}
    return dict.fromkeys((SPLIT_NAMES[split] for split in SPLITS), make_maker(site, exchange, stack))


@dataclass(frozen=True)
class Passes:
    """The passes of a phase: ``across`` for all silos, by split; ``some`` and ``apart`` where only some silos cross.

    A pass over whole graphs asks all silos for all their rows. Where only ``some`` cross, a sample of all neighbours of
    their seeds asks for no more than these depend on. ``apart``: for silos that do not cross.
    """

    across: Mapping[str, BatchMaker]
    some: BatchMaker
    apart: BatchMaker

    def among_members(self, site: Site) -> Passes:
        """Passes for the silos that are present, made of these, which are for all silos."""
        across = {split: maker.among_members(site) for split, maker in self.across.items()}
        return Passes(across, self.some.among_members(site), self.apart.among_members(site))

    def train(self, seeds: Seeds, step: int, cross: Tensor, mine: tuple[int, ...]) -> list[Work]:
        """The passes of a training step: one for the silos that cross ([silos] bool), one for the others.

        All hosts make the same passes, also those that have no seeds for one of them.
        """
        here = cross[list(mine)] if mine else torch.zeros(1, dtype=torch.bool)  # nobody's part of the stack
        if bool(cross.all()):
            return [self.across[SPLIT_NAMES[TRAIN]].make(seeds, step)]
        if not bool(cross.any()):
            return [self.apart.make(seeds, step)]
        return [self.some.make(seeds.of(here), step), self.apart.make(seeds.of(~here), step)]


def make_passes(site: Site, exchange: LiveExchange, always: bool) -> Passes:
    """The passes of a phase; ``always``: all silos cross at every step, so that nobody is ever apart."""
    across = makers_by_split(site, exchange, site.stack)
    train = across[SPLIT_NAMES[TRAIN]]
    apart = train if always else make_maker(site, *exchange.apart(site.stack))
    return Passes(across, replace(train, whole=False), apart)


def _check_past(site: Site) -> None:
    """Refuse ``train.messages=past`` without splits on edges, or with a model that reads degrees of the whole graph."""
    if site.schema.target != "edge" or site.stack.edge_split is None:
        raise IsthmusError("train.messages=past needs labels and splits on edges; use train.messages=all.")
    if site.degrees:
        readers = [name for name, layer in LAYERS.items() if not layer.uses_degrees]
        raise IsthmusError(
            f"train.messages=past, but {site.model.name} reads degrees, in which the future counts; use one of: "
            f"{', '.join(readers)}."
        )
