"""The journal of a replayed run: everything of single nodes, or of a few, that left, as an adversary keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.audit.history import History
from isthmus.audit.known_parameters import known_from, known_now
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.methods.exchange.swift_partials import Reduction
from isthmus.protect.base import Chain, Sealed
from isthmus.protect.releases import Releases
from isthmus.train.training import Training

DEEP = 3  # blocks of releases of rows behind layers, whose every view takes a search of its own
_FIRST = ("enter.", "ego.")  # parameters that rows before the first layer are made by

SumsLeft = Callable[[Tensor, Tensor, Reduction], None]  # sealed partials, who sent each, what they are sums of


@dataclass
class Totals:
    """Rows that belong to stack rows: the sum of all that ever left, and how many these were."""

    rows: Tensor  # [stack rows, w]
    counts: Tensor  # [stack rows]

    def add(self, at: Tensor, rows: Tensor) -> None:
        """Add rows that left at one time; a row that is listed for several receivers has left once."""
        self.rows[at] = self.rows[at] + rows.double()
        self.counts[at] = self.counts[at] + 1

    def add_each(self, at: Tensor, rows: Tensor) -> None:
        """Add rows that left at one time, each for one receiver; stack rows may be listed several times."""
        self.rows.index_add_(0, at, rows.double())
        self.counts.index_add_(0, at, torch.ones(len(at), dtype=torch.float64))

    @property
    def mean(self) -> Tensor:
        """The mean of what left of each stack row; zeros where nothing did."""
        return self.rows / self.counts.clamp(min=1)[:, None]


@dataclass(frozen=True)
class GroupedNodes:
    """What silos made prototypes of: the row of each node, and its group among those of its silo (-1: none)."""

    rows: Tensor  # [stack rows, w]
    of: Tensor  # [stack rows]


class Journal(Releases):
    """The releases of a run, and beside them what an adversary keeps of them.

    ``histories``: by layer, all releases of the rows of the ``watched`` stack rows, with the parameters of the time.
    ``embeddings`` and ``adjoints``: by layer, means over all releases of every row. ``aggregates``: sums of features
    with the stack rows they belong to, by hop. Partial aggregates before the first layer go to ``on_sums``.
    ``prototypes``: by silo, as they left; ``grouped`` is what they are means of, to score attacks by.
    ``equations``: of rows before the first layer, which are linear in features, so many numbers are kept of a node.
    """

    def __init__(self, watched: Tensor, equations: int = 1024) -> None:
        super().__init__()
        self.watched, self.equations = watched, equations
        self.histories: dict[int, History] = {}
        self.embeddings: dict[int, Totals] = {}
        self.adjoints: dict[int, Totals] = {}
        self.aggregates: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # silo, stack row, row
        self.on_sums: SumsLeft | None = None
        self.prototypes: dict[int, Tensor] = {}
        self.grouped: GroupedNodes | None = None
        self.reduction: Reduction | None = None  # what the next partials before the first layer are sums of
        self._training: Training | None = None
        self._sent: dict[int, Tensor] = {}  # by silo, parameters that have left since all silos' were last known

    def attach(self, training: Training) -> None:
        """Set the run whose parameters the adversary knows; what left while it was opened was made with these."""
        self._training = training
        self._settle(self._known())

    def finish(self) -> None:
        """End the journal: for parameters that were never sent, the mean of the other silos' stands in."""
        assert self._training is not None
        sets = self._training.learner.classifier.sets
        self._settle(known_now(sets, lambda name: False))

    def open(self, rows: int) -> None:
        """Begin an empty book of ``rows`` rows."""
        super().open(rows)
        self._place = torch.full((rows,), -1)
        self._place[self.watched] = torch.arange(len(self.watched))

    def book(self, parcel: Parcel, sealed: Sealed, chain: Chain) -> None:
        """Record a parcel that leaves, and keep in the journal what an adversary would keep of it."""
        super().book(parcel, sealed, chain)
        if parcel.by_server:
            return
        if parcel.kind == Kind.PARAMETERS and self._training is not None:
            self._hear(parcel, sealed.rows.detach().cpu(), chain.weighs(parcel.kind))
        elif parcel.kind == Kind.PROTOTYPES and len(parcel.rows):
            told = chain.open(parcel.kind, sealed.rows, parcel.rows).detach().cpu()
            self.prototypes[int(parcel.origin.silo[0])] = told.double()
        elif parcel.of_nodes and len(parcel.rows):
            self._keep(parcel, chain.open(parcel.kind, sealed.rows, parcel.rows).detach().cpu())

    def _hear(self, parcel: Parcel, rows: Tensor, masked: bool) -> None:
        """Record parameters that leave; when those of all silos have, releases that waited for them get them.

        Of ``masked`` ones nobody has more than the sum: for a silo's, the mean of the other silos' stands in.
        """
        assert self._training is not None
        if masked:
            self._settle(known_now(self._training.learner.classifier.sets, lambda name: False))
            return
        self._sent |= dict(zip(parcel.origin.silo.tolist(), rows, strict=True))
        sets, shares = self._training.learner.classifier.sets, self._training.stage.phase.sync.shares
        if len(self._sent) == sets.count:
            sent = torch.stack([self._sent[silo] for silo in sorted(self._sent)])
            self._sent = {}
            self._settle(known_from(sent, sets, shares))

    def _keep(self, parcel: Parcel, rows: Tensor) -> None:
        """Keep rows as they can be read at their destination."""
        at, layer = parcel.origin.row.cpu(), parcel.layer
        if parcel.kind == Kind.EMBEDDINGS:
            self._totals(self.embeddings, layer, rows).add(at, rows)
            self._watch(layer, self._place[at], rows)
        elif parcel.kind == Kind.ADJOINTS:
            self._totals(self.adjoints, layer, rows).add_each(at, rows)
        elif parcel.kind == Kind.AGGREGATES:
            self.aggregates[layer] = parcel.origin.silo.cpu(), at, rows.double()
        elif parcel.kind == Kind.PARTIALS and layer == 0 and self.on_sums and self.reduction is not None:
            self.on_sums(rows, parcel.origin.silo.cpu(), self.reduction)

    def _totals(self, tables: dict[int, Totals], layer: int, rows: Tensor) -> Totals:
        if layer not in tables:
            zeros = torch.zeros(self.rows, rows.shape[1], dtype=torch.float64)
            tables[layer] = Totals(zeros, torch.zeros(self.rows, dtype=torch.float64))
        return tables[layer]

    def _watch(self, layer: int, place: Tensor, rows: Tensor) -> None:
        """Add the watched rows among those that have just left at a layer to its history."""
        mine = place >= 0
        if not bool(mine.any()):
            return
        if layer not in self.histories:
            most = DEEP if layer else max(self.equations // rows.shape[1] - 1, DEEP)
            self.histories[layer] = History(len(self.watched), most)
        known = self._known()
        self.histories[layer].add(place[mine], rows[mine], None if known is None else _needed(known, layer))

    def _known(self) -> dict[str, Tensor] | None:
        """The parameters as all others know them now; None where they will know them later."""
        if self._training is None:
            return None
        known = known_now(self._training.learner.classifier.sets, self._training.stage.phase.sync.shares)
        return None if known is None else {name: value.cpu() for name, value in known.items()}

    def _settle(self, known: dict[str, Tensor] | None) -> None:
        """Give the parameters, if known, to all releases that were waiting for them."""
        for layer, history in self.histories.items() if known is not None else ():
            assert known is not None
            history.settle(_needed(known, layer))


def _needed(known: dict[str, Tensor], layer: int) -> dict[str, Tensor]:
    """The parameters that rows before a layer are made by."""
    return {name: value for name, value in known.items() if layer or name.startswith(_FIRST)}
