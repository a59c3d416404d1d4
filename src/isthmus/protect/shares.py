"""Secret shares: each row of a node is divided among holders so that fewer of them than all learn nothing of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import ROWS, Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Event, Shared
from isthmus.protect.field import LARGEST_DEGREE, add_rows, from_field, interpolate, share_out, to_field, uniform
from isthmus.protect.gaussian import SECRETS
from isthmus.protect.secrets import Noise


@dataclass(frozen=True)
class Shares(Mechanism):
    """h -> g(1), .., g(T + 1) with g(0) = h and g(j) = z_j, the z drawn anew for every message (Lagrange coding).

    T is the ``threshold``: any T holders together see uniform numbers, T + 1 can open. Shares of a sum are sums of
    shares, so that a sum can be opened and the rows inside it cannot. ``secrets``: the z come from the ``seed`` (a
    simulation) or from ``random`` secrets; empty: the seed where all silos live in one process, else secrets.
    """

    threshold: int = 1
    secrets: str = ""
    name: ClassVar[str] = "shares"
    needs_all: ClassVar[str] = "an absent holder of shares leaves sums that nobody can open"
    encodes: ClassVar[bool] = True
    whole: ClassVar[bool] = True
    reads_whole: ClassVar[bool] = True
    shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= LARGEST_DEGREE:
            raise IsthmusError(f"protect.threshold is {self.threshold}; it must lie in 1..{LARGEST_DEGREE}.")
        if self.secrets not in SECRETS:
            raise unknown("protect.secrets", self.secrets, [choice for choice in SECRETS if choice])

    @property
    def noisy(self) -> bool:
        """It draws from silos' secrets."""
        return True

    @property
    def holders(self) -> int:
        """T + 1 parties hold a share of each row."""
        return self.threshold + 1

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """Whole rows of nodes as shares, [messages, T + 1, w]; sums of shares as they are, and other payloads."""
        event = Shared(self.threshold)
        if parcel.kind == Kind.SHARE_SUMS:
            return parcel.rows, event, None
        if parcel.kind not in ROWS or parcel.rows.is_floating_point() or not parcel.of_nodes:
            return parcel.rows, None, None
        if len(parcel.rows) and len(parcel.holders) != self.holders:
            raise IsthmusError(
                f"protect.threshold={self.threshold} divides each row among {self.holders} holders, but "
                f"{len(parcel.holders) or 'no'} parties that read nothing alone can hold {parcel.kind} here."
            )
        rows, silo = to_field(parcel.rows), parcel.origin.silo
        if parcel.copies is not None:
            rows, silo = rows.index_select(0, parcel.copies), silo[parcel.copies.to(silo.device)]
        return share_out(rows, drawn_shares(rows, silo, self.threshold, noise)), event, None

    def open(self, kind: Kind, rows: Tensor, like: Tensor) -> Tensor:
        """Shares [n, T + 1, w] of rows, or of sums of rows, as whole numbers [n, w]."""
        if kind not in ROWS or rows.is_floating_point() or rows.dim() != like.dim() + 1:
            return rows
        return from_field(interpolate(rows))

    def add(self, rows: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
        """Sums of shares in the field, holder by holder."""
        return add_rows(rows, near, ptr)


def drawn_shares(rows: Tensor, silo: Tensor, count: int, noise: Noise) -> Tensor:
    """Room for shares of rows [n, w] of silos [n], the first ``count`` of them uniform elements: [n, count + 1, w].

    Rows of a silo must lie together. The elements of all devices of a silo come from one stream of SHAKE-256, where
    real devices would each have a secret of their own.
    """
    shares = rows.new_empty(len(rows), count + 1, *rows.shape[1:])
    silos, sizes = silo.unique_consecutive(return_counts=True)
    width, at = count * rows.shape[1:].numel(), 0
    for number, size in zip(silos.tolist(), sizes.tolist(), strict=True):
        drawn = uniform(noise.words(number, size * width)).reshape(size, count, *rows.shape[1:])
        shares[at : at + size, :count] = drawn.to(rows.device)
        at += size
    noise.draws += 1  # on every host alike, also on one that has nothing to send
    return shares
