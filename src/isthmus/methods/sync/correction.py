"""The server's correction in LLCG: its gradient on nodes of all silos, whose features silos send to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.random import order, stream
from isthmus.engine.forward import layers
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.graph.graph import TRAIN, labelled
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import Exchange
from isthmus.methods.sync.base import Losses
from isthmus.methods.sync.correction_sample import SampleSender
from isthmus.nn.model import ModelConfig
from isthmus.nn.norm import Pass
from isthmus.sample.across import JointSampler
from isthmus.sample.batcher import Batcher
from isthmus.sample.batches import Seeds


@dataclass(frozen=True)
class ServerBatch:
    """The batch of a correction: ``seeds`` training nodes of all silos, and their neighbours.

    Each silo gives its share of the seeds, by its number of training nodes (0: as many seeds as a silo's batch).
    ``neighbours`` of a node are drawn at each hop (-1: all).
    """

    seeds: int
    neighbours: int

    def __post_init__(self) -> None:
        if self.seeds < 0 or self.neighbours == 0 or self.neighbours < -1:
            raise IsthmusError(
                f"sync.seeds is {self.seeds} and sync.neighbours {self.neighbours}; seeds are 0 or more, "
                "neighbours at least 1, or -1 for all."
            )

    def check(self, model: ModelConfig, agreed: bool, view: str, sync: str) -> None:
        """Refuse what a server without data of its own cannot compute, and samples that cannot cross."""
        if view != "halo":
            raise IsthmusError(
                f"The server's sample crosses the boundary, so that sync={sync} needs an exchange that knows far ends, "
                "such as swift or fwd-bwd-le (with joint batches)."
            )
        if model.norm != "none" or model.ego:
            raise IsthmusError(
                "Moments over a silo's batch and over the server's are not of one kind, nor are the places of seeds in "
                f"them: model.norm is {model.norm}, model.ego {str(model.ego).lower()}; use none and false."
            )
        if not agreed and model.name == "pna":
            raise _no_statistics("PNA's degree constants")

    def open(self, site: Site, model: Learned, losses: Losses) -> Correction:
        """The live correction of one model on one host."""
        return Correction(self, site, model, losses)


class Correction:
    """Brings samples of all silos' graphs to the server, and computes its gradient there."""

    def __init__(self, spec: ServerBatch, site: Site, model: Learned, losses: Losses) -> None:
        self.spec, self.site, self.model, self.losses = spec, site, model, losses
        if not site.agreed and site.schema.task == "tasks":
            raise _no_statistics("the weights of positive labels")
        if site.schema.target == "edge":
            raise IsthmusError("The server's step is on nodes, but labels lie on edges; use sync-sgd+fwd-bwd-le.")
        fanout = [spec.neighbours] * site.model.layers
        self._sampler = JointSampler(site.stack, fanout, site.draws, False, site.wire, site.boundary)
        self._sender = SampleSender(site)

    def gradient(self, number: int) -> Tensor | None:
        """The gradient of the mean loss over the ``number``-th draw of seeds, at the server's parameters.

        Returns [1, numbers] on the server's host, computed with its first parameter set, and None on other hosts.
        """
        seeds = self._drawn(number)
        sample = self._sampler.sample(seeds, number, "correction")
        with self.site.wire.ledger.at_once():
            graph = self._sender.send(sample, seeds)
        if graph is None:
            return None
        self.model.sets.zero_gradients()
        self._loss(graph, number).backward()
        return self.model.sets.flat_gradients()[:1]

    def _drawn(self, number: int) -> Tensor:
        """My silos' share of the seeds: stack rows."""
        pool, train = self.site.layout.pools[TRAIN], self.site.train
        wanted = self.spec.seeds or train.batch or int(pool.counts.max())
        share = (pool.counts * wanted / pool.counts.sum().clamp(min=1)).ceil().long()
        drawn = [pool.index[:0]]
        for place, silo in enumerate(self.site.wire.mine):
            first, last = pool.ptr[place : place + 2]
            by_hash = order(stream(self.site.seed, "correction", number), pool.keys[first:last])
            drawn.append(pool.index[first:last][by_hash[: int(share[silo])]])
        return torch.cat(drawn).sort().values

    def _loss(self, graph: Stack, number: int) -> Tensor:
        """The mean loss of all seeds in a graph that the server holds."""
        site, config = self.site, self.site.model
        batcher = Batcher(graph, config.layers, False, "node", config.ego, False, site.degrees)
        rows = labelled(graph.y).nonzero().flatten()
        slots = torch.arange(len(rows), device=rows.device)
        parts = len(graph.ptr) - 1
        batch = batcher.whole(Seeds(rows, slots, (0, *[len(rows)] * parts), len(rows), torch.ones(parts)), number)
        *_, h = layers(site.net, Exchange().open(site), batch, Pass(True, site.seed, number))
        logits = site.net.readout(h[batch.ends[0]], batch.seed_rows)
        mean: Tensor = self.losses.seed_losses(logits, batch).sum() / max(len(rows), 1)
        return mean


def _no_statistics(what: str) -> IsthmusError:
    return IsthmusError(f"The server has no statistics of its own for {what}; use train.statistics=agreed.")
