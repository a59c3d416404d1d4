"""Recording for an audit what aggregates through the server and prototypes are made of, and how messages are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from isthmus.audit.attributes import Prior
from isthmus.audit.journal import GroupedNodes, Journal
from isthmus.audit.known_parameters import of_others
from isthmus.audit.sums import SumSolver
from isthmus.engine.site import Site
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import Exchange, LiveExchange
from isthmus.methods.exchange.clusters import Groups
from isthmus.methods.exchange.prototypes import LivePrototypes, Prototypes
from isthmus.methods.exchange.swift import LiveServerAggregate, ServerAggregate
from isthmus.methods.exchange.swift_partials import Reduction, crossing_parts
from isthmus.methods.method import Method
from isthmus.nn.block import Block, Rows
from isthmus.nn.layer import Layer
from isthmus.nn.model import GNN
from isthmus.sample.batches import Batch

MOST = 1500  # nodes of a silo that are solved for together


@dataclass(frozen=True)
class Overheard(ServerAggregate):
    """Swift-FedGNN's exchange in a replay, which also writes to the journal which rows are in each aggregate."""

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, which writes to the journal of the wire."""
        return LiveOverheard(self, site)


class LiveOverheard(LiveServerAggregate):
    """Aggregates through the server at work, with each reduction written to the journal."""

    def _reduction(self, layer: int, batch: Batch) -> Reduction:
        """The reduction of a layer, which the journal gets before its rows leave."""
        reduction, journal = super()._reduction(layer, batch), self.site.wire.releases
        if layer == 0 and isinstance(journal, Journal):
            journal.reduction = reduction
        return reduction


@dataclass(frozen=True)
class OverheardPrototypes(Prototypes):
    """Prototypes, in whose journal it is written down which rows and nodes they are means of."""

    def open(self, site: Site) -> LiveExchange:
        """The live exchange, which tells the wire's journal."""
        return LiveOverheardPrototypes(self, site)


class LiveOverheardPrototypes(LivePrototypes):
    """Prototypes that tell the journal, before they leave, what they are means of: to score attacks."""

    def _groups(self) -> list[Groups]:
        """The groups of each of my silos."""
        groups, journal = super()._groups(), self.site.wire.releases
        if isinstance(journal, Journal):
            journal.grouped = GroupedNodes(self.embeddings().cpu(), torch.cat([each.of for each in groups]))
        return groups


LISTENED: dict[type[Exchange], type[Exchange]] = {ServerAggregate: Overheard, Prototypes: OverheardPrototypes}


def overheard(method: Method) -> Method:
    """The method with somebody who listens to its aggregates through the server, and to what prototypes are made of."""
    return replace(method, phases=tuple(replace(each, exchange=_listened(each.exchange)) for each in method.phases))


def _listened(exchange: Exchange) -> Exchange:
    """The exchange with somebody who listens, where there is somebody for its kind."""
    kind = LISTENED.get(type(exchange))
    return kind(**{f.name: getattr(exchange, f.name) for f in fields(exchange)}) if kind else exchange


def linear_messages(net: GNN) -> Tensor | None:
    """The matrix A of the first layer's message h -> h A, for every parameter set: [sets, hidden, w].

    None where messages are not linear in rows. Where messages are scaled by degrees, A is that of degree 0.
    """
    layer, hidden = net.layers[0], net.config.hidden
    if not isinstance(layer, Layer) or layer.monoid is None or "sum" not in layer.monoid.joins:
        return None
    like = next(layer.parameters())
    sets = len(like)
    count, none = sets * hidden, torch.zeros(0, dtype=torch.int64, device=like.device)
    rows = Rows(tuple(range(0, count + 1, hidden)), torch.zeros(count, dtype=torch.int64, device=like.device))
    attr = torch.zeros(0, net.schema.edge_features).to(like) if net.schema.edge_features else None
    degree = torch.zeros(count, dtype=torch.int64, device=like.device)
    block = Block(none, none, rows, rows, attr=attr, ports=none.reshape(0, 1).expand(0, 2), src_degree=degree)
    unit = torch.eye(hidden).repeat(sets, 1).to(like)
    message = layer.message(layer.prepare(unit, block), block, net.edges(0, unit, block))
    return None if message.rows is None else message.rows.detach().reshape(sets, hidden, -1)


@dataclass(frozen=True)
class Attacked:
    """A silo whose sums are attacked: stack rows of the nodes that are solved for, ascending, and the solver."""

    silo: int
    nodes: Tensor
    solver: SumSolver


def choose(stack: Stack, silo: int, seed: int) -> Tensor:
    """Owned stack rows of a silo that are in sums for nodes elsewhere, at most ``MOST``, ascending.

    Targets elsewhere are drawn at random and all their neighbours in the silo taken, so that sums hold no other node.
    """
    inside = (stack.silo_of(stack.ends[1]) == silo) & stack.owned[stack.ends[0]] & ~stack.owned[stack.ends[1]]
    source, target = stack.ends[:, inside]
    far, at = target.unique(return_inverse=True)
    rank = torch.randperm(len(far), generator=torch.Generator().manual_seed(seed))[at]
    order = torch.argsort(rank, stable=True)
    chosen: list[int] = []
    seen: set[int] = set()
    for group in source[order].split(torch.bincount(rank, minlength=len(far)).tolist()):
        new = set(group.tolist()) - seen
        if len(seen) + len(new) > MOST and seen:
            break
        seen |= new
        chosen += sorted(new)
    return torch.tensor(sorted(chosen), dtype=torch.int64)


class SumListener:
    """Hands partial aggregates before the first layer, as they leave, to the solvers of the attacked silos."""

    def __init__(self, site: Site, attacked: list[Attacked], scaled: bool) -> None:
        self.site, self.attacked, self.scaled = site, attacked, scaled

    @torch.no_grad()
    def __call__(self, rows: Tensor, silo: Tensor, reduction: Reduction) -> None:
        """Give partials ``rows`` [p, w], which silos ``silo`` [p] sent, to the solvers."""
        net, block = self.site.net, reduction.block
        maps, monoid = linear_messages(net), net.monoid(0)
        if maps is None or net.enter is None:
            return
        parts = crossing_parts(monoid)
        width = rows.shape[1] // len(parts)
        rows = rows[:, parts.index("sum") * width :][:, :width] - self._edge_parts(net, reduction)
        slopes = torch.bmm(net.enter.weight, maps).transpose(1, 2).cpu()  # [sets, w, f]
        bias = maps.new_zeros(len(maps), maps.shape[1]) if net.enter.bias is None else net.enter.bias
        offsets = torch.bmm(bias[:, None], maps).squeeze(1).cpu()
        slopes, offsets = of_others(slopes), of_others(offsets)
        member, which = reduction.sources[block.src].cpu(), block.dst.cpu()
        for each in self.attacked:
            place = each.silo if len(slopes) > 1 else 0
            self._tell(each, rows, silo, member, which, slopes[place], offsets[place])

    def _tell(
        self, each: Attacked, rows: Tensor, silo: Tensor, member: Tensor, which: Tensor, slope: Tensor, offset: Tensor
    ) -> None:
        """Give the solver of one silo its sums that hold none but the nodes that are solved for."""
        known = torch.isin(member, each.nodes)
        strangers = torch.zeros(len(rows)).index_add_(0, which, (~known).float())
        usable = (silo == each.silo) & (strangers == 0)
        kept = usable[which]
        if not bool(kept.any()):
            return
        number = usable.cumsum(0) - 1
        node = torch.searchsorted(each.nodes, member[kept])
        if self.scaled:
            slope, offset = torch.cat([slope, offset[:, None]], 1), torch.zeros_like(offset)
        each.solver.add(node, number[which[kept]], rows[usable], slope, offset)

    def _edge_parts(self, net: GNN, reduction: Reduction) -> Tensor | float:
        """The part of each sum that comes from edge attributes and ports, which both ends of an edge know: [p, w]."""
        if net.encoder is None:
            return 0.0
        nothing = torch.zeros(len(reduction.sources), net.config.hidden).to(next(net.parameters()))
        return net.partial(0, nothing, reduction.block)["sum"].cpu()


def scaled_prior(features: Tensor, scales: Tensor | None) -> Prior:
    """The prior of (s x, s) of nodes with features x and scales s, or without scales of x."""
    rows = features if scales is None else torch.cat([scales[:, None] * features, scales[:, None]], 1)
    return Prior.of(len(rows), rows.sum(0), rows.T @ rows)
