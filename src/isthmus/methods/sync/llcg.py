"""LLCG: local training, corrected by steps of the server on all neighbours of some nodes; their features go to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind, Purpose
from isthmus.core.random import order, stream
from isthmus.engine.forward import layers
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.graph.graph import TRAIN, labelled
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import Exchange
from isthmus.methods.sync.base import LiveSync, Losses
from isthmus.methods.sync.llcg_sample import SampleSender
from isthmus.methods.sync.sync_sgd import LiveSyncSGD, SyncSGD
from isthmus.nn.model import ModelConfig
from isthmus.nn.norm import Pass
from isthmus.protect.base import Chain
from isthmus.sample.across import JointSampler
from isthmus.sample.batches import Batcher, Seeds


@dataclass(frozen=True)
class Corrected(SyncSGD):
    """W <- W - eta grad of the mean loss of ``seeds`` training nodes with all their neighbours, taken by the server.

    Silos train by the mean of their gradients. Every ``every`` steps each adds its share of the seeds, by its number of
    training nodes (0: as many seeds as a silo's batch), and the features of all nodes within reach of any seed go to
    the server, with the edges between them and the labels of the seeds. ``neighbours`` of a node are drawn at each hop
    (-1: all).
    """

    every: int = 10
    seeds: int = 0
    neighbours: int = -1
    name: ClassVar[str] = "llcg"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise IsthmusError(f"sync.every is {self.every}; it must be at least 1.")
        if self.seeds < 0 or self.neighbours == 0 or self.neighbours < -1:
            raise IsthmusError(
                f"sync.seeds is {self.seeds} and sync.neighbours {self.neighbours}; seeds are 0 or more, "
                "neighbours at least 1, or -1 for all."
            )

    def corrects(self, step: int) -> bool:
        """After every ``every``-th step, from the first on."""
        return step % self.every == 0

    def check(self, model: ModelConfig, protect: Chain, agreed: bool, view: str) -> None:
        """Refuse what a server without data of its own cannot compute, and samples that cannot cross."""
        if view != "halo":
            raise IsthmusError(
                "The server's sample crosses the boundary, so that sync=llcg needs an exchange that knows far ends, "
                "such as swift or fwd-bwd-le (with joint batches)."
            )
        if protect.separates(Kind.GRADIENTS):
            raise IsthmusError(
                "The server corrects one set of parameters that all silos hold at every step; leave out "
                "protect.clip_gradients and protect.sigma_gradients."
            )
        if model.norm != "none" or model.ego:
            raise IsthmusError(
                "Moments over a silo's batch and over the server's are not of one kind, nor are the places of seeds in "
                f"them: model.norm is {model.norm}, model.ego {str(model.ego).lower()}; use none and false."
            )
        if not agreed and model.name == "pna":
            raise _no_statistics("PNA's degree constants")

    def open(self, site: Site, model: Learned, losses: Losses) -> LiveSync:
        """The live sync, which corrects after steps."""
        return LiveCorrected(self, site, model, losses)


class LiveCorrected(LiveSyncSGD):
    """Takes the server's steps."""

    spec: Corrected

    def __init__(self, spec: Corrected, site: Site, model: Learned, losses: Losses) -> None:
        super().__init__(spec, site, model, losses)
        if not site.agreed and site.schema.task == "tasks":
            raise _no_statistics("the weights of positive labels")
        if site.schema.target == "edge":
            raise IsthmusError("The server's step is on nodes, but labels lie on edges; use sync-sgd+fwd-bwd-le.")
        fanout = [spec.neighbours] * site.model.layers
        self._sampler = JointSampler(site.stack, fanout, site.draws, False, site.wire, site.boundary)
        self._sender = SampleSender(site)

    def step_end(self, step: int) -> None:
        """The server's step, where there is one: it computes the gradient, and everybody steps by it."""
        if not self.spec.corrects(step):
            return
        site, model = self.site, self.model
        with site.wire.ledger.during(Purpose.CORRECTION):
            seeds = self._drawn(step)
            sample = self._sampler.sample(seeds, step, "correction")
            with site.wire.ledger.at_once():
                graph = self._sender.send(sample, seeds)
            model.sets.zero_gradients()
            if graph is not None:
                self._loss(graph, step).backward()
            gradient = model.sets.flat_gradients()
            told = site.wire.answer(Kind.GRADIENTS, None if graph is None else gradient)
        model.sets.load_gradients(told.to(gradient)[0])
        model.step([True])

    def _drawn(self, step: int) -> Tensor:
        """My silos' share of the seeds: stack rows."""
        pool, train = self.site.layout.pools[TRAIN], self.site.train
        wanted = self.spec.seeds or train.batch or int(pool.counts.max())
        share = (pool.counts * wanted / pool.counts.sum().clamp(min=1)).ceil().long()
        drawn = [pool.index[:0]]
        for place, silo in enumerate(self.site.wire.mine):
            first, last = pool.ptr[place : place + 2]
            by_hash = order(stream(self.site.seed, "correction", step), pool.keys[first:last])
            drawn.append(pool.index[first:last][by_hash[: int(share[silo])]])
        return torch.cat(drawn).sort().values

    def _loss(self, graph: Stack, step: int) -> Tensor:
        """The mean loss of all seeds in a graph that the server holds."""
        site, config = self.site, self.site.model
        batcher = Batcher(graph, config.layers, False, "node", config.ego, False, site.degrees)
        rows = labelled(graph.y).nonzero().flatten()
        slots = torch.arange(len(rows), device=rows.device)
        parts = len(graph.ptr) - 1
        batch = batcher.whole(Seeds(rows, slots, (0, *[len(rows)] * parts), len(rows), torch.ones(parts)), step)
        *_, h = layers(site.net, Exchange().open(site), batch, Pass(True, site.seed, step))
        logits = site.net.readout(h[batch.ends[0]], batch.seed_rows)
        mean: Tensor = self.losses.seed_losses(logits, batch).sum() / max(len(rows), 1)
        return mean


def _no_statistics(what: str) -> IsthmusError:
    return IsthmusError(f"The server has no statistics of its own for {what}; use train.statistics=agreed.")
