"""What crosses the boundary during a forward pass, and when: the base class of exchanges, and one without any rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import SILO, Kind
from isthmus.engine.forward import Beyond
from isthmus.engine.learner import Learned, ModelSpec
from isthmus.engine.site import Site
from isthmus.federation.statistics import agree_far_degrees, agree_far_ports
from isthmus.graph.features import Features, take
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.drift import Drift
from isthmus.nn.model import LAYERS, ModelConfig
from isthmus.nn.norm import Pass
from isthmus.sample.batcher import Batcher, Ground
from isthmus.sample.batches import Batch, Seeds
from isthmus.sample.neighbours import Sampler
from isthmus.wire.route import Asked


@dataclass(frozen=True)
class Exchange:
    """The options of an exchange; ``open`` gives the live one. No row crosses in this one.

    ``view``: which rows and edges a silo computes on, ``drop``, ``placeholder`` or ``halo`` (see ``graph/stack.py``).
    ``stepwise``: something crosses within steps, so that a schedule can say at which. ``needs``: models that a method
    with this exchange must have, by name, as they are by default.
    """

    name: ClassVar[str] = "nothing"
    stepwise: ClassVar[bool] = False
    whole_graphs: ClassVar[bool] = False  # it serves passes over whole graphs alone, without sampling
    sums: ClassVar[bool] = False  # rows are added up on their way, so that they can travel as shares
    holders: ClassVar[float] = 2  # among how many parties each row can then be divided, at most
    levels: ClassVar[tuple[str, ...]] = (SILO,)  # whose the rows may be that it works on
    needs: ClassVar[Mapping[str, ModelSpec]] = {}
    needs_all: ClassVar[str] = ""  # why it cannot go on without a member; empty: it can

    @property
    def leaves_out(self) -> bool:
        """Whether edges to nodes of absent silos are left out of its passes; else something stands in for these."""
        return False

    @property
    def view(self) -> str:
        """Which rows and edges a silo computes on."""
        return "drop"

    @property
    def reads_halo(self) -> bool:
        """Whether layers read rows of far ends."""
        return self.view != "drop"

    @property
    def sees(self) -> str:
        """What a score with this exchange sees: ``own`` edges, ``across`` the boundary, or ``trained``: rows it keeps.

        ``across`` only where owners compute the rows of far ends with the parameters that are scored.
        """
        return "trained" if self.view == "halo" else "own"

    @property
    def doubles(self) -> bool:
        """Whether both silos of a labelled cross edge learn from it, each by half; else its target's owner does."""
        return False

    def with_batches(self, batches: str) -> Exchange:
        """The form of this exchange for ``joint`` or ``local`` batches."""
        return self

    def check(self, model: ModelConfig) -> None:
        """Refuse a model that this exchange cannot serve, before any data is read."""

    def open(self, site: Site) -> LiveExchange:
        """The live exchange of one host; what must be agreed before the first step crosses here."""
        return LiveExchange(self, site)


class LiveExchange:
    """An exchange at work on one host; ``state`` is checkpointed."""

    def __init__(self, spec: Exchange, site: Site) -> None:
        self.spec, self.site = spec, site
        self.state: dict[str, Tensor] = {}

    @property
    def reads_halo(self) -> bool:
        """Whether layers read rows of far ends."""
        return self.spec.reads_halo

    def apart(self, stack: Stack) -> tuple[LiveExchange, Stack]:
        """The exchange of silos that do not cross at a step, and the stack that they then compute on."""
        return Exchange().open(self.site), stack.inner()

    def sampler(self, stack: Stack, fanout: Sequence[int]) -> Sampler:
        """The sampler of neighbours on ``stack``; here each silo draws among the edges that it knows."""
        return Sampler(stack, fanout, self.site.draws, self.site.model.directed)

    def ground(self, known: Ground, step: int, training: bool) -> Ground:
        """What a pass runs on: the graph that silos know, or one that is made of it (generated nodes live there)."""
        return known

    def begin(self) -> None:
        """Called before the first step of a phase, also of one that is resumed, whose ``state`` is loaded by then.

        It is the place to release what steps read from the first one on, unless ``state`` holds it already.
        """

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """How many layers were computed before the pass, and what the next one reads; here 0, and embedded features."""
        h = self.site.net.embed(batch.x, batch.x_rows, batch.ego)
        return 0, h if batch.feature_row is None else take(h, batch.feature_row)

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """What layer ``layer`` reads, from this host's rows ``h``; after the last layer, what ends of edges read."""
        return Beyond(h)

    def settle(self, layer: int, pre: Tensor, batch: Batch, this: Pass) -> Tensor:
        """The rows ``pre`` of a layer, as normalisation and activation are to read them (see moving averages)."""
        return pre

    def meet(self, ends: Tensor, batch: Batch) -> Tensor:
        """The rows of one end of the seed edges, as the head is to read them."""
        return ends

    def hand_in(self, model: Learned) -> None:
        """Called after the backward pass for each model that learns: how its gradients come to be its silo's."""

    def round_end(self) -> None:
        """Called after a round of local training, before parameters are synchronised."""

    def regroup(self) -> None:
        """Called when other silos are present than before, on all hosts that have one of them."""

    def welcome(self, back: Sequence[int]) -> None:
        """Called when silos are ``back`` after rounds that they missed: what they missed is to reach them."""

    def hand_over(self) -> dict[str, dict[str, Tensor]]:
        """Tensors for parts of the next phase, {axis: {name: tensor}}; called when this phase has ended."""
        return {}

    def score_begin(self, batcher: Batcher) -> None:
        """Called before parameters are scored; ``batcher`` makes batches of the graph that the scored split sees."""

    def notes(self) -> list[str]:
        """Notes for the report on what crossed; called by all hosts when a run has ended."""
        return []

    def figures(self) -> dict[str, Tensor]:
        """Numbers for the report, by name: one of each of my silos [my silos]; called when a run has ended."""
        return {}

    @property
    def drift(self) -> Drift | None:
        """How far the rows that this exchange keeps for a round have moved in it; None where none are kept."""
        return None

    def table_bytes(self) -> list[int]:
        """Bytes of the tables that each of my silos keeps between steps."""
        return [0] * len(self.site.wire.mine)


@dataclass(frozen=True)
class Nothing(Exchange):
    """Nothing crosses within a forward pass.

    ``halo`` says what stands in for far ends: ``drop`` leaves cross edges out; ``placeholder`` keeps them, the far end
    starts from the mean of the silo's own features and is computed from the edges that the silo knows.
    """

    halo: str = "drop"

    def __post_init__(self) -> None:
        if self.halo not in ("drop", "placeholder"):
            raise unknown("exchange.halo", self.halo, ("drop", "placeholder"))

    @property
    def view(self) -> str:
        """Far ends are left out, or placeholders stand in for them."""
        return self.halo


@dataclass(frozen=True)
class SumsAlone(Exchange):
    """An exchange by which layers get sums over neighbours elsewhere, and never a row of one."""

    stepwise: ClassVar[bool] = True
    sums: ClassVar[bool] = True

    @property
    def view(self) -> str:
        """Far ends are known, and never computed here."""
        return "halo"

    @property
    def reads_halo(self) -> bool:
        """Layers read no rows of far ends: only sums cross."""
        return False


def agree_on_far_ends(site: Site) -> None:
    """Owners tell what a centralised model would know of halo nodes: degrees, and ports where the model reads them."""
    agree_far_degrees(site.wire, site.stack, site.boundary)
    if site.model.ports:
        agree_far_ports(site.wire, site.federation.silos, site.federation.alone, site.stack)


def whole_graph(site: Site, batcher: Batcher) -> Batch:
    """A batch of all rows of my silos and no seeds, for rows that a silo computes to release, not to learn from."""
    site.draws.read_whole()
    none, mine = torch.zeros(0, dtype=torch.int64, device=site.device), len(site.wire.mine)
    return batcher.whole(Seeds(none, none, (0,) * (mine + 1), 0, torch.zeros(mine)), 0)


def tell_holders(site: Site, asked: Asked, rows: Tensor, layer: int, before: Tensor | None = None) -> Tensor:
    """Owners release the rows that were ``asked`` of them; returns my halo rows, in the order of the boundary.

    Rows of absent silos, which nobody can ask, are those of ``before`` (None: zeros).
    """
    leaving, arriving = asked.lots(site.wire.silos)
    told = site.wire.move(Kind.EMBEDDINGS, rows, leaving, arriving, layer)
    known = told.new_zeros(len(site.boundary.halo), told.shape[1]) if before is None else before.to(told.dtype)
    return known.index_copy(0, site.boundary.place[asked.halo], told)


def need_sums(model: ModelConfig) -> None:
    """Refuse a model whose aggregates hold maxima or minima, where rows are added up before anybody reads them."""
    layer = LAYERS[model.name](model.hidden, model.hidden, 0, True, **model.options)
    if layer.monoid is not None and set(layer.monoid.joins.values()) != {"sum"}:
        raise IsthmusError(
            f"{model.name} reads maxima of neighbours' rows, but rows are added up as whole numbers here, or as "
            "shares, of which only sums can be opened; choose gcn, gin, or sage with model.aggregate=mean, or leave "
            "fixed-point out of protect."
        )


def need_embedding(model: ModelConfig, otherwise: str) -> None:
    """Refuse a model whose first layer reads raw features."""
    if not model.embed:
        raise IsthmusError(f"{otherwise}; give the model an embedding, model.embed=true.")
