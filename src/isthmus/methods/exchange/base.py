"""What crosses the boundary during a forward pass, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from isthmus.errors import IsthmusError, unknown
from isthmus.graph.agree import agree_far_degrees, agree_far_ports
from isthmus.graph.features import Features, take
from isthmus.graph.stack import Stack
from isthmus.nn.monoid import State
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch, Batcher, Seeds
from isthmus.sample.neighbours import Sampler
from isthmus.wire.ledger import Kind
from isthmus.wire.route import Asked

if TYPE_CHECKING:
    from isthmus.state import Run


@dataclass(frozen=True)
class Beyond:
    """What a layer gets from beyond the boundary: source rows with the halo filled, or partial aggregates to merge."""

    rows: Features
    partial: State | None = None


@dataclass
class Exchange:
    """No row crosses; the parent of every exchange. ``state`` is checkpointed."""

    state: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    stepwise: ClassVar[bool] = False  # something crosses at steps, so that a schedule can say at which
    trains_across: ClassVar[bool] = True  # it does within the passes of silos that learn

    @property
    def view(self) -> str:
        """Which rows and edges a silo computes on: ``drop``, ``placeholder`` or ``halo`` (see ``graph/stack.py``)."""
        return "drop"

    @property
    def reads_halo(self) -> bool:
        """Whether layers read rows of far ends."""
        return self.view != "drop"

    def apart(self, stack: Stack) -> tuple[Exchange, Stack]:
        """What takes its place for silos that do not cross at a step, and the edges that they then compute along."""
        return Exchange(), stack.inner()

    @property
    def doubles(self) -> bool:
        """Whether both silos of a labelled cross edge learn from it, each by half; else its target's owner does."""
        return False

    def with_batches(self, batches: str) -> Exchange:
        """The form of this exchange for ``joint`` or ``local`` batches."""
        return self

    def begin(self, run: Run) -> None:
        """Before the first step."""

    def sampler(self, run: Run, stack: Stack, fanout: Sequence[int], directed: bool) -> Sampler:
        """Who expands which node; here each silo expands what it knows by itself."""
        return Sampler(stack, fanout, run.draws, directed)

    def enter(self, batch: Batch, run: Run, this: Pass) -> tuple[int, Features]:
        """How many layers are ready when a pass begins, and what the next one reads: here none, embedded features."""
        h = run.model.embed(batch.x, batch.x_rows, batch.ego)
        return 0, h if batch.feature_row is None else take(h, batch.feature_row)

    def beyond(self, layer: int, h: Features, batch: Batch, run: Run, this: Pass) -> Beyond:
        """Before layer ``layer`` reads its source rows (and after the last layer, before both ends of an edge meet)."""
        return Beyond(h)

    def settle(self, layer: int, pre: Tensor, batch: Batch, run: Run, this: Pass) -> Tensor:
        """After the layer, before normalisation and activation (moving averages live here)."""
        return pre

    def meet(self, ends: Tensor, batch: Batch) -> Tensor:
        """The rows of one end of the seed edges, before both ends meet in the head."""
        return ends

    def step_end(self, run: Run) -> None:
        """After a training step."""

    def round_end(self, run: Run) -> None:
        """After a round of local training, before parameters are synchronised."""

    def score_begin(self, run: Run, split: str) -> None:
        """Before parameters are scored on a split."""

    def notes(self, run: Run) -> list[str]:
        """What the reader of a report should know of what crossed; called by all hosts, when a run has ended."""
        return []

    def table_bytes(self, run: Run) -> list[int]:
        """What each of my silos keeps in tables between steps, in bytes."""
        return [0] * len(run.wire.mine)


def agree_on_far_ends(run: Run) -> None:
    """Owners tell what a centralised model would know of halo nodes: degrees, and ports where the model reads them."""
    agree_far_degrees(run.wire, run.stack, run.boundary)
    if run.model.config.ports:
        agree_far_ports(run.wire, run.federation.silos, run.federation.alone, run.stack)


def whole_graph(run: Run, batcher: Batcher) -> Batch:
    """Every row of my silos, for no seed: what a silo computes to tell others, and not to learn from."""
    none, mine = torch.zeros(0, dtype=torch.int64, device=run.device), len(run.wire.mine)
    return batcher.whole(Seeds(none, none, (0,) * (mine + 1), 0, torch.zeros(mine)), run.step)


def tell_holders(run: Run, asked: Asked, rows: Tensor, layer: int) -> Tensor:
    """Owners release the rows that were ``asked`` of them; what arrives of the halo, in the order of the boundary."""
    leaving, arriving = asked.lots(run.wire.silos)
    told = run.wire.move(Kind.EMBEDDINGS, rows, leaving, arriving, layer)
    return torch.empty_like(told).index_copy_(0, run.boundary.place[asked.halo], told)


def need_embedding(run: Run, otherwise: str) -> None:
    """Refuse a model whose first layer reads raw features."""
    if not run.model.config.embed:
        raise IsthmusError(f"{otherwise}; give the model an embedding, model.embed=true.")


@dataclass
class Nothing(Exchange):
    """The nothing of this axis.

    ``halo`` says what stands in for far ends: ``drop`` leaves cross edges out; ``placeholder`` keeps them, the far end
    starts from the mean of the silo's own features and is computed from the edges that the silo knows.
    """

    halo: str = "drop"

    def __post_init__(self) -> None:
        if self.halo not in ("drop", "placeholder"):
            raise unknown("exchange.halo", self.halo, ("drop", "placeholder"))

    @property
    def view(self) -> str:
        """As ``halo`` says."""
        return self.halo
