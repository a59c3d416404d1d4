"""How parameters are scored: as trained, along own edges, across the boundary, or on the merged graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.forward import forward
from isthmus.engine.layout import Layout, labels_taught, lay_out
from isthmus.engine.learner import CLASSIFIER, Learner
from isthmus.engine.optimisers import OPTIMISERS
from isthmus.engine.parameter_sets import ParameterSets
from isthmus.engine.site import Site
from isthmus.federation.federation import open_federation
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID
from isthmus.graph.merged import merge
from isthmus.methods.exchange.base import Exchange, LiveExchange, Nothing
from isthmus.methods.exchange.fwd_bwd_le import FreshRows, LayerWise, LocalLayerWise
from isthmus.sample.batches import Seeds
from isthmus.sample.order import Joint, Local, Pool, draw_batches, rule_of
from isthmus.train.passes import BatchMaker, Passes, make_maker, makers_by_split
from isthmus.wire.local import LocalWire


@dataclass(frozen=True)
class Scorer:
    """Scores the classifier on one layout; ``makers`` make the batches of each split, by the rule ``order``."""

    site: Site
    makers: Mapping[str, BatchMaker]
    order: Local | Joint

    @property
    def layout(self) -> Layout:
        """Where the scored seeds lie."""
        return self.site.layout

    def pool(self, split: int) -> Pool:
        """The seeds of a split that are scored."""
        return self.layout.pools[split].among(self.site.wire.members, self.site.wire.mine)

    def among_members(self) -> Self:
        """A scorer for the silos that are present, made of this one, which is for all silos."""
        makers = {split: maker.among_members(self.site) for split, maker in self.makers.items()}
        return replace(self, makers=makers)

    @torch.no_grad()
    def logits(self, split: int) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and stack index of every seed of a split on this host, grouped by silo."""
        site, name = self.site, SPLIT_NAMES[split]
        maker = self.makers[name]
        maker.exchange.score_begin(maker.batcher)
        logits, labels, index = [], [], []
        for number, seeds in enumerate(self._drawn(split)):
            work = maker.make(seeds, number, purpose=name)
            this = site.passing(training=False, step=number)
            logits.append(forward(site.net, work.exchange, work.batch, this))
            labels.append(work.batch.y)
            index.append(seeds.index)
        if not logits:
            empty = torch.zeros(0, dtype=torch.int64)
            return torch.zeros(0, len(site.schema.labels)), self.layout.labels[:0], empty
        order = torch.argsort(torch.cat(index), stable=True)
        return torch.cat(logits)[order], torch.cat(labels)[order], torch.cat(index)[order]

    def _drawn(self, split: int) -> Iterator[Seeds]:
        site, pool = self.site, self.layout.pools[split]
        return draw_batches(pool, site.wire, self.order, site.train.batch, site.seed, SPLIT_NAMES[split], 0)


def open_scorer(how: str, site: Site, exchange: LiveExchange, passes: Passes) -> Scorer:
    """The scorer of a phase, by one of the names in ``core.kinds.SCORES``."""
    across = passes.across
    if site.train.scoring == "all" and site.train.batch:
        site, across = _with_all_neighbours(how, site, exchange)
    if how == "global":
        return GlobalScorer.of(site)
    if how == "everywhere":
        return EverywhereScorer.of(site)
    openers = {"own": _own, "across": _across}
    scorer = openers[how](site, exchange, across) if how in openers else Scorer(site, across, site.layout.order)
    _note_unscored(scorer)
    return scorer


def _note_unscored(scorer: Scorer) -> None:
    """Count in notes the labelled edges of this host's silos that cannot be scored without their far ends."""
    federation = scorer.site.federation
    if federation.schema.target != "edge":
        return
    for split in (VALID, TEST):
        here, there = len(scorer.pool(split).index), labels_taught(federation.silos, split)
        if here < there:
            federation.note(
                f"Along own edges {here:,} of {there:,} labelled {SPLIT_NAMES[split]} edges were scored: the others "
                "leave their silo."
            )


def _with_all_neighbours(how: str, site: Site, exchange: LiveExchange) -> tuple[Site, Mapping[str, BatchMaker]]:
    """The site with passes over whole graphs, and what makes their batches by split, where no rows cross in them."""
    site = replace(site, train=replace(site.train, batch=0))
    if exchange.spec.view != "halo":
        return site, makers_by_split(site, exchange, site.stack)
    if how == "trained":
        raise IsthmusError(
            f"train.scoring=all reads all neighbours at once, but exchange={exchange.spec.name} brings rows for the "
            "neighbours that are drawn; use score=own or score=across, or train.scoring=drawn."
        )
    return site, {}


def _own(site: Site, exchange: LiveExchange, across: Mapping[str, BatchMaker]) -> Scorer:
    """Each silo scores with its own edges; labelled edges that leave it cannot be scored."""
    if isinstance(exchange.spec, Nothing):
        return Scorer(site, across, site.layout.order)
    if site.schema.target == "edge" or site.layout.view != "halo":
        layout = lay_out(
            site.federation, "drop", site.layout.order, False, site.device, site.dtype, site.model.ports > 0
        )
        site = replace(site, layout=layout)
    live = Exchange().open(site)
    return Scorer(site, makers_by_split(site, live, site.stack.inner()), site.layout.order)


def _across(site: Site, exchange: LiveExchange, across: Mapping[str, BatchMaker]) -> Scorer:
    """A scorer for which owners compute rows of far ends with the scored parameters, on samples drawn together."""
    joint = isinstance(exchange.spec, LayerWise) and not isinstance(exchange.spec, LocalLayerWise)
    if joint and across:
        return Scorer(site, across, site.layout.order)
    order = rule_of("joint")
    layout = lay_out(site.federation, "halo", order, False, site.device, site.dtype, site.model.ports > 0)
    site = replace(site, layout=layout, whole=site.train.batch == 0)
    FreshRows().check(site.model)
    live = FreshRows().open(site)
    return Scorer(site, makers_by_split(site, live, site.stack), order)


@dataclass(frozen=True)
class GlobalScorer(Scorer):
    """Scores every silo's parameters on the merged graph, on that silo's own seeds; in simulations only.

    ``live`` is the learner that is scored; ``owner`` [nodes or edges of the merged graph] whose seed each is.
    """

    live: Learner
    owner: Tensor
    counts: Mapping[int, Tensor]

    @classmethod
    def of(cls, site: Site) -> Self:
        """The scorer of a site: its silos merged into one graph, on a wire of its own that nothing counts."""
        if site.wire.hosts > 1:
            raise IsthmusError("A score on the merged graph needs all silos on one host; use score=across.")
        silos = site.federation.simulated
        whole = merge(silos)
        federation = open_federation(LocalWire(1), [whole], site.seed)
        federation.drawn.open([whole.n], site.train.floor)
        layout = lay_out(federation, "drop", rule_of("joint"), False, site.device, site.dtype, site.model.ports > 0)
        scored = site.learner.classifier
        module = scored.make().to(site.device, site.dtype)
        sets = ParameterSets(module, 1, 1)
        optimiser = OPTIMISERS["sgd"](sets.for_optimiser(), lr=1.0)
        copy = replace(scored, module=module, sets=sets, optimiser=optimiser)
        merged = replace(site, layout=layout, learner=Learner({CLASSIFIER: copy}), agreed=False)
        maker = make_maker(merged, Exchange().open(merged), layout.stack)
        makers = dict.fromkeys((SPLIT_NAMES[split] for split in (TRAIN, VALID, TEST)), maker)
        sizes = torch.tensor([silo.n for silo in silos])
        node_owner = torch.repeat_interleave(torch.arange(len(silos)), sizes).to(site.device)
        on_nodes = site.schema.target == "node"
        stack = layout.stack
        owner = node_owner if on_nodes else node_owner[stack.seed_end(torch.arange(len(stack.edge_keys)))]
        counts = {s: torch.bincount(owner[p.index], minlength=len(silos)).cpu() for s, p in layout.pools.items()}
        return cls(merged, makers, layout.order, site.learner, owner, counts)

    def pool(self, split: int) -> Pool:
        """The seeds of a split, grouped by the silo that owns them."""
        pool = self.layout.pools[split]
        order = torch.argsort(self.owner[pool.index], stable=True)
        ptr = (0, *self.counts[split].cumsum(0).tolist())
        return Pool(pool.index[order], pool.keys[order], ptr, self.counts[split])

    def logits(self, split: int) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and index of each silo's seeds by its own parameters, grouped by silo."""
        found = []
        for silo, (logits, y, index) in enumerate(self._by_silo(split)):
            mine = (self.owner[index] == silo).nonzero().flatten()
            found.append((logits[mine], y[mine], index[mine]))
        whole = [torch.cat(parts) for parts in zip(*found, strict=True)]
        return whole[0], whole[1], whole[2]

    def _by_silo(self, split: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Logits, labels and index of all seeds by the parameters of each silo; one pass where all these are equal."""
        live, copy = self.live.classifier.sets.everything(), self.site.learner.classifier.sets.everything()
        equal = all(bool((each == each[:1]).all()) for each in live.values())
        for silo in range(len(self.counts[split])):
            if silo == 0 or not equal:
                for name, tensor in copy.items():
                    tensor.copy_(live[name][min(silo, len(live[name]) - 1)][None])
                found = super().logits(split)
            yield found


@dataclass(frozen=True)
class EverywhereScorer(GlobalScorer):
    """Scores every silo's parameters on the merged graph, on the seeds of all silos; in simulations only.

    A silo's score is that of its parameters, so that the mean over silos is the mean over models.
    """

    def pool(self, split: int) -> Pool:
        """All seeds of a split, once for each silo."""
        pool, silos = self.layout.pools[split], len(self.counts[split])
        ptr = tuple(number * len(pool.index) for number in range(silos + 1))
        counts = torch.full((silos,), len(pool.index))
        return Pool(pool.index.repeat(silos), pool.keys.repeat(silos), ptr, counts)

    def logits(self, split: int) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, labels and index of all seeds by the parameters of each silo, one silo after the other."""
        whole = [torch.cat(parts) for parts in zip(*self._by_silo(split), strict=True)]
        return whole[0], whole[1], whole[2]
