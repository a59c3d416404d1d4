"""Which rows have left, how often, and as what: the bookkeeping that privacy accounting and audits read."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Chain, Sealed
from isthmus.protect.events import Events

COUNTS, LEFT, PLAIN = "counts", "left", "plain"


class Releases:
    """By kind and layer: how often each row left (once, whoever received it), and each embedding as it left last.

    Rows are numbered as in the stack, owned and halo rows of one silo after the other. ``plain`` are the rows that
    noise was added to. They stay with the host that released them, and are checkpointed as ``state``.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.events: dict[Kind, list[Events]] = {}  # every treatment that rows, or whole payloads, of a kind had
        self.state: dict[str, Tensor] = {}  # counts/kind/layer: [rows]; left and plain: [rows, width]

    def open(self, rows: int) -> None:
        """Begin a book of so many rows."""
        self.rows, self.state, self.events = rows, {}, {}

    def book(self, parcel: Parcel, sealed: Sealed, chain: Chain) -> None:
        """Remember what leaves: of rows of nodes how often each has left, of parameters what each silo sent last."""
        if parcel.by_server:
            return
        if parcel.of_nodes or sealed.events:
            known = self.events.setdefault(parcel.kind, [])
            if sealed.events not in known:
                known.append(sealed.events)
        if parcel.kind == Kind.PARAMETERS:
            self.record_whole(parcel.kind, sealed.rows)
        elif parcel.of_nodes and parcel.origin.parts is not None:
            self.record_parts(parcel.kind, parcel.layer, parcel.origin.parts)
        elif parcel.of_nodes:
            left = chain.open(parcel.kind, sealed.rows, parcel.rows) if parcel.kind == Kind.EMBEDDINGS else sealed.rows
            self.record(parcel.kind, parcel.layer, parcel.origin.row, left, sealed.plain)

    def record(self, kind: Kind, layer: int, row: Tensor, left: Tensor, plain: Tensor | None) -> None:
        """Count a release of each listed row, and keep it as it left."""
        name = f"{kind.value}/{layer}"
        if f"{COUNTS}/{name}" not in self.state:
            self.state[f"{COUNTS}/{name}"] = torch.zeros(self.rows, dtype=torch.int32, device=row.device)
        counts = self.state[f"{COUNTS}/{name}"]
        counts.index_copy_(0, row, counts.index_select(0, row) + 1)  # one more, however often a row is listed
        if kind == Kind.EMBEDDINGS:
            self._keep(f"{LEFT}/{name}", row, left)
        if plain is not None:
            self._keep(f"{PLAIN}/{name}", row, plain)

    def record_parts(self, kind: Kind, layer: int, row: Tensor) -> None:
        """Count a release for each listing of a row: of sums that it is a part of, each has noise of its own."""
        name = f"{COUNTS}/{kind.value}/{layer}"
        if name not in self.state:
            self.state[name] = torch.zeros(self.rows, dtype=torch.int32, device=row.device)
        self.state[name].index_add_(0, row, torch.ones_like(row, dtype=torch.int32))

    def record_whole(self, kind: Kind, payload: Tensor) -> None:
        """Keep what each silo has sent of a kind (its parameters) as it left last: [silos, numbers]."""
        self.state[f"{LEFT}/{kind.value}/0"] = payload.detach().clone()

    def _keep(self, name: str, row: Tensor, values: Tensor) -> None:
        if name not in self.state:
            self.state[name] = values.new_zeros(self.rows, *values.shape[1:])
        self.state[name].index_copy_(0, row, values.detach())

    def layers(self, kind: Kind) -> list[int]:
        """The layers of which rows have left."""
        names = (name.split("/") for name in self.state)
        return sorted(int(layer) for what, of, layer in names if what == COUNTS and of == kind.value)

    def has(self, what: str, kind: Kind) -> bool:
        """Whether there is any table of this sort."""
        return any(name.startswith(f"{what}/{kind.value}/") for name in self.state)

    def get(self, what: str, kind: Kind, layer: int) -> Tensor:
        """One of the tables."""
        return self.state[f"{what}/{kind.value}/{layer}"]
