"""The one door: everything that leaves a silo is copied, protected, counted, recorded and delivered here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from isthmus.protect.base import ROWS, Event, Origin, Protect
from isthmus.protect.noise import Noise
from isthmus.wire.ledger import SERVER, Kind, Ledger
from isthmus.wire.relay import Column, Relay, Relayed, relayed
from isthmus.wire.releases import Releases
from isthmus.wire.route import Across, Asked, Boundary, Lot, Route, detached, pair_counts

Parcels = Mapping[tuple[int, int], Tensor]  # (sender, receiver) -> payload


class Wire(ABC):
    """Delivers between the silos of a federation; this process hosts the silos ``mine``.

    The server is a party of its own (number ``SERVER``) and lives on host 0. Every host makes the same calls in the
    same order, also when it has nothing to send.
    """

    def __init__(self, silos: int, mine: Sequence[int], protect: Protect | None = None) -> None:
        self.silos = silos
        self.mine = tuple(mine)
        self.protect = protect or Protect()
        self.noise = Noise()
        self.ledger = Ledger()
        self.releases = Releases()
        self.seconds = 0.0  # spent in the transport between hosts, waiting for slower ones included
        self._token: Tensor | None = None

    host: int = 0
    hosts: int = 1

    def party(self, number: int) -> str:
        """The name of a party as people know it."""
        return self.ledger.party(number)

    @property
    def serves(self) -> bool:
        """Whether the server lives in this process."""
        return self.host == 0

    @property
    def parties(self) -> tuple[int, ...]:
        """Everyone who lives in this process."""
        return (SERVER, *self.mine) if self.serves else self.mine

    def post(self, kind: Kind, parcels: Parcels) -> dict[tuple[int, int], Tensor]:
        """Send tensors from my parties to others; return what others sent to mine, in order of sender."""
        sealed: dict[tuple[int, int], Tensor] = {}
        for (sender, receiver), payload in sorted(parcels.items()):
            copy = payload.detach().clone()
            whole = Origin(torch.full((len(copy),), sender), torch.arange(len(copy)))
            copy, event = self.protect.seal(kind, copy, whole, self.noise)
            self.ledger.record(kind, str(event), sender, receiver, len(copy), _size(copy))
            sealed[sender, receiver] = copy
        self.ledger.leg()
        return dict(sorted(self._deliver(kind, sealed).items()))

    def share(self, kind: Kind, x: Tensor) -> Tensor:
        """Every silo's row of ``x`` [mine, ...], made known to all through the server: [silos, ...]."""
        up = self.post(kind, {(silo, SERVER): x[i : i + 1] for i, silo in enumerate(self.mine)})
        rows = torch.cat([up[silo, SERVER] for silo in range(self.silos)]) if self.serves else None
        down = self.post(kind, {(SERVER, silo): rows for silo in range(self.silos)} if rows is not None else {})
        return down[SERVER, self.mine[0]]

    def total(self, kind: Kind, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Sum of ``x`` [mine, ...] over all silos, in silo order, through the server; differentiable.

        With ``weights`` [mine] a weighted one: each silo protects its own ``x``, and weighs what came of it.
        """
        if x.requires_grad:
            y: Tensor
            assert weights is None
            y, self._token = _Total.apply(x, self._thread(x), self, kind)  # type: ignore[no-untyped-call]
            return y
        return self._totalled(kind, x, weights)

    def total_of_hosts(self, kind: Kind, x: Tensor) -> Tensor:
        """The same for ``x`` [...] that is already the sum over the silos of this host (shared parameters)."""
        if self.protect.separates(kind):
            raise AssertionError(f"{type(self.protect).__name__} must see each silo's payload on its own")
        for silo in self.mine:
            self._record_round_trip(kind, str(self._seal_nothing(kind, x)), silo, x)
        self.ledger.leg(2)
        return self._sum_hosts(kind, x[None], per_silo=False)

    def home(self, party: int) -> int:
        """The host on which a party lives."""
        return 0

    def ask(self, boundary: Boundary, rows: Tensor) -> Asked:
        """Ask the owners of halo rows (stack rows of my silos) for them; learn which of my rows others ask for."""
        place = boundary.place[rows].sort().values
        pairs = boundary.halo_pair[place]
        splits, served, asked = self._tell(place, boundary.halo_ptr, pairs, boundary.served_ptr)
        mine = boundary.halo[place], pairs, splits
        return Asked(*mine, boundary.served[served], boundary.served_pair[served], asked)

    def offer(self, boundary: Boundary, place: Tensor) -> Asked:
        """Tell holders which rows come to them (ascending places in ``boundary.served``); learn which come to mine."""
        pairs = boundary.served_pair[place]
        splits, halo, offered = self._tell(place, boundary.served_ptr, pairs, boundary.halo_ptr)
        mine = boundary.served[place], pairs, splits
        return Asked(boundary.halo[halo], boundary.halo_pair[halo], offered, *mine)

    def _tell(self, place: Tensor, ptr: Tensor, pairs: Tensor, theirs: Tensor) -> tuple[list[int], Tensor, list[int]]:
        """Places in lists that mirror on the other hosts: how many go to each; places told to me, how many by each."""
        splits = torch.searchsorted(place, ptr).diff().tolist()
        within = place - _first(ptr, splits)
        self.ledger.record_grid(Kind.IDS, str(self._seal_nothing(Kind.IDS, within)), pair_counts(pairs, self.silos), 8)
        self.ledger.leg()
        told, told_splits = self._swap_sized(Kind.IDS, within, splits)
        return splits, _first(theirs, told_splits) + told, told_splits

    def linear(self, h: Tensor, route: Route, kind: Kind, adjoint: bool, layer: int = 0) -> Tensor:
        """Rows across the boundary; with ``adjoint`` their derivatives come back through the same door."""
        if not (adjoint and h.requires_grad):
            return detached(self, route, kind, h, layer)
        y: Tensor
        y, self._token = Across.apply(h, self._thread(h), self, route, kind, layer)  # type: ignore[no-untyped-call]
        return y

    def merge(self, partials: Tensor, relay: Relay, columns: Sequence[Column], layer: int) -> Tensor:
        """Partial aggregates, merged by the server: one row for each slot of my silos; derivatives come back."""
        if not partials.requires_grad:
            return relayed(self, relay, partials, columns, layer)[0]
        y: Tensor
        args = partials, self._thread(partials), self, relay, columns, layer
        y, self._token = Relayed.apply(*args)  # type: ignore[no-untyped-call]
        return y

    def move(self, kind: Kind, rows: Tensor, leaving: Lot, arriving: Lot, layer: int = 0) -> Tensor:
        """Protect, count and deliver rows that are grouped by receiving host; those that arrive, by sending host."""
        sealed, event = self.protect.seal(kind, rows, leaving.origin, self.noise)
        if kind in ROWS:
            self.releases.record(kind, layer, leaving.row, sealed, self.protect.constrain(kind, rows))
        size = rows.shape[1:].numel() * sealed.element_size()
        self.ledger.record_grid(kind, str(event), leaving.grid, size)
        self.ledger.leg()
        return self._swap(kind, sealed, leaving.splits, arriving.splits).to(rows.dtype)

    def _seal_nothing(self, kind: Kind, like: Tensor) -> Event:
        """What protection says of a kind that it leaves alone."""
        return self.protect.seal(kind, like[:0], Origin(_EMPTY, _EMPTY), self.noise)[1]

    def _thread(self, like: Tensor) -> Tensor:
        """The token that runs through all differentiable collectives of a pass, so that they have one order."""
        if self._token is None:
            self._token = torch.zeros((), dtype=like.dtype, device=like.device, requires_grad=True)
        return self._token

    def close(self, loss: Tensor) -> Tensor:
        """Tie every collective of this pass to the loss, so that all hosts run all of them backwards, in order."""
        token, self._token = self._token, None
        return loss if token is None else loss + 0.0 * token

    def _totalled(self, kind: Kind, x: Tensor, weights: Tensor | None = None) -> Tensor:
        sealed, event = self.protect.seal(kind, x.detach(), Origin.whole(torch.tensor(self.mine)), self.noise)
        if kind == Kind.PARAMETERS:
            self.releases.record_whole(kind, sealed)
        if weights is not None:
            sealed = sealed * weights.reshape(-1, *[1] * (sealed.dim() - 1))
        for i, silo in enumerate(self.mine):
            self._record_round_trip(kind, str(event), silo, sealed[i])
        self.ledger.leg(2)
        return self._sum_hosts(kind, sealed, per_silo=True)

    def _record_round_trip(self, kind: Kind, event: str, silo: int, x: Tensor) -> None:
        """One silo's part goes up to the server, the sum comes down; both are counted where the silo lives."""
        self.ledger.record(kind, event, silo, SERVER, 1, _size(x))
        self.ledger.record(kind, event, SERVER, silo, 1, _size(x))

    @abstractmethod
    def _deliver(self, kind: Kind, parcels: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        """Carry sealed parcels to the parties of every host; return those for mine."""

    @abstractmethod
    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        """Exchange rows with every host, so many with each; mine come back to me."""

    @abstractmethod
    def _swap_sized(self, kind: Kind, rows: Tensor, leaving: list[int]) -> tuple[Tensor, list[int]]:
        """The same where the others do not know how many to expect; also returns how many arrived from each."""

    @abstractmethod
    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        """Sum of the rows of ``x`` of all hosts, in host order: a row for each silo of a host, or one for the host."""

    def close_down(self) -> None:  # noqa: B027 - most wires have nothing to close
        """Leave the federation."""


_EMPTY = torch.zeros(0, dtype=torch.int64)


def _first(ptr: Tensor, splits: list[int]) -> Tensor:
    """Where the list of each host begins, for every row that goes there."""
    return ptr[:-1].repeat_interleave(torch.tensor(splits, device=ptr.device))


def _size(x: Tensor) -> int:
    return x.numel() * x.element_size()


class _Total(torch.autograd.Function):
    """Sum over silos, known to all. Its transpose: the sum of all hosts' adjoints, known to every silo."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor, wire: Wire, kind: Kind) -> tuple[Tensor, Tensor]:
        ctx.wire, ctx.kind, ctx.rows = wire, kind, len(x)
        return wire._totalled(kind, x), token.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        gy, gtoken = grads
        wire: Wire = ctx.wire
        total = wire.total_of_hosts(ctx.kind, gy)
        return total.expand(ctx.rows, *gy.shape), gtoken, None, None


class LocalWire(Wire):
    """All silos in this process: delivery is a copy, and autograd runs through."""

    def __init__(self, silos: int, protect: Protect | None = None) -> None:
        super().__init__(silos, range(silos), protect)

    def _deliver(self, kind: Kind, parcels: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        return parcels

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        return rows

    def _swap_sized(self, kind: Kind, rows: Tensor, leaving: list[int]) -> tuple[Tensor, list[int]]:
        return rows, leaving

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        return x.sum(0)


__all__ = ["LocalWire", "Parcels", "Wire"]
