"""HiFGL's secret message passing: every node is a device, and layers read sums of neighbours' rows, never a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import DEVICE, Kind
from isthmus.core.parcel import Origin, Parcel
from isthmus.engine.forward import Beyond
from isthmus.engine.learner import Learned
from isthmus.engine.site import Site
from isthmus.federation.surroundings import build_surroundings
from isthmus.graph.features import Features
from isthmus.graph.stack import Stack
from isthmus.methods.exchange.base import LiveExchange, SumsAlone, need_embedding, need_sums
from isthmus.nn.model import LAYERS, ModelConfig
from isthmus.nn.norm import Pass
from isthmus.sample.batcher import Batcher, Ground
from isthmus.sample.batches import Batch
from isthmus.sample.neighbours import Sampler
from isthmus.wire.level import DeviceLevel
from isthmus.wire.wire import Wire


@dataclass(frozen=True)
class SecretMessages(SumsAlone):
    r"""a_u = sum over neighbours v of m_v,  m_v = what device v sends along all of its edges (GCN: W h_v / sqrt(d_v)).

    The source scales its row before it is sent, the target scales the sum: neither learns the other's degree. Rows are
    added up as they travel, sealed; with shares nobody reads one. Derivatives return by the transposed edges, likewise.

    ``fewest``: a sum over fewer neighbours (parallel edges count once, self-loops not) is not opened, and counts as no
    neighbours; with 1, a device with a single neighbour, and its silo, read that neighbour's row. ``padded_to``: how
    many second shares a silo sees for each sum, with shares of zero among them (0: the next power of two, so that the
    silo learns this much of a degree); silos that hold further shares see as many.
    """

    fewest: int = 1
    padded_to: int = 0
    name: ClassVar[str] = "hifgl"
    whole_graphs: ClassVar[bool] = True
    levels: ClassVar[tuple[str, ...]] = (DEVICE,)
    holders: ClassVar[float] = math.inf  # a device, and as many silos as there are
    needs_all: ClassVar[str] = "shares of an absent device's row cannot be added up"

    def __post_init__(self) -> None:
        for name, least in (("fewest", 1), ("padded_to", 0)):
            if getattr(self, name) < least:
                raise IsthmusError(f"exchange.{name} is {getattr(self, name)}; it must be at least {least}.")

    @property
    def sees(self) -> str:
        """``across``: all neighbours are in the sums, computed with the parameters that are scored."""
        return "across"

    def check(self, model: ModelConfig) -> None:
        """Refuse models whose aggregate is not a sum of what each neighbour sends along all of its edges."""
        need_embedding(model, "A sum over one neighbour would be its raw features")
        layer = LAYERS[model.name](model.hidden, model.hidden, 0, True, **model.options)
        if layer.monoid is None:
            raise IsthmusError(
                f"{model.name} cannot read sums of neighbours' rows: {layer.unmergeable}. Choose gcn, sage or gin."
            )
        need_sums(model)
        if model.norm == "batch":
            raise IsthmusError(
                "model.norm=batch has silos read moments of their devices' rows at every layer, which belong to the "
                "devices alone here; use model.norm=layer or model.norm=none."
            )
        if model.directed or model.edge_updates:
            raise IsthmusError(
                "Secret messages are sums over incoming edges, the same along all edges of a node; use "
                "model.directed=false and model.edge_updates=false."
            )

    def open(self, site: Site) -> LiveExchange:
        """The live exchange; lanes between all devices are laid now."""
        return LiveSecretMessages(self, site)


class LiveSecretMessages(LiveExchange):
    """Secret message passing at work on one host."""

    spec: SecretMessages

    def __init__(self, spec: SecretMessages, site: Site) -> None:
        super().__init__(spec, site)
        spec.check(site.model)
        self.level = _device_level(site)
        _check_graph(site)
        check_holders(site.wire)
        self._around = build_surroundings(site.wire, site.boundary, site.stack, spec.fewest, spec.padded_to)
        self._counts = self._around.inward.ptr.diff()
        self._ground: dict[int, tuple[Batcher, Batcher]] = {}  # with edges, and without

    def sampler(self, stack: Stack, fanout: Sequence[int]) -> Sampler:
        """A sampler that is never asked: passes run over whole graphs."""
        return Sampler(stack, fanout, self.site.draws, self.site.model.directed)

    def ground(self, known: Ground, step: int, training: bool) -> Ground:
        """The graph without edges, since all neighbours come from beyond a device."""
        key = id(known.batcher)  # kept beside it, so that no other batcher gets this number
        if key not in self._ground:
            self._ground[key] = known.batcher, self.site.batcher(known.batcher.stack.bare(), reads_halo=False)
        return Ground(self._ground[key][1], known.sampler)

    def enter(self, batch: Batch, this: Pass) -> tuple[int, Features]:
        """Devices get the parameters of their silo, then embed their features."""
        sets = self.site.learner.models[self.site.of].sets
        self._between(Kind.PARAMETERS, sets.flat(sets.names()).detach(), down=True)
        return super().enter(batch, this)

    def beyond(self, layer: int, h: Features, batch: Batch, this: Pass) -> Beyond:
        """Own rows, and the sums of all neighbours' messages."""
        rows = self.site.net.messages(layer, h, batch.blocks[layer])
        sums = self.site.wire.sum_neighbours(rows, self._around, layer)
        parts = {"sum": sums, "count": self._counts[:, None].to(sums)}
        return Beyond(h, {name: parts[name] for name in self.site.net.monoid(layer).joins})

    def hand_in(self, model: Learned) -> None:
        """Devices hand in their gradients, which their silo reads as sums."""
        model.sets.load_gradients(self._between(Kind.GRADIENTS, model.sets.flat_gradients(), down=False))

    def _between(self, kind: Kind, rows: Tensor, down: bool) -> Tensor:
        """Pass one row of each silo to its devices, or one of every device, added up, to its silo."""
        wire = self.site.wire
        mine = np.array(wire.mine, dtype=np.int64)
        traffic = self.level.handed_down(mine) if down else self.level.handed_in(mine, np.ones_like(mine))
        whose = torch.tensor(wire.mine, dtype=torch.int64)
        return wire.leave_alone(Parcel(kind, rows, Origin.whole(whose), traffic, derived=True), lambda x: x)

    def notes(self) -> list[str]:
        """Notes on sums over a single neighbour, and on those that were not opened."""
        marks = [self._fewer(2), self._fewer(self.spec.fewest), self._fewer(math.inf)]
        mine = torch.stack([*marks, torch.ones_like(marks[0])], 1)
        told = self.site.wire.share(Kind.METRICS, self._by_silo(mine.long()))
        single, shut, every, _ = told.sum(0).tolist()
        wire = self.site.wire
        small = wire.protect.shortfalls({wire.party(silo): n for silo, n in enumerate(told[:, 3].tolist())})
        if self.spec.fewest > 1:
            return [
                f"Sums over fewer than {self.spec.fewest} neighbours were not opened: those of {shut:,} of {every:,} "
                "devices.",
                *small,
            ]
        if not single:
            return small
        return [
            f"{single:,} of {every:,} devices have a single neighbour: the sum over it is its row, which the device "
            "and its silo read. exchange.fewest=2 does not open these; noise helps too "
            "(protect=gaussian,fixed-point,shares,masks).",
            *small,
        ]

    def _fewer(self, than: float) -> Tensor:
        """Which owned rows have neighbours, along incoming or outgoing edges, but fewer of these than so many."""
        stack = self.site.stack
        degrees = (stack.in_degree[stack.owned], stack.out_degree[stack.owned])
        lanes = (self._around.inward, self._around.outward)
        inward, outward = ((d > 0) & (each.others < than) for d, each in zip(degrees, lanes, strict=True))
        return inward | outward

    def _by_silo(self, marks: Tensor) -> Tensor:
        """Marks of this host's owned rows [owned, k], added up by silo: [my silos, k]."""
        stack = self.site.stack
        place = stack.silo_of(stack.owned.nonzero().flatten())
        sums = torch.zeros(len(stack.ptr) - 1, marks.shape[1], dtype=torch.int64, device=marks.device)
        return sums.index_add_(0, place, marks)[: len(self.site.wire.mine)].cpu()

    def figures(self) -> dict[str, Tensor]:
        """How many devices of each silo have a single neighbour, and how many it has."""
        single = self._fewer(2).long()
        sums = self._by_silo(torch.stack([torch.ones_like(single), single], 1))
        return {"devices": sums[:, 0], "devices with one neighbour": sums[:, 1]}


def _device_level(site: Site) -> DeviceLevel:
    level = site.wire.level
    if not isinstance(level, DeviceLevel):
        raise IsthmusError("exchange=hifgl is for devices that each own a node; use data.level=device.")
    return level


def check_holders(wire: Wire) -> None:
    """Refuse to divide rows among more parties than there are, and among silos on several hosts."""
    threshold = wire.protect.holders - 1
    if threshold > wire.silos:
        raise IsthmusError(
            f"protect.threshold={threshold} divides each row among the device of a neighbour and {threshold} silos, "
            f"but there are {wire.silos}; use protect.threshold={wire.silos} or less, or more silos."
        )
    if threshold > 1 and wire.hosts > 1:
        raise IsthmusError(
            f"protect.threshold={threshold} has silos hold shares for devices of other silos, which is simulated in "
            "one process alone; use --hosts 1 or protect.threshold=1."
        )


def _check_graph(site: Site) -> None:
    """Refuse labels and features on edges that are read, and edges that only one of two silos lists."""
    if site.schema.target == "edge":
        raise IsthmusError(
            "Labels lie on edges, whose ends meet as rows, and secret messages open sums alone; use "
            "sync-sgd+fwd-bwd-le."
        )
    if LAYERS[site.model.name].uses_edges and site.schema.edge_features:
        raise IsthmusError(
            f"{site.model.name} reads the {site.schema.edge_features} features of each edge, so that a device would "
            "send another row along each; use gcn or sage, or data without features on edges."
        )
    if bool(site.federation.alone.any()):
        raise IsthmusError(
            "Some cross edges are listed by one of two silos alone; a device answers only those that it lists itself. "
            "Use data.edges=mutual."
        )
