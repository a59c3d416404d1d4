"""What FedDEP's encoders make of nodes: kept at home, or told to the other silos as prototypes, means of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import Kind
from isthmus.core.name_lists import some_of
from isthmus.core.random import stream
from isthmus.engine.forward import layers
from isthmus.engine.site import Site
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import TRAIN
from isthmus.graph.silo import nobody
from isthmus.methods.exchange.base import Exchange, LiveExchange
from isthmus.methods.exchange.clusters import Groups, group
from isthmus.methods.missing_neighbours import Encoder
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Seeds
from isthmus.sample.neighbours import Sampler

# What is handed over to the objective of the next phase.
OWN, OF, FAR, WHOSE, MERGED, ROWS = "own", "of", "far", "whose", "merged", "rows"


@dataclass(frozen=True)
class Embeddings(Exchange):
    """Nothing crosses; when the phase has ended, the rows of each silo's nodes are handed over to the next, at home.

    The rows are those of the phase's model after its last layer, at unit length.
    """

    name: ClassVar[str] = "embeddings"

    def open(self, site: Site) -> LiveExchange:
        """The live exchange."""
        return LiveEmbeddings(self, site)


@dataclass(frozen=True)
class Prototypes(Embeddings):
    """Silos share the means of at most ``clusters`` groups of their nodes' rows, once, when the phase has ended.

    The rows are those of the phase's model after its last layer, at unit length. No mean is over fewer than
    ``smallest`` nodes: smaller groups are merged into their nearest, and a silo with fewer nodes tells nothing.
    """

    clusters: int = 10
    smallest: int = 5
    name: ClassVar[str] = "prototypes"

    def __post_init__(self) -> None:
        if self.clusters < 1 or self.smallest < 1:
            raise IsthmusError(
                f"exchange.clusters is {self.clusters} and exchange.smallest {self.smallest}; both must be 1 or more."
            )

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, by which nothing crosses before the phase ends."""
        return LivePrototypes(self, site)


class LiveEmbeddings(LiveExchange):
    """Knows the rows that the phase's model makes of my silos' nodes."""

    def hand_over(self) -> dict[str, dict[str, Tensor]]:
        """``rows`` [stack rows, width] of my silos, for the objective of the next phase."""
        return {"objective": {ROWS: self.embeddings()}}

    def embeddings(self) -> Tensor:
        """The rows that stand for each node of my silos, of unit length: [stack rows, width].

        Every silo's encoder has another scale, by which the losses of the generator would be larger or smaller.
        """
        return F.normalize(self.rows(), eps=1e-12)

    @property
    def reads_features(self) -> bool:
        """Whether features stand for nodes, since the encoder has depth 0."""
        spec = self.site.learner.models[self.site.of].spec
        return isinstance(spec, Encoder) and not spec.depth

    @torch.no_grad()
    def rows(self) -> Tensor:
        """The encoder's last rows of each node of my silos, or with depth 0 its features: [stack rows, width]."""
        site, stack = self.site, self.site.stack
        if self.reads_features:
            return stack.x.dense() if isinstance(stack.x, SparseRows) else stack.x
        every = torch.arange(stack.rows, device=site.device)
        seeds = Seeds(every, torch.zeros_like(every), stack.ptr, len(every), torch.zeros(len(stack.ptr) - 1))
        batcher = site.batcher(stack, False)
        if site.train.batch:
            sampler = Sampler(stack, site.train.fanouts(site.model.layers), site.draws, site.model.directed)
            batch = batcher.sampled(seeds, sampler.sample(every, 0, "prototypes"), 0)
        else:
            batch = batcher.whole(seeds, 0)
        *_, h = layers(site.net, self, batch, Pass(False, site.seed))
        return h[batch.ends[0]]


class LivePrototypes(LiveEmbeddings):
    """Groups the nodes of each silo and tells the other silos the means."""

    spec: Prototypes

    def hand_over(self) -> dict[str, dict[str, Tensor]]:
        """Prototypes for the objective of the next phase.

        ``own`` [groups, width] of my silos, one after the other; ``of`` [stack rows] the group of each node among them
        (-1: none); ``far`` [prototypes, width] that other silos sent, ``whose`` [prototypes, 2] which of my silos got
        it, by its place here, and the number of the silo that sent it; ``merged`` [my silos] how many groups were too
        small to stay.
        """
        groups = self._groups()
        got = self._received(groups)
        first = torch.tensor([0, *(len(each.means) for each in groups)]).cumsum(0)
        of = [torch.where(each.of < 0, each.of, each.of + first[i]) for i, each in enumerate(groups)]
        own = torch.cat([each.means for each in groups])
        ends = [(i, sender) for (sender, i), rows in got.items() for _ in range(len(rows))]
        return {
            "objective": {
                OWN: own,
                OF: torch.cat(of).to(self.site.device),
                FAR: torch.cat([own[:0], *got.values()]),
                WHOSE: torch.tensor(ends, dtype=torch.int64, device=self.site.device).reshape(-1, 2),
                MERGED: torch.tensor([each.merged for each in groups], device=self.site.device),
            }
        }

    def _groups(self) -> list[Groups]:
        """The groups of each of my silos; notes say where they are fewer than was asked for."""
        site, stack, found, few = self.site, self.site.stack, list[Groups](), list[str]()
        rows = self.embeddings().split([b - a for a, b in zip(stack.ptr, stack.ptr[1:], strict=False)])
        for silo, mine in zip(site.federation.silos or [nobody(site.schema)], rows, strict=True):
            key = stream(site.seed, "prototypes", silo.number)
            made = group(mine, self.spec.clusters, self.spec.smallest, key)
            if silo.n and len(made.means) < self.spec.clusters:
                few.append(f"{silo.name} has {len(made.means)} of {silo.n:,} nodes")
            found.append(made)
        if few:
            site.federation.note(
                f"There are silos with fewer than {self.spec.clusters} prototypes, since none may stand for fewer than "
                f"{self.spec.smallest} nodes: {some_of(few)}."
            )
        self._note_untrained(found)
        return found

    def _note_untrained(self, groups: list[Groups]) -> None:
        """Say which silos' prototypes come from an encoder that had no label to learn from."""
        site = self.site
        if self.reads_features:
            return
        labels = site.layout.pools[TRAIN].counts
        idle = [
            silo.name
            for silo, made in zip(site.federation.silos, groups, strict=False)
            if len(made.means) and not labels[silo.number]
        ]
        if idle:
            site.federation.note(
                f"Prototypes of {some_of(idle)} are those of an encoder that was never trained, for want of training "
                "labels."
            )

    def _received(self, groups: list[Groups]) -> dict[tuple[int, int], Tensor]:
        """Prototypes of other silos, by their sender and by the place of the silo of mine that got them."""
        wire = self.site.wire
        letters = {
            (mine, other): each.means
            for mine, each in zip(wire.mine, groups, strict=False)
            for other in range(wire.silos)
            if other != mine and len(each.means)
        }
        got: dict[tuple[int, int], Tensor] = {}
        for (sender, receiver), rows in wire.post(Kind.PROTOTYPES, letters).items():
            if rows.dim() != 2 or rows.shape[1] != groups[0].means.shape[1] or not bool(rows.isfinite().all()):
                raise PeerError(f"{wire.party(sender)} sent prototypes that are no rows of finite numbers like mine.")
            got[sender, wire.mine.index(receiver)] = rows.to(groups[0].means)
        return got
