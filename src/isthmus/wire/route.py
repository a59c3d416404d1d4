"""Which rows cross between silos: the lists that two hosts hold of each other's rows, and routes made of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from isthmus.core.parcel import Origin, Traffic
from isthmus.wire.membership import Membership


@dataclass(frozen=True)
class Boundary:
    """A host's halo rows, ordered by (owner's host, owner, silo, plan), and the rows it owns that others hold as halo.

    The halo list of one host for another is in the order of that host's list of served rows, so that a row can be
    asked for by its place in the list. A pair of silos is written as one number, sender * silos + receiver: for halo
    rows the sender of the request, for served rows the sender of the row.
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
    """Halo rows that this host asked for, and owned rows that others asked of it; both grouped by the other host."""

    halo: Tensor  # [a] stack rows
    halo_pair: Tensor
    halo_splits: list[int]
    served: Tensor  # [b] stack rows
    served_pair: Tensor
    served_splits: list[int]

    def fields(self) -> tuple[Tensor, Tensor, list[int], Tensor, Tensor, list[int]]:
        """All six fields in order, with which a subclass is made from an `Asked`."""
        return self.halo, self.halo_pair, self.halo_splits, self.served, self.served_pair, self.served_splits

    def marked(self, halo: Tensor, served: Tensor) -> Asked:
        """The marked rows of what was asked; both sides mark equal rows, so that their lists still agree."""
        return Asked(
            self.halo[halo],
            self.halo_pair[halo],
            _kept(self.halo_splits, halo),
            self.served[served],
            self.served_pair[served],
            _kept(self.served_splits, served),
        )

    def among(self, members: Membership) -> Asked:
        """What was asked when all were present, without rows of or for silos that are absent now."""
        if members.complete:
            return self
        return self.marked(both_present(self.halo_pair, members), both_present(self.served_pair, members))

    def lots(self, silos: int) -> tuple[Lot, Lot]:
        """The served rows as a lot that leaves, and the halo rows as the lot that arrives."""
        sent = Lot(self.served, self.served, self.served_pair, self.served_splits, silos)
        return sent, Lot(self.halo, self.halo, self.halo_pair, self.halo_splits, silos)


def both_present(pairs: Tensor, members: Membership) -> Tensor:
    """Which pairs of silos (one number each, sender * silos + receiver) have both of them present: [pairs] bool."""
    if members.complete:
        return torch.ones_like(pairs, dtype=torch.bool)
    here = torch.zeros(members.silos, dtype=torch.bool, device=pairs.device)
    here[list(members.present)] = True
    return here[pairs // members.silos] & here[pairs % members.silos]


def _kept(splits: list[int], mark: Tensor) -> list[int]:
    return [int(part.sum()) for part in mark.split(splits)]


@dataclass(frozen=True)
class Lot:
    """Rows that go to other silos, or come from them, grouped by host.

    ``at`` says where they lie in what is computed, ``row`` which stack rows they are, ``pairs`` who sends each to whom.
    """

    at: Tensor
    row: Tensor
    pairs: Tensor
    splits: list[int]
    silos: int

    @cached_property
    def origin(self) -> Origin:
        """Which silo sends each row, and which stack row it is."""
        return Origin(self.pairs // self.silos, self.row)

    @cached_property
    def traffic(self) -> Traffic:
        """How many of the rows each silo sends to each other one."""
        return Traffic.between(self.pairs, self.silos)


@dataclass(frozen=True)
class Straight:
    """The way past the server between silos that make partial aggregates and silos that wait for their sums.

    ``sent``: partials of my silos (``at``: places among them), by whom they go to. ``due``: slots of my silos (``at``:
    places among them), one entry for every silo that adds to a slot. Both are in the order of (host of the other end,
    silo that adds, silo that waits, slot), so that neither end needs to be told.
    """

    sent: Lot
    due: Lot


@dataclass(frozen=True)
class Route:
    """A sparse linear map from owned rows h [n] to source rows y [size] of a layer, which also hold halo rows.

    y[keep] = h, y[fill] = copies of rows that their owners send. ``send`` are the rows of h that leave. A row crosses
    once for each silo that receives it.
    """

    size: int
    keep: Tensor  # [n] where my own rows go
    send: Lot
    fill: Lot
