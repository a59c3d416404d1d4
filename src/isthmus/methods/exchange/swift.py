"""Swift-FedGNN's exchange: neighbours beyond the boundary are added up by their owners, then by the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.exchange.base import Beyond, Exchange, need_embedding
from isthmus.exchange.errands import Errand, columns_of, make_errand, spread, told
from isthmus.graph.agree import agree_far_ports
from isthmus.graph.boundary import build_edge_boundary
from isthmus.graph.features import Features, take
from isthmus.graph.stack import Stack
from isthmus.nn.layer import Layer
from isthmus.nn.monoid import Monoid
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch
from isthmus.sample.neighbours import Sampler
from isthmus.sample.partial import AskedEdges, PartialSampler, neighbours
from isthmus.wire.ledger import Kind
from isthmus.wire.relay import NEUTRAL

if TYPE_CHECKING:
    from isthmus.state import Run

REDRAWN = (
    "Aggregates of one node were over different draws of its neighbours, at different steps or hops: whoever puts them "
    "together gets single rows out of them. train.redraw=false with one train.fanout draws the same ones always; noise "
    "helps too."
)
SOLVABLE = "as many targets as neighbours elsewhere or more: putting aggregates together, single rows come out of them."


@dataclass
class ServerAggregate(Exchange):
    r"""a_v = merge of a_v(own silo) and a_v(beyond),  a_v(beyond) = merge over silos B of reduce_{u in N(v), B} m_uv.

    Owners compute the rows of sampled neighbours u, and reduce their messages for each target v to one partial
    aggregate. The server merges the partials of all silos, and the silo that trains receives one row for each target,
    from the server. With ``adjoint`` its derivative returns the same way, so that with all neighbours a step is that of
    the whole graph; without, what arrives is a constant.

    ``reuse``: a silo keeps what it was handed last for each of its nodes, and merges it, as a constant, at steps at
    which it does not cross; else it then has its own neighbours alone.
    ``fewest``: an aggregate of fewer neighbours is not handed out, and the target makes do with those of its own silo.
    With 1, a target with a single sampled neighbour beyond the boundary receives that neighbour's message as it is.
    """

    adjoint: bool = True
    fewest: int = 1
    reuse: bool = False
    stepwise: ClassVar[bool] = True
    _whole: Errand | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.fewest < 1:
            raise IsthmusError(f"exchange.fewest is {self.fewest}; it must be at least 1.")

    @property
    def view(self) -> str:
        """Far ends are known, and never computed here."""
        return "halo"

    @property
    def reads_halo(self) -> bool:
        """Nobody's row crosses."""
        return False

    def begin(self, run: Run) -> None:
        """Refuse what cannot be merged; agree on the ports of cross edges, which owners encode for others' targets."""
        if run.schedule.scores_across or (run.schedule.ever and self.trains_across):
            _check(run)
        if bool(run.federation.alone.any()):
            run.federation.note("Cross edges that only one of two silos lists are in no aggregate.")
        if run.model.config.ports:
            agree_far_ports(run.wire, run.federation.silos, run.federation.alone, run.stack)
        sampler = run.ways.across["train"].sampler
        if run.crosses_whole and isinstance(sampler, PartialSampler):  # now, or a resumed run would ask again
            self._whole = make_errand([sampler.everything()], run, self.fewest)
        shape = len(run.wire.mine), 2
        self.state["handed"] = torch.zeros(shape, dtype=torch.int64, device=run.device)  # aggregates; of one neighbour

    def sampler(self, run: Run, stack: Stack, fanout: Sequence[int], directed: bool) -> Sampler:
        """Expand the sample across the boundary; the silo that asks never sees a far row."""
        boundary = build_edge_boundary(run.wire, run.boundary, stack, run.federation.alone.to(run.device))
        return PartialSampler(stack, fanout, run.draws, run.wire, boundary)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """Reduce what others ask for, let the server merge, and read what it hands out."""
        if layer == len(batch.blocks):
            return Beyond(h)
        errand = self._errand(layer, batch, run)
        monoid = run.model.monoid(layer)
        mine = take(h, torch.searchsorted(batch.layout.held[layer], errand.sources))
        partial = run.model.partial(layer, mine, errand.block)
        rows = torch.cat([partial[part] for part in told(monoid)], 1)
        self._count(errand, run)
        columns = columns_of(monoid, rows.shape[1])
        merged = run.wire.merge(rows if self.adjoint else rows.detach(), errand.relay, columns, layer)
        known = torch.where(errand.near >= self.fewest, errand.held, 0).to(merged)[:, None]
        held = batch.layout.held[layer + 1]
        at = torch.searchsorted(held, errand.target)
        handed = torch.cat([merged, known], 1)
        if self.reuse and this.training:
            self._keep(layer, errand.target, handed.detach(), monoid, run)
        return Beyond(h, spread(handed, at, len(held), monoid))

    def apart(self, stack: Stack) -> tuple[Exchange, Stack]:
        """Own neighbours, and where they are kept the last aggregates of the others."""
        return Remembered(self) if self.reuse else Exchange(), stack.inner()

    def _keep(self, layer: int, target: Tensor, handed: Tensor, monoid: Monoid, run: Run) -> None:
        """Write what was handed out into the table, which is neutral wherever nothing ever was."""
        table = self.state.get(f"kept-{layer}")
        if table is None:
            neutral = [(NEUTRAL[column.join], column.width) for column in columns_of(monoid, handed.shape[1] - 1)]
            row = torch.cat([handed.new_full((width,), value) for value, width in [*neutral, (0.0, 1)]])
            self.state[f"kept-{layer}"] = table = row.repeat(int(run.stack.owned.sum()), 1)
        table[run.stack.own_line[target]] = handed

    def notes(self, run: Run) -> list[str]:
        """How many of the aggregates that silos received were of a single neighbour, and what sets of them tell."""
        told = run.wire.share(Kind.METRICS, torch.cat([self.state["handed"], self._sets(run)], 1).cpu())
        (every, alone), sets = told[:, :2].sum(0).tolist(), told[:, 2:]
        noisy = run.wire.protect.constrain(Kind.PARTIALS, torch.zeros(1, 1)) is not None
        notes = []
        if self.fewest > 1:
            notes.append(f"Aggregates of fewer than {self.fewest} neighbours beyond the boundary were not handed out.")
        elif alone:
            notes.append(
                f"{alone:,} of {every:,} aggregates that silos received, in training and to be scored, were of one "
                f"neighbour, and so that neighbour's own row{', but for the noise' if noisy else ''}; "
                "exchange.fewest=2 withholds these."
            )
        if every and not noisy and self.trains_across and run.schedule.ever:
            notes += self._put_together(run, sets)
        return notes

    def _put_together(self, run: Run, sets: Tensor) -> list[str]:
        """What silos can solve for; ``sets`` [silos, 2]: their targets, and neighbours elsewhere."""
        fanouts = set(run.train.fanouts(run.model.config.layers))
        if fanouts != {-1} and (run.train.redraw or len(fanouts) > 1):
            return [REDRAWN]
        names = [run.wire.party(i) for i, (targets, near) in enumerate(sets.tolist()) if targets >= near > 0]
        return [f"{', '.join(names)}: {SOLVABLE}"] if names else []

    def _sets(self, run: Run) -> Tensor:
        """Of each of my silos the targets that aggregates are handed out for, and their neighbours elsewhere."""
        sampler, stack = run.ways.across["train"].sampler, run.stack
        assert isinstance(sampler, PartialSampler)
        source, target = stack.ends[:, sampler.boundary.halo]
        targets, at = target.unique(return_inverse=True)
        open_ = targets[neighbours(at, source, len(targets), stack.rows) >= self.fewest]
        sizes = [torch.bincount(stack.silo_of(rows), minlength=len(run.wire.mine)) for rows in (open_, source.unique())]
        return torch.stack(sizes, 1)

    def table_bytes(self, run: Run) -> list[int]:
        """What is kept of the last aggregates of a silo's own nodes."""
        tables = [table for name, table in self.state.items() if name.startswith("kept-")]
        return [
            silo.n * sum(table.shape[1] * table.element_size() for table in tables) for silo in run.federation.silos
        ]

    def _count(self, errand: Errand, run: Run) -> None:
        """How many aggregates my silos have been handed, and how many of them are of one neighbour."""
        place = run.stack.silo_of(errand.target)
        marks = torch.stack([errand.near >= self.fewest, (errand.near == 1) & (self.fewest == 1)], 1)
        self.state["handed"].index_add_(0, place, marks.long())

    def _errand(self, layer: int, batch: Batch, run: Run) -> Errand:
        """Layer l merges the cross edges that were asked for in the first (layers - l) hops; in full, all."""
        layout = batch.layout
        if not layout.asks:
            assert self._whole is not None
            return self._whole
        layer = layer if layout.trimmed else 0
        asks = [asked for asked in layout.asks[: len(batch.blocks) - layer] if isinstance(asked, AskedEdges)]
        return make_errand(asks, run, self.fewest)


@dataclass
class Remembered(Exchange):
    """For silos that do not cross: the last aggregate of each target's neighbours elsewhere, as a constant."""

    of: ServerAggregate

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """Merge what was handed out when the target last crossed."""
        table = self.of.state.get(f"kept-{layer}")
        if table is None:
            return Beyond(h)
        rows = table[run.stack.own_line[batch.layout.held[layer + 1]]]
        return Beyond(h, spread(rows, torch.arange(len(rows), device=rows.device), len(rows), run.model.monoid(layer)))


def _check(run: Run) -> None:
    """Refuse models that have no aggregate to merge, and labels that need more than aggregates."""
    need_embedding(run, "An aggregate of one neighbour would be its raw features")
    layer, config = run.model.layers[0], run.model.config
    if isinstance(layer, Layer) and layer.monoid is None:
        raise layer.refusal()
    if config.directed or config.edge_updates:
        what = "a directed model has two aggregates at each node" if config.directed else "edge updates read both ends"
        raise IsthmusError(
            f"Aggregates through the server are of incoming edges alone, but {what}; use model.directed=false and "
            "model.edge_updates=false, or exchange rows, as sync-sgd+fwd-bwd-le does."
        )
    if run.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, whose ends meet as rows, and aggregates tell nothing of a single far end; use "
            "sync-sgd+fwd-bwd-le or ce-fedgnn."
        )
