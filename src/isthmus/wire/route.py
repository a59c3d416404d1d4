"""Routes: a sparse linear map of rows across the boundary. Its transpose is the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isthmus.protect.base import Origin
from isthmus.wire.ledger import Kind

if TYPE_CHECKING:
    from isthmus.wire.base import Wire


@dataclass(frozen=True)
class Boundary:
    """Halo rows of a host in the order (owner's host, owner, silo, plan), and mirrored, owned rows that others hold.

    Because the two lists of a pair of hosts mirror, a row is asked for by its place in them. A pair is written as
    sender * silos + receiver: of ids for halo rows (they are asked for), of rows for served ones.
    """

    halo: Tensor  # [u] stack rows
    halo_ptr: Tensor  # [hosts + 1] by the owner's host
    halo_pair: Tensor  # [u]
    served: Tensor  # [v] stack rows
    served_ptr: Tensor  # [hosts + 1] by the asking host
    served_pair: Tensor  # [v]
    place: Tensor  # [rows] place in ``halo`` of each stack row, -1 for owned rows


@dataclass(frozen=True)
class Asked:
    """Halo rows that my silos asked for, and owned rows that others asked of mine, both grouped by the other host."""

    halo: Tensor  # [a] stack rows
    halo_pair: Tensor
    halo_splits: list[int]
    served: Tensor  # [b] stack rows
    served_pair: Tensor
    served_splits: list[int]

    def fields(self) -> tuple[Tensor, Tensor, list[int], Tensor, Tensor, list[int]]:
        """All six, to build upon."""
        return self.halo, self.halo_pair, self.halo_splits, self.served, self.served_pair, self.served_splits

    def lots(self, silos: int) -> tuple[Lot, Lot]:
        """What owners send, and where it arrives; the other way round for what goes back to them."""
        sent = Lot(self.served, self.served, self.served_pair, self.served_splits, silos)
        return sent, Lot(self.halo, self.halo, self.halo_pair, self.halo_splits, silos)


@dataclass(frozen=True)
class Lot:
    """Rows that go to, or come from, other silos, in an order by host.

    ``at`` says where they lie in what is computed, ``row`` which stack rows they are, ``pairs`` who sends each to whom.
    """

    at: Tensor
    row: Tensor
    pairs: Tensor
    splits: list[int]
    silos: int

    @cached_property
    def origin(self) -> Origin:
        """Whose rows these are, for who sends them."""
        return Origin(self.pairs // self.silos, self.row)

    @cached_property
    def grid(self) -> np.ndarray:
        """Rows by [sender, receiver]."""
        return pair_counts(self.pairs, self.silos)


@dataclass(frozen=True)
class Route:
    """Owned rows h [n] become source rows [size]: mine stay mine, halo rows are copies of their owners' rows.

    ``send`` are rows of h that leave, ``fill`` places in the result that arriving rows fill. A row crosses once for
    each silo that receives it.
    """

    size: int
    keep: Tensor  # [n] where my own rows go
    send: Lot
    fill: Lot


def pair_counts(pairs: Tensor, silos: int) -> np.ndarray:
    """How often each (sender, receiver) occurs: [silos, silos]."""
    counts: np.ndarray = torch.bincount(pairs, minlength=silos * silos).reshape(silos, silos).cpu().numpy()
    return counts


class Across(torch.autograd.Function):
    """y[keep] = h, y[fill] = what the owners sent; backwards, adjoints of filled rows return and are summed."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, token: Tensor, wire: Wire, route: Route, kind: Kind, layer: int
    ) -> tuple[Tensor, Tensor]:
        """Copy rows to where they are needed."""
        ctx.wire, ctx.route, ctx.layer = wire, route, layer
        rows = wire.move(kind, h.index_select(0, route.send.at), route.send, route.fill, layer)
        y = h.new_empty(route.size, h.shape[1])
        return y.index_copy_(0, route.keep, h).index_copy_(0, route.fill.at, rows), token.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """The transposed map, through the same door."""
        gy, gtoken = grads
        route: Route = ctx.route
        sent = gy.index_select(0, route.fill.at)
        back = ctx.wire.move(Kind.ADJOINTS, sent, route.fill, route.send, ctx.layer)
        if len(route.keep) + len(route.fill.at) > route.size:  # some of my own rows were overwritten
            gy = gy.index_fill(0, route.fill.at, 0)
        return gy.index_select(0, route.keep).index_add_(0, route.send.at, back), gtoken, None, None, None, None


def detached(wire: Wire, route: Route, kind: Kind, h: Tensor, layer: int) -> Tensor:
    """The same copy without a way back: my own rows keep their gradient, what arrives is constant."""
    rows = wire.move(kind, h.detach().index_select(0, route.send.at), route.send, route.fill, layer)
    y = h.new_zeros(route.size, h.shape[1])
    return y.index_copy(0, route.keep, h).index_copy(0, route.fill.at, rows)
