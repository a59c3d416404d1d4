"""LLCG: local training, corrected by steps of the server on all neighbours of some nodes; their features go to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.exchange.base import Exchange
from isthmus.exchange.server import ServerAggregate
from isthmus.forward import layers
from isthmus.graph.collect import collect
from isthmus.graph.graph import labelled
from isthmus.graph.stack import Stack
from isthmus.nn.norm import Pass
from isthmus.sample.across import JointSampler
from isthmus.sample.batches import Batcher, Seeds
from isthmus.sample.random import order, stream
from isthmus.wire.ledger import SERVER, Kind

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass
class Corrections(ServerAggregate):
    """W <- W - eta grad of the mean loss of ``seeds`` training nodes with all their neighbours, taken by the server.

    Silos train on their own neighbours. At steps of the schedule each adds its share of the seeds, by its number of
    training nodes (0: as many seeds as a silo's batch), and the features of all nodes within reach of any seed go to
    the server, with the edges between them and the labels of the seeds. ``neighbours`` of a node are drawn at each hop
    (-1: all). Parameters are scored with aggregates through the server, if at all across the boundary.
    """

    adjoint: bool = field(default=True, init=False)  # nothing to choose: aggregates are for scores alone
    reuse: bool = field(default=False, init=False)
    seeds: int = 0
    neighbours: int = -1
    trains_across: ClassVar[bool] = False
    _sampler: JointSampler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds < 0 or self.neighbours == 0 or self.neighbours < -1:
            raise IsthmusError(
                f"exchange.seeds is {self.seeds} and exchange.neighbours {self.neighbours}; seeds are 0 or more, "
                "neighbours at least 1, or -1 for all."
            )

    def begin(self, run: Run) -> None:
        """The server steps for all silos, so that all must hold its parameters."""
        super().begin(run)
        _check(run)
        fanout = [self.neighbours] * run.model.config.layers
        self._sampler = JointSampler(run.stack, fanout, run.draws, False, run.wire, run.boundary)

    def step_end(self, run: Run) -> None:
        """The server's step, where the schedule has one."""
        step = run.step - 1
        if not bool(run.who_crosses(step).any()):
            return
        seeds = self._drawn(run, step)
        sample = self._sampler.sample(seeds, step, "correction")
        with run.wire.ledger.at_once():
            graph = collect(run, sample, seeds)
        run.sets.zero_gradients()
        if graph is not None:
            _loss(run, graph, step).backward()
        gradient = run.sets.flat_gradients()
        down = {(SERVER, silo): gradient for silo in range(run.wire.silos)} if run.wire.serves else {}
        got = run.wire.post(Kind.GRADIENTS, down)
        run.sets.load_gradients(got[SERVER, run.wire.mine[0]].to(gradient)[0])
        run.sets.hand_out_gradients([True])
        run.optimiser.step()

    def _drawn(self, run: Run, step: int) -> Tensor:
        """My silos' share of the seeds: stack rows."""
        pool, wanted = run.train_pool, self.seeds or run.train.batch or int(run.train_pool.counts.max())
        share = (pool.counts * wanted / pool.counts.sum().clamp(min=1)).ceil().long()
        drawn = []
        for place, silo in enumerate(run.wire.mine):
            first, last = pool.ptr[place : place + 2]
            by_hash = order(stream(run.seed, "correction", step), pool.keys[first:last])
            drawn.append(pool.index[first:last][by_hash[: int(share[silo])]])
        return torch.cat(drawn).sort().values


def _check(run: Run) -> None:
    """Refuse what a server without data of its own cannot compute."""
    config = run.model.config
    if not run.sync.lockstep or run.wire.protect.separates(Kind.GRADIENTS):
        raise IsthmusError(
            "The server corrects one set of parameters that all silos hold at every step; use sync-sgd, without "
            "protect.clip_gradients and protect.sigma_gradients."
        )
    if config.norm != "none" or config.ego:
        raise IsthmusError(
            "Moments over a silo's batch and over the server's are not of one kind, nor are the places of seeds in "
            f"them: model.norm is {config.norm}, model.ego {str(config.ego).lower()}; use none and false."
        )
    if not run.agreed and (config.name == "pna" or run.positive_weight is not None):
        what = "PNA's degree constants" if config.name == "pna" else "the weights of positive labels"
        raise IsthmusError(f"The server has no statistics of its own for {what}; use train.statistics=agreed.")
    if run.schedule.draws:
        raise IsthmusError("A correction is of all silos' nodes; use schedule.silos=-1 (or 0) and schedule.share=1.")


def _loss(run: Run, graph: Stack, step: int) -> Tensor:
    """The mean loss of all seeds in a graph that the server holds."""
    config = run.model.config
    batcher = Batcher(graph, config.layers, False, "node", config.ego, Exchange(), run.batcher.degrees)
    rows = labelled(graph.y).nonzero().flatten()
    slots = torch.arange(len(rows), device=rows.device)
    silos = len(graph.silos)
    seeds = Seeds(rows, slots, (0, *[len(rows)] * silos), len(rows), torch.ones(silos))
    batch = batcher.whole(seeds, step)
    *_, h = layers(run, batch, Pass(True, run.seed, step))
    logits = run.model.readout(h[batch.ends[0]], batch.seed_rows)
    losses = run.objective.seed_losses(logits, batch.y, run.weights_of(batch), run.minority)
    mean: Tensor = losses.sum() / max(len(rows), 1)
    return mean
