"""Releases: how often each row has left its silo, and with which values; privacy accounting and audits read it."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Chain, Sealed
from isthmus.protect.events import Events

COUNTS, SUMS, PAYLOADS, WIDTHS, LEFT, PLAIN = "counts", "sums", "payloads", "widths", "left", "plain"


class Releases:
    """By kind and layer: how often each row left (once for all receivers), and each embedding as it left last.

    Rows are numbered as in the stack, owned and halo rows of one silo after the other. All tables stay with the host
    that released the rows, and are checkpointed as ``state``:

    - ``counts`` [rows]: how often a row left; of sums, how many that left hold the row
    - ``sums`` [rows]: how many sums left, by the row that a sum is for
    - ``payloads`` [silos]: how often a silo sent a clipped or noisy payload (weights, gradients), by its number
    - ``widths`` [silos]: how many numbers the widest of these payloads had
    - ``left`` [rows, width]: embeddings as they left last
    - ``plain`` [rows, width]: embeddings before their noise
    """

    def __init__(self) -> None:
        self.rows = 0
        self.sizes: tuple[int, ...] = ()  # rows of each silo of this host, which lie one after the other
        self.events: dict[Kind, list[Events]] = {}  # every treatment that rows, or whole payloads, of a kind had
        self.state: dict[str, Tensor] = {}  # by table/kind/layer

    def open(self, rows: int) -> None:
        """Begin an empty book of ``rows`` rows."""
        self.rows, self.state, self.events = rows, {}, {}

    def book(self, parcel: Parcel, sealed: Sealed, chain: Chain) -> None:
        """Record a parcel that leaves: for rows of nodes how often each has left, for protected payloads how many."""
        if parcel.by_server or parcel.derived:
            return
        if parcel.of_nodes or sealed.events:
            known = self.events.setdefault(parcel.kind, [])
            if sealed.events not in known:
                known.append(sealed.events)
        if sealed.events and not parcel.of_nodes:
            self.record_payloads(parcel.kind, parcel.origin.silo, parcel.rows.shape[1:].numel())
        elif parcel.of_nodes and parcel.origin.parts is not None:
            self.record_sums(parcel.kind, parcel.layer, parcel.origin.row, parcel.origin.parts)
        elif parcel.of_nodes:
            left = chain.open(parcel.kind, sealed.rows, parcel.rows) if parcel.kind == Kind.EMBEDDINGS else sealed.rows
            self.record(parcel.kind, parcel.layer, parcel.origin.row, left, sealed.plain)

    def record(self, kind: Kind, layer: int, row: Tensor, left: Tensor, plain: Tensor | None) -> None:
        """Count a release of each listed row, and keep it as it left."""
        name = f"{kind.value}/{layer}"
        self.count(f"{COUNTS}/{name}", row, self.rows)
        if kind == Kind.EMBEDDINGS:
            self._store(f"{LEFT}/{name}", row, left)
        if kind == Kind.EMBEDDINGS and plain is not None:
            self._store(f"{PLAIN}/{name}", row, plain)

    def record_sums(self, kind: Kind, layer: int, row: Tensor, parts: Tensor) -> None:
        """Count sums by the ``row`` that each is for, and for every row how many sums it is a part of.

        ``parts`` lists a row once for each sum that holds it. However often a sum holds a row, along parallel edges
        say, the sum is clipped as a whole, so that the row can move it by no more than twice the clipping norm.
        """
        name = f"{kind.value}/{layer}"
        self.count(f"{SUMS}/{name}", row, self.rows)
        self.count(f"{COUNTS}/{name}", parts, self.rows, every=True)

    def record_payloads(self, kind: Kind, silo: Tensor, width: int = 1) -> None:
        """Count payloads of ``width`` numbers by the number of the silo that sent each; each row is one of them."""
        counts, widths = (f"{table}/{kind.value}/0" for table in (PAYLOADS, WIDTHS))
        size = int(silo.max()) + 1 if len(silo) else 0
        for name in (counts, widths):
            known = self.state.get(name)
            if known is not None and len(known) < size:
                self.state[name] = torch.cat([known, known.new_zeros(size - len(known))])
        self.count(counts, silo, size, every=True)
        before = self.state.setdefault(widths, torch.zeros(size, dtype=torch.int64, device=silo.device))
        at = silo.to(before.device)
        before.index_copy_(0, at, before.index_select(0, at).clamp(min=width))

    def count(self, name: str, at: Tensor, size: int, every: bool = False) -> None:
        """Add one to the places ``at`` of a table; to a place that is listed twice once, or with ``every`` twice."""
        if name not in self.state:
            self.state[name] = torch.zeros(size, dtype=torch.int64, device=at.device)
        counts = self.state[name]
        at = at.to(counts.device)
        if every:
            counts.index_add_(0, at, torch.ones_like(at))
        else:
            counts.index_copy_(0, at, counts.index_select(0, at) + 1)

    def _store(self, name: str, row: Tensor, values: Tensor) -> None:
        if name not in self.state:
            self.state[name] = values.new_zeros(self.rows, *values.shape[1:])
        self.state[name].index_copy_(0, row, values.detach())

    def packed(self) -> dict[str, Tensor]:
        """The tables for a checkpoint; of values only the rows that have left, which are few beside the halo."""
        return {name: self._gone(name, table) for name, table in self.state.items()}

    def _gone(self, name: str, table: Tensor) -> Tensor:
        what, _, of = name.partition("/")
        return table[self.state[f"{COUNTS}/{of}"] > 0] if what in (LEFT, PLAIN) else table

    def unpack(self, packed: dict[str, Tensor]) -> None:
        """Take over the tables that :meth:`packed` gave."""
        self.state = dict(packed)
        for name, rows in packed.items():
            what, _, of = name.partition("/")
            if what in (LEFT, PLAIN):
                self.state[name] = rows.new_zeros(self.rows, *rows.shape[1:])
                self.state[name][packed[f"{COUNTS}/{of}"] > 0] = rows

    def layers(self, kind: Kind) -> list[int]:
        """The layers of which rows of this kind have left."""
        names = (name.split("/") for name in self.state)
        return sorted(int(layer) for what, of, layer in names if what == COUNTS and of == kind.value)

    def has(self, what: str, kind: Kind) -> bool:
        """Whether there is a table ``what`` of any layer of this kind."""
        return any(name.startswith(f"{what}/{kind.value}/") for name in self.state)

    def get(self, what: str, kind: Kind, layer: int) -> Tensor:
        """The table ``what`` (counts, left or plain) of a kind and layer."""
        return self.state[f"{what}/{kind.value}/{layer}"]
