"""Swift-FedGNN's exchange: neighbours beyond the boundary are added up by their owners, then by the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.engine.forward import Beyond
from isthmus.engine.site import Site
from isthmus.federation.boundary import build_edge_boundary
from isthmus.federation.statistics import agree_far_ports
from isthmus.graph.features import Features, take
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import Exchange, LiveExchange, SumsAlone, need_embedding
from isthmus.methods.exchange.swift_partials import (
    Reduction,
    as_state,
    columns_of,
    crossing_parts,
    reduce_for_others,
)
from isthmus.nn.model import LAYERS, ModelConfig
from isthmus.nn.monoid import Monoid
from isthmus.nn.norm import Pass
from isthmus.protect.events import GaussianNoise
from isthmus.sample.batches import Batch
from isthmus.sample.neighbours import Sampler
from isthmus.sample.partial_sums import AskedEdges, PartialSampler, neighbours
from isthmus.wire.relay import NEUTRAL

REDRAWN = (
    "Aggregates of one node were over different draws of its neighbours, at different steps or hops: whoever puts them "
    "together gets single rows out of them. train.redraw=false with one train.fanout draws the same ones always; noise "
    "helps too."
)
OF_ONE_SILO = (
    "{:,} of {:,} aggregates that silos opened, in training and to be scored, have parts of one silo alone: the sum "
    "that was opened is that silo's part. Shares hide it from the server all the same."
)
BESIDE = (
    "The server ran in the process of {}, so that both shares of partials for these lie in one place: shares hide none "
    "of them there. A host more than there are silos is the server's own."
)
SOLVABLE = "as many targets as neighbours elsewhere or more: putting aggregates together, single rows come out of them."


@dataclass(frozen=True)
class ServerAggregate(SumsAlone):
    r"""a_v = merge of a_v(own silo) and a_v(beyond),  a_v(beyond) = merge over silos B of reduce_{u in N(v), B} m_uv.

    Owners compute the rows of sampled neighbours u, and reduce their messages for each target v to one partial
    aggregate. The server merges the partials of all silos, and the silo that trains receives one row for each target,
    from the server. With ``adjoint`` its derivative returns the same way, so that with all neighbours a step is that of
    the whole graph; without, what arrives is a constant.

    ``reuse``: a silo keeps what it was handed last for each of its nodes, and merges it, as a constant, at steps at
    which it does not cross; without ``reuse`` it then has its own neighbours alone.
    ``fewest``: an aggregate of fewer neighbours is not handed out, and the target makes do with those of its own silo.
    With 1, a target with a single sampled neighbour beyond the boundary receives that neighbour's message as it is.
    """

    adjoint: bool = True
    fewest: int = 1
    reuse: bool = False
    name: ClassVar[str] = "swift"

    def __post_init__(self) -> None:
        if self.fewest < 1:
            raise IsthmusError(f"exchange.fewest is {self.fewest}; it must be at least 1.")

    @property
    def leaves_out(self) -> bool:
        """Edges to nodes of absent silos are left out: nobody has the parts of sums that these would make."""
        return True

    def check(self, model: ModelConfig) -> None:
        """Refuse models that have no aggregate to merge."""
        need_embedding(model, "An aggregate of one neighbour would be its raw features")
        layer = LAYERS[model.name](model.hidden, model.hidden, 0, True, **model.options)
        if layer.monoid is None:
            raise layer.refusal()
        if model.directed or model.edge_updates:
            what = (
                "a directed model has two aggregates at each node" if model.directed else "edge updates read both ends"
            )
            raise IsthmusError(
                f"Aggregates through the server are of incoming edges alone, but {what}; use model.directed=false and "
                "model.edge_updates=false, or exchange rows, as sync-sgd+fwd-bwd-le does."
            )

    def open(self, site: Site) -> LiveExchange:
        """The live exchange; ports of cross edges are agreed on now, since owners encode them for others' targets."""
        return LiveServerAggregate(self, site)


class LiveServerAggregate(LiveExchange):
    """Aggregates through the server at work.

    ``handed`` [my silos, 3] counts aggregates that were handed out, those of one neighbour, and those handed out in
    training; ``opened`` [my silos, 1] with shares those to which one silo alone had added. ``kept-l`` are the last ones
    of each owned row, where they are reused.
    """

    spec: ServerAggregate

    def __init__(self, spec: ServerAggregate, site: Site) -> None:
        super().__init__(spec, site)
        spec.check(site.model)
        _check_labels(site)
        if bool(site.federation.alone.any()):
            site.federation.note("Cross edges that only one of two silos lists are in no aggregate.")
        if site.model.ports:
            agree_far_ports(site.wire, site.federation.silos, site.federation.alone, site.stack)
        alone = site.federation.alone.to(site.device)
        self._edges = build_edge_boundary(site.wire, site.boundary, site.stack, alone)
        self._all: Reduction | None = None
        if site.whole:  # now, or a resumed run would ask again
            self._all = self._ask_for_all()
        self.state["handed"] = torch.zeros(len(site.wire.mine), 3, dtype=torch.int64, device=site.device)
        if site.wire.protect.shares:
            self.state["opened"] = torch.zeros_like(self.state["handed"][:, :1])

    def _ask_for_all(self) -> Reduction:
        every = PartialSampler(self.site.stack, (), self.site.draws, self.site.wire, self._edges).everything()
        return reduce_for_others([every], self.site, self.spec.fewest)

    def regroup(self) -> None:
        """Ask for all cross edges between the silos that are present now, where passes run over whole graphs."""
        self._all = None if self._all is None else self._ask_for_all()

    def sampler(self, stack: Stack, fanout: Sequence[int]) -> Sampler:
        """Expand the sample across the boundary; the silo that asks never sees a far row."""
        return PartialSampler(stack, fanout, self.site.draws, self.site.wire, self._edges)

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Own rows, and the aggregates of neighbours elsewhere that the server merged from all silos' partials."""
        if layer == len(batch.blocks):
            return Beyond(h)
        reduction = self._reduction(layer, batch)
        monoid = self.site.net.monoid(layer)
        mine = take(h, torch.searchsorted(batch.layout.held[layer], reduction.sources))
        partial = self.site.net.partial(layer, mine, reduction.block)
        rows = torch.cat([partial[part] for part in crossing_parts(monoid)], 1)
        self._count(reduction, this.training)
        columns = columns_of(monoid, rows.shape[1])
        merged = self.site.wire.merge(rows if self.spec.adjoint else rows.detach(), reduction.relay, columns, layer)
        known = torch.where(reduction.near >= self.spec.fewest, reduction.held, 0).to(merged)[:, None]
        held = batch.layout.held[layer + 1]
        at = torch.searchsorted(held, reduction.target)
        handed = torch.cat([merged, known], 1)
        if self.spec.reuse and this.training:
            self._keep(layer, reduction.target, handed.detach(), monoid)
        return Beyond(h, as_state(handed, at, len(held), monoid))

    def apart(self, stack: Stack) -> tuple[LiveExchange, Stack]:
        """Own neighbours, and with ``reuse`` the last aggregates of neighbours elsewhere."""
        return Remembered(self) if self.spec.reuse else Exchange().open(self.site), stack.inner()

    def _keep(self, layer: int, target: Tensor, handed: Tensor, monoid: Monoid) -> None:
        """Write what was handed out into the table, which is neutral for targets that were never handed anything."""
        table = self.state.get(f"kept-{layer}")
        if table is None:
            neutral = [(NEUTRAL[column.join], column.width) for column in columns_of(monoid, handed.shape[1] - 1)]
            row = torch.cat([handed.new_full((width,), value) for value, width in [*neutral, (0.0, 1)]])
            self.state[f"kept-{layer}"] = table = row.repeat(int(self.site.stack.owned.sum()), 1)
        table[self.site.stack.own_line[target]] = handed

    def notes(self) -> list[str]:
        """Notes on aggregates of one neighbour, and on sets of aggregates from which single rows can be solved."""
        site = self.site
        counted = [self.state["handed"], self._sets(), *([self.state["opened"]] if "opened" in self.state else [])]
        told = site.wire.share(Kind.METRICS, torch.cat(counted, 1).cpu())
        (every, alone, learnt_from), sets = told[:, :3].sum(0).tolist(), told[:, 3:5]
        treatments = site.wire.releases.events.get(Kind.PARTIALS, [])
        noisy = any(isinstance(event, GaussianNoise) for events in treatments for event in events)
        notes = []
        if self.spec.fewest > 1:
            notes.append(
                f"Aggregates of fewer than {self.spec.fewest} neighbours beyond the boundary were not handed out."
            )
        elif alone:
            notes.append(
                f"{alone:,} of {every:,} aggregates that silos received, in training and to be scored, were of one "
                f"neighbour, and so that neighbour's own row{', but for the noise' if noisy else ''}; "
                "exchange.fewest=2 withholds these."
            )
        of_one_silo = int(told[:, 5:].sum())
        if of_one_silo:
            notes.append(OF_ONE_SILO.format(of_one_silo, every))
        beside = site.wire.members.shared_with_server if site.wire.hosts > 1 and site.wire.protect.shares else ()
        if beside:
            notes.append(BESIDE.format(", ".join(map(site.wire.party, beside))))
        if learnt_from and not noisy:
            notes += self._put_together(sets)
        return notes

    def _put_together(self, sets: Tensor) -> list[str]:
        """Notes on silos that can solve for single rows; ``sets`` [silos, 2]: targets, and neighbours elsewhere."""
        fanouts = set(self.site.train.fanouts(self.site.model.layers))
        if fanouts != {-1} and (self.site.train.redraw or len(fanouts) > 1):
            return [REDRAWN]
        names = [self.site.wire.party(i) for i, (targets, near) in enumerate(sets.tolist()) if targets >= near > 0]
        return [f"{', '.join(names)}: {SOLVABLE}"] if names else []

    def _sets(self) -> Tensor:
        """For each of my silos how many targets get aggregates, and how many neighbours are elsewhere: [mine, 2]."""
        stack = self.site.stack
        source, target = stack.ends[:, self._edges.halo]
        targets, at = target.unique(return_inverse=True)
        open_ = targets[neighbours(at, source, len(targets), stack.rows) >= self.spec.fewest]
        sizes = [
            torch.bincount(stack.silo_of(rows), minlength=len(self.site.wire.mine)) for rows in (open_, source.unique())
        ]
        return torch.stack(sizes, 1)

    def table_bytes(self) -> list[int]:
        """Bytes of the last aggregates that are kept for a silo's own nodes."""
        tables = [table for name, table in self.state.items() if name.startswith("kept-")]
        return [
            silo.n * sum(table.shape[1] * table.element_size() for table in tables)
            for silo in self.site.federation.silos
        ]

    def _count(self, reduction: Reduction, training: bool) -> None:
        """Count the aggregates that my silos are handed, and those of them that are of one neighbour."""
        place = self.site.stack.silo_of(reduction.target)
        handed = reduction.near >= self.spec.fewest
        marks = torch.stack([handed, (reduction.near == 1) & (self.spec.fewest == 1), handed & training], 1)
        self.state["handed"].index_add_(0, place, marks.long())
        straight = reduction.relay.straight
        if straight is not None:
            silos = torch.bincount(straight.due.at, minlength=len(handed))
            self.state["opened"].index_add_(0, place, (handed & (silos == 1)).long()[:, None])

    def _reduction(self, layer: int, batch: Batch) -> Reduction:
        """The reduction of layer l: cross edges asked for in the first (layers - l) hops; in a full batch all."""
        layout = batch.layout
        if not layout.asks:
            assert self._all is not None
            return self._all
        layer = layer if layout.trimmed else 0
        asks = [asked for asked in layout.asks[: len(batch.blocks) - layer] if isinstance(asked, AskedEdges)]
        return reduce_for_others(asks, self.site, self.spec.fewest)


class Remembered(LiveExchange):
    """For silos that do not cross: the last aggregate of each target's neighbours elsewhere, as a constant."""

    def __init__(self, of: LiveServerAggregate) -> None:
        super().__init__(Exchange(), of.site)
        self.of = of

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Merge what each target was handed when its silo last crossed."""
        table, site = self.of.state.get(f"kept-{layer}"), self.site
        if table is None:
            return Beyond(h)
        rows = table[site.stack.own_line[batch.layout.held[layer + 1]]]
        at = torch.arange(len(rows), device=rows.device)
        return Beyond(h, as_state(rows, at, len(rows), site.net.monoid(layer)))


def _check_labels(site: Site) -> None:
    """Refuse labels on edges, which need single rows of far ends."""
    if site.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, whose ends meet as rows, and aggregates tell nothing of a single far end; use "
            "sync-sgd+fwd-bwd-le or ce-fedgnn."
        )
