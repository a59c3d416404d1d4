"""FedDEP's classifier on graphs that are mended with generated neighbours: every layer reads the mean of a node's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import CLASSIFIER, ModelSpec
from isthmus.engine.site import Site
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import Exchange, LiveExchange
from isthmus.methods.missing_neighbours import GENERATOR, FusedClassifier, GeneratorPass, NeighbourGenerator
from isthmus.nn.embedding_fused import FusedGNN
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch, Batcher


@dataclass(frozen=True)
class Generated(Exchange):
    """Nothing crosses: what a node misses is generated at home (equations for z_v and x_v in section 3.1 of the paper).

    In training each generated row is kept with probability ``rate`` (the Bernoulli sampler) and made from a noisy code;
    in scoring all are kept, and made without noise.
    """

    rate: float = 0.5
    name: ClassVar[str] = "generated"
    needs: ClassVar[Mapping[str, ModelSpec]] = {CLASSIFIER: FusedClassifier(), GENERATOR: NeighbourGenerator()}

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise IsthmusError(f"exchange.rate is {self.rate}; it must lie in 0..1.")

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, which generates rows for every pass."""
        return LiveGenerated(self, site)


class LiveGenerated(LiveExchange):
    """Generates rows when a pass begins, and hands each layer the mean of every node's."""

    spec: Generated

    def __init__(self, spec: Generated, site: Site) -> None:
        super().__init__(spec, site)
        self._passes: dict[int, GeneratorPass] = {}  # by the stack that they run on
        self._stack = site.stack
        self._mended: Tensor | None = None  # of the pass at hand
        site.federation.drawn.claimed_rate = spec.rate

    def score_begin(self, batcher: Batcher) -> None:
        """Generate along the edges that the scored split sees."""
        self._stack = batcher.stack

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """The embedded features of all rows of the pass, with what was generated for them."""
        net = self.site.net
        assert isinstance(net, FusedGNN)
        stack = self.site.train_stack if this.training else self._stack
        self._mended = self.mean_rows(self._pass_on(stack), batch.layout.held[0], this)
        return 0, net.embed_fused(batch.x, batch.x_rows, self._mended, batch.ego)

    def settle(self, layer: int, pre: Tensor, batch: Batch, this: Pass) -> Tensor:
        """The rows of a layer with what was generated for their nodes."""
        net, held = self.site.net, batch.layout.held
        assert isinstance(net, FusedGNN) and self._mended is not None
        whole = len(held[layer + 1]) == len(held[0])
        mended = self._mended if whole else self._mended[torch.searchsorted(held[0], held[layer + 1])]
        return net.fused(layer, pre, mended, batch.blocks[layer].targets)

    def mean_rows(self, on: GeneratorPass, at: Tensor, this: Pass) -> Tensor:
        """m_v: the mean of the rows that were generated for each of the stack rows ``at``; 0 without any."""
        every = on.encode(at, this.step)
        kept = on.believed(every, this.step, self.spec.rate if this.training else 1.0)
        made = on.make(every, kept, this.step, noisy=this.training)
        share = 1 / kept.sum(1).to(made.rows.dtype)[made.node]
        means = made.rows.new_zeros(len(at), made.rows.shape[1])
        return means.index_add(0, made.node, share[:, None] * made.rows)

    def _pass_on(self, stack: Stack) -> GeneratorPass:
        if id(stack) not in self._passes:
            self._passes[id(stack)] = GeneratorPass(self.site, stack, "generated")
        return self._passes[id(stack)]
