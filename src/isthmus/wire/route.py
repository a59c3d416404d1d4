"""Routes: a sparse linear map of rows across the boundary. Its transpose is the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from isthmus.core.parcel import Origin, Traffic


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
        """Halo rows, their pairs and splits, then served rows, their pairs and splits: what a subclass begins with."""
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
        """Which silo sends each row, and which stack row it is."""
        return Origin(self.pairs // self.silos, self.row)

    @cached_property
    def traffic(self) -> Traffic:
        """How many of the rows each silo sends to each other one."""
        return Traffic.between(self.pairs, self.silos)


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
