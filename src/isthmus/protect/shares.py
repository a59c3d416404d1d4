"""Secret shares: each row of a node is divided among holders so that fewer of them than all learn nothing of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import ROWS, Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Event, Shared
from isthmus.protect.field import LARGEST_DEGREE, add_rows, deal, from_field, interpolate, to_field
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
        copies = torch.arange(len(parcel.rows), device=parcel.rows.device) if parcel.copies is None else parcel.copies
        silo = parcel.origin.silo[copies.to(parcel.origin.silo.device)]
        return divided(to_field(parcel.rows), copies, silo, self.threshold, noise), event, None

    def open(self, kind: Kind, rows: Tensor, like: Tensor) -> Tensor:
        """Shares [n, T + 1, w] of rows, or of sums of rows, as whole numbers [n, w]."""
        if kind not in ROWS or rows.is_floating_point() or rows.dim() != like.dim() + 1:
            return rows
        return from_field(interpolate(rows))

    def add(self, rows: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
        """Sums of shares in the field, holder by holder."""
        return add_rows(rows, near, ptr)


def divided(rows: Tensor, copies: Tensor, silo: Tensor, threshold: int, noise: Noise) -> Tensor:
    """Shares of messages, each of which carries a row of ``rows`` [n, w] and is of a silo: [messages, T + 1, w].

    Messages of a silo must lie together. The uniform elements of all devices of a silo come from one stream of
    ChaCha20, whose key follows from the silo's secret and serves this draw alone; real devices would each have a
    secret of their own.
    """
    shares = rows.new_empty(len(copies), threshold + 1, *rows.shape[1:])
    silos, sizes = silo.unique_consecutive(return_counts=True)
    at = 0
    for number, size in zip(silos.tolist(), sizes.tolist(), strict=True):
        deal(rows, copies[at : at + size], noise.key(number), shares[at : at + size])
        at += size
    noise.draws += 1  # on every host alike, also on one that has nothing to send
    return shares
