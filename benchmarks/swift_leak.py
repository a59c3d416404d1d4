"""What aggregates tell of the neighbours in them: features that a silo infers from all rows it was ever handed.

    python benchmarks/swift_leak.py --json docs/results/swift_leak.json
    python benchmarks/swift_leak.py --shares

A block model of 32 features between four silos, dealt out at random, a quarter or 70 % of the nodes to silo 0;
FedGNN-G, GraphSAGE of two layers, width 64. The adversary is silo 0. It knows the parameters of every step, which of
its cross edges it drew, and the mean of its own features. Before the first layer a row that it is handed is the sum of
W x_u + b over the neighbours u that it drew for a target, and W has more rows than columns: it knows sums of features,
of as many sets of neighbours as it has drawn. It takes the features nearest to the mean that fit all of them, as
`isthmus audit` does (there the server and all silos but one attack together, and know more). The error is squared, as a
share of that of the mean itself; a neighbour counts as exposed where it is below 1 %. What it is handed to be scored
would tell it more.

With --shares several readers attack the same neighbours, without protection and with shares: silo 0, and the server,
which reads the partials for silo 0 as they come from each silo. The server is told which nodes are in each partial, and
the mean; it takes a share for what it is, a number that is uniform over the field. "both": server and silo 0 together,
who have both shares of each of these partials.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from measure import SEED, WORDS, record
from torch import Tensor

from isthmus.audit.attributes import Prior
from isthmus.audit.sums import SumSolver
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.core.random import keys_of
from isthmus.data.blocks import blocks
from isthmus.engine.forward import Beyond
from isthmus.engine.settings import TrainConfig
from isthmus.engine.site import Site
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.features import Features
from isthmus.methods.catalogue import get
from isthmus.methods.exchange.swift import LiveServerAggregate, ServerAggregate
from isthmus.methods.exchange.swift_partials import Reduction
from isthmus.nn.model import MODELS
from isthmus.nn.norm import Pass
from isthmus.protect.base import Chain, Mechanism, Sealed
from isthmus.protect.field import PRIME, from_field
from isthmus.protect.fixed_point import FixedPoint
from isthmus.protect.releases import Releases
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.protect.shares import Shares
from isthmus.sample.batches import Batch
from isthmus.train.loop import step
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire

NODES, DEGREE, SILOS, WIDTH, BATCH = 1200, 8.0, 4, 64, 64
OWNED, FEWEST, STEPS = (0.25, 0.7), (1, 3), (1, 10, 100)
DRAWS = {"all": (-1, True), "5, once": (5, False), "5, anew": (5, True)}  # fanout, redraw
ROUNDING = 1e-9  # of the rows, as the adversary takes it
SILO, SERVER, BOTH = "silo 0", "server", "both"
CHAINS: dict[str, tuple[Mechanism, ...]] = {"none": (), "fixed-point,shares": (FixedPoint(), Shares())}
UNIFORM = PRIME * 2.0 ** -FixedPoint().fraction / 12**0.5  # standard deviation of a share, read as a number


@dataclass(frozen=True)
class Overheard(ServerAggregate):
    """The same exchange, with somebody who listens."""

    def open(self, site: Site) -> Listener:
        """The exchange at work, and what silo 0 hears of it."""
        return Listener(self, site)


class Post(Releases):
    """Keeps the partials before the first layer as they last came: its share of each, or numbers, to the server.

    ``opened``: as server and receivers read them together.
    """

    def book(self, parcel: Parcel, sealed: Sealed, chain: Chain) -> None:
        """Keep what the server gets of a parcel of partials."""
        super().book(parcel, sealed, chain)
        if parcel.kind == Kind.PARTIALS and parcel.layer == 0 and not parcel.by_server:
            first = from_field(sealed.rows[:, 0]) * 2.0 ** -FixedPoint().fraction if sealed.shares > 1 else sealed.rows
            self.came = first.double()
            self.opened = chain.open(parcel.kind, sealed.rows, parcel.rows).double()


class Listener(LiveServerAggregate):
    """Gives a solver what silo 0 was handed before the first layer, or what the server got for it."""

    reader = SILO
    reduction: Reduction

    def __init__(self, spec: ServerAggregate, site: Site) -> None:
        super().__init__(spec, site)
        stack = site.stack
        source, target = stack.ends
        self.neighbours = source[~stack.owned[source] & stack.owned[target] & (stack.silo_of(target) == 0)].unique()
        self.solver: SumSolver | None = None

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Listen at the first layer of training."""
        got, stack = super().beyond(layer, h, batch, this), self.site.stack
        if layer == 0 and this.training and got.partial is not None and self.reader != SILO:
            self._write_post()
        elif layer == 0 and this.training and got.partial is not None:
            edges = torch.cat([asked.halo for asked in batch.layout.asks])
            source, target = stack.ends[:, edges[stack.silo_of(stack.ends[1][edges]) == 0]]
            rows, place = target.unique(return_inverse=True)
            at = torch.searchsorted(batch.layout.held[1], rows)
            state = {name: part[at] for name, part in got.partial.items()}
            self._write(source, place, state)
        return got

    def _write(self, source: Tensor, place: Tensor, state: dict[str, Tensor]) -> None:
        handed = state["count"].flatten() > 0
        kept = handed[place]
        node, which = torch.searchsorted(self.neighbours, source[kept]), (handed.cumsum(0) - 1)[place[kept]]
        self._solve_with(node, which, state["sum"][handed].detach())

    def _reduction(self, layer: int, batch: Batch) -> Reduction:
        """Keep which rows are in the partials of the first layer."""
        reduction = super()._reduction(layer, batch)
        self.reduction = reduction if layer == 0 else self.reduction
        return reduction

    def _write_post(self) -> None:
        """Write what the server got of the partials for silo 0, and which nodes are in them."""
        stack, block, post = self.site.stack, self.reduction.block, self.site.wire.releases
        assert isinstance(post, Post)
        mine = stack.keys[stack.owned & (stack.silo_of(torch.arange(stack.rows)) == 0)]
        asked = torch.isin(stack.keys[self.reduction.relay.partials.row], mine)
        kept, order = asked[block.dst], torch.argsort(stack.keys[self.neighbours])
        keys = stack.keys[self.reduction.sources[block.src[kept]]]
        node = order[torch.searchsorted(stack.keys[self.neighbours][order], keys)]
        rows = post.came if self.reader == SERVER else post.opened
        self._solve_with(node, (asked.cumsum(0) - 1)[block.dst[kept]], rows[asked])

    def _solve_with(self, node: Tensor, which: Tensor, rows: Tensor) -> None:
        assert self.solver is not None
        parameters = self.site.learner.classifier.sets.parameters
        weight, bias = parameters["enter.weight"].detach()[0], parameters["enter.bias"].detach()[0]
        self.solver.add(node, which, rows, weight.T, bias)


def attack(
    draws: str, owned: float, fewest: int, steps: tuple[int, ...] = STEPS, protect: str = "none", reader: str = SILO
) -> list[dict[str, Any]]:
    graph = blocks(NODES, degree=DEGREE, seed=SEED)
    shuffled = torch.randperm(NODES, generator=torch.Generator().manual_seed(SEED))
    parts = split_graph(graph, torch.where(shuffled < owned * NODES, 0, 1 + shuffled % (SILOS - 1)), SILOS)
    method = replace(get("fedgnn-g").with_phase("train", exchange=Overheard(fewest=fewest)), protect=CHAINS[protect])
    config = replace(MODELS["sage"], hidden=WIDTH, layers=2)
    fanout, redraw = DRAWS[draws]
    train = TrainConfig(batch=BATCH, fanout=(fanout,), redraw=redraw, steps=steps[-1], lr=0.001)
    wire = LocalWire(SILOS, method.chain)
    wire.releases, wire.noise = Post(), Noise(secrets_from_seed(SEED, wire.mine))
    training = Training(open_federation(wire, parts), method, config, train, SEED, dtype=torch.float64)
    stage, progress, listener, stack = (
        training.stage,
        training.progress,
        training.stage.exchange,
        training.stage.site.stack,
    )
    assert isinstance(listener, Listener)
    listener.reader, noise = reader, UNIFORM if reader == SERVER and method.chain.shares else 0.0
    row_of = {key: row for row, key in enumerate(keys_of(graph.ids).tolist())}
    x, mine = graph.x.double(), (stack.owned & (stack.silo_of(torch.arange(stack.rows)) == 0))
    mean = x[[row_of[key] for key in stack.keys[mine].tolist()]].mean(0)
    solver = SumSolver(len(listener.neighbours), Prior(mean, torch.eye(len(mean), dtype=mean.dtype)))
    listener.solver, found = solver, []
    while progress.step < steps[-1]:
        for seeds in stage.epoch_seeds(progress):
            step(stage, progress, seeds)
            if progress.step in steps:
                seen = solver.times > 0
                known, guess = listener.neighbours[seen], solver.solve(noise, ROUNDING)[seen]
                true = x[[row_of[key] for key in stack.keys[known].tolist()]]
                error = (guess - true).square().sum(1) / (mean - true).square().sum(1).mean()
                exposed = float((error < 0.01).double().mean())
                told = {"known": len(known), "error": float(error.mean()), "exposed": exposed}
                found.append({"steps": progress.step, **told})
        progress.epoch += 1
    what = {"draws": draws, "owned": owned, "fewest": fewest, "protect": protect, "reader": reader}
    return [{**what, **each} for each in found]


def both_readers() -> list[dict[str, Any]]:
    """The attacks of the server and of silo 0, before and after shares, and of both together."""
    cases = product(OWNED, DRAWS, CHAINS, (SERVER, SILO, BOTH))
    return [line for owned, draws, *who in cases for line in attack(draws, owned, 1, STEPS[:2], *who)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shares", action="store_true", help="the server, silo 0 and both, before and after shares")
    options = parser.parse_args()
    cases = product(OWNED, DRAWS, FEWEST)
    lines = both_readers() if options.shares else [line for each in cases for line in attack(each[1], each[0], each[2])]
    print("silo 0  drawn    fewest  protect            reader  steps  neighbours  error  exposed")
    for line in lines:
        case = f"{100 * line['owned']:4.0f} %  {line['draws']:8} {line['fewest']:6}  {line['protect']:18}"
        got = f"{line['known']:11} {line['error']:6.2f} {100 * line['exposed']:6.0f} %"
        print(f"{case} {line['reader']:6} {line['steps']:6} {got}")
    record(options.json, WORDS[torch.get_num_threads()], lines=lines)


if __name__ == "__main__":
    main()
