"""FedSage+'s mended graphs: neighbours that a silo's generator makes are nodes of its graph, with features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.name_lists import some_of
from isthmus.engine.learner import ModelSpec
from isthmus.engine.site import Site
from isthmus.graph.features import Features
from isthmus.graph.mended import MendedStack, mend
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import Exchange, LiveExchange
from isthmus.methods.missing_neighbours import GENERATOR, Codes, GeneratorPass, NeighbourGenerator
from isthmus.nn.block import Rows
from isthmus.nn.layer import dense
from isthmus.nn.model import LAYERS, ModelConfig
from isthmus.nn.norm import Pass
from isthmus.sample.batcher import Ground
from isthmus.sample.batches import Batch

ROWS, BESIDE, NUMBER = "rows", "beside", "number"  # of generated nodes that are kept for a phase


@dataclass(frozen=True)
class Mended(Exchange):
    """Nothing crosses: layers compute on a silo's own graph with generated nodes, each linked to one node, both ways.

    A node gets as many as the generator believes that it misses, each kept with probability ``rate``. Without ``anew``
    they are made once, from noisy codes, when the phase begins: then the graph stays as it is, and is scored with too.
    With ``anew`` every pass of training makes them again, so that the generator learns from the task loss; in scores
    all are kept (none at a rate of 0), and made without noise.
    """

    rate: float = 1.0
    anew: bool = False
    name: ClassVar[str] = "mended"
    needs: ClassVar[Mapping[str, ModelSpec]] = {GENERATOR: NeighbourGenerator()}

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise IsthmusError(f"exchange.rate is {self.rate}; it must lie in 0..1.")

    def check(self, model: ModelConfig) -> None:
        """Refuse models that read what generated edges do not have: attributes, ports, a direction."""
        if LAYERS[model.name].uses_edges or model.directed:
            readers = [name for name, layer in LAYERS.items() if not layer.uses_edges]
            raise IsthmusError(
                "exchange=mended adds edges without attributes and direction, which this model reads; use "
                f"model.directed=false and one of: {', '.join(readers)}."
            )

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, which generates nodes."""
        if site.schema.target == "edge" or site.train.draws == "refill":
            raise IsthmusError(
                "exchange=mended adds generated nodes to graphs, which is for labels on nodes and for "
                "train.draws=distinct: draws of lists with generated entries promise nothing of real ones."
            )
        return LiveMended(self, site)


@dataclass(frozen=True)
class _GeneratedGraph:
    """A graph with generated nodes; ``features`` are those of some of them, given their ascending places."""

    graph: MendedStack
    ground: Ground
    features: Callable[[Tensor], Tensor]

    @cached_property
    def line(self) -> Tensor:
        """Of each row of the graph, its place among the generated ones (-1: it is a node of the silo)."""
        line = torch.full((self.graph.stack.rows,), -1, device=self.graph.added.device)
        line[self.graph.added] = torch.arange(len(self.graph.added), device=line.device)
        return line


class LiveMended(LiveExchange):
    """Makes the graph that each pass runs on, and gives generated nodes their features when a pass begins."""

    spec: Mended

    def __init__(self, spec: Mended, site: Site) -> None:
        super().__init__(spec, site)
        self._passes: dict[int, GeneratorPass] = {}  # by the stack that they run on
        self._kept: dict[int, _GeneratedGraph] = {}  # likewise, for a phase
        self._now: _GeneratedGraph | None = None  # of the pass at hand

    def ground(self, known: Ground, step: int, training: bool) -> Ground:
        """The mended graph of a pass."""
        stack = known.batcher.stack
        self._now = self._made_anew(stack, step, training) if self.spec.anew else self._made_once(stack)
        return self._now.ground

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """The embedded features of all rows of the pass, generated ones among them."""
        ready, h = super().enter(batch, this)
        assert self._now is not None
        held, stack, net = batch.layout.held[0], self._now.graph.stack, self.site.net
        line = self._now.line[held]
        here = (line >= 0).nonzero().flatten()
        rows = Rows(stack.segments(held[here]), stack.keys[held[here]])
        ego = None if batch.ego is None else batch.ego[here]
        embedded = net.embed(self._now.features(line[here]), rows, ego)
        return ready, dense(h).index_copy(0, here, dense(embedded))

    def _made_once(self, stack: Stack) -> _GeneratedGraph:
        """The graph that a phase keeps; its generated nodes are in ``state``, where they are made if need be."""
        if ROWS not in self.state:
            with torch.no_grad():
                on, every, wanted = self._believed(self.site.train_stack, 0, self.spec.rate)
                made = on.make(every, wanted, 0, noisy=True)
            self.state |= {ROWS: made.rows, BESIDE: made.node, NUMBER: made.number}
        if id(stack) not in self._kept:
            rows, graph = self.state[ROWS], mend(stack, self.state[BESIDE], self.state[NUMBER])
            self._kept[id(stack)] = self._generated(graph, lambda some: rows if len(some) == len(rows) else rows[some])
        return self._kept[id(stack)]

    def _made_anew(self, stack: Stack, step: int, training: bool) -> _GeneratedGraph:
        """The graph of one pass; features are made when it is known which rows the pass reads."""
        whole = not training and self.site.train.scoring == "all"
        rate = self.spec.rate if training else float(self.spec.rate > 0)
        on, every, wanted = self._believed(stack, step, rate, whole)
        beside, number = wanted.nonzero(as_tuple=True)

        def features(some: Tensor) -> Tensor:
            chosen = torch.zeros_like(wanted)
            chosen[beside[some], number[some]] = True
            return on.make(every, chosen, step, noisy=training).rows

        return self._generated(mend(stack, beside, number), features)

    def _believed(
        self, stack: Stack, step: int, rate: float, whole: bool = False
    ) -> tuple[GeneratorPass, Codes, Tensor]:
        """The generator on a graph, its codes of all nodes, and which neighbours it believes that they miss."""
        if id(stack) not in self._passes:
            self._passes[id(stack)] = GeneratorPass(self.site, stack, "mended")
        on = self._passes[id(stack)]
        every = on.encode(torch.arange(stack.rows, device=self.site.device), step, whole)
        return on, every, on.believed(every, step, rate)

    def _generated(self, graph: MendedStack, features: Callable[[Tensor], Tensor]) -> _GeneratedGraph:
        """A mended graph with what makes batches of it, and samples it."""
        site = self.site
        sampler = self.sampler(graph.stack, site.train.fanouts(site.model.layers))
        ground = Ground(site.batcher(graph.stack, self.reads_halo), sampler, graph.before)
        return _GeneratedGraph(graph, ground, features)

    def table_bytes(self) -> list[int]:
        """Bytes of the generated rows that each of my silos keeps for a phase."""
        rows = self.state.get(ROWS, torch.zeros(0, 0))
        size = rows.shape[1] * rows.element_size()
        return [int(each) * size for each in self._counts()[:, 0]][: len(self.site.wire.mine)]

    def figures(self) -> dict[str, Tensor]:
        """How many nodes were generated for those of each silo, where they are kept for a phase."""
        rows, some, nodes = self._counts().unbind(1)
        return {} if self.spec.anew else {"rows_a_node": rows / nodes, "nodes_with_rows": some / nodes}

    def notes(self) -> list[str]:
        """Which silos' graphs got no generated node at all."""
        wire, (rows, _, nodes) = self.site.wire, self._counts().unbind(1)
        bare = ((nodes > 0) & (rows == 0)).tolist()
        silos = [wire.party(silo) for silo, without in zip(wire.mine, bare, strict=False) if without]
        if not silos or self.spec.anew:
            return []
        return [
            f"Nothing was generated for nodes of {some_of(silos)}: the generator predicts fewer than half a missing "
            "neighbour for each of them."
        ]

    def _counts(self) -> Tensor:
        """Generated nodes that each of my silos keeps, its nodes that have some, and all its nodes: [my silos, 3]."""
        stack, beside = self.site.stack, self.state.get(BESIDE, torch.zeros(0, dtype=torch.int64))
        silos = len(stack.ptr) - 1
        rows, some = (torch.bincount(stack.silo_of(at), minlength=silos).cpu() for at in (beside, beside.unique()))
        return torch.stack([rows, some, torch.tensor(stack.ptr).diff()], 1)
