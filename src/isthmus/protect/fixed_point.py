"""Fixed point: rows of nodes travel as whole numbers, whose sums are exact in whatever order they are added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import ROWS, Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Event, Formatted
from isthmus.protect.field import add_whole
from isthmus.protect.secrets import Noise

BITS = 60  # of a sum, its sign aside: half of the field 2^61 - 1, in which shares are drawn
LARGEST = 2**BITS - 1  # the largest sum: the next number would read as a negative one in the field


@dataclass(frozen=True)
class FixedPoint(Mechanism):
    """x -> round(2^fraction x): whole numbers, of which ``most`` can be added without leaving 61 bits.

    Rounding moves a number by up to 2^-(fraction + 1). A number from 2^(60 - fraction) / most on is refused, since sums
    might wrap, which nobody could see.
    """

    fraction: int = 36
    most: int = 16384
    name: ClassVar[str] = "fixed-point"
    encodes: ClassVar[bool] = True
    whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.fraction <= 52:
            raise IsthmusError(f"protect.fraction is {self.fraction}; it must lie in 1..52 (binary places).")
        if not 1 <= self.most <= 2 ** (BITS - self.fraction):
            raise IsthmusError(
                f"protect.most is {self.most}; with protect.fraction={self.fraction} it must lie in "
                f"1..{2 ** (BITS - self.fraction)}, or no number of size 1 could be sent."
            )

    @property
    def bound(self) -> float:
        """Numbers below this in size can be sent."""
        return 2.0 ** (BITS - self.fraction) / self.most

    @property
    def terms(self) -> float:
        """How many rows may be added up at most."""
        return self.most

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """Rows of nodes as whole numbers, and sums of whole numbers as they are; so are other payloads."""
        if parcel.kind not in ROWS:
            return parcel.rows, None, None
        whole = self.rounded(parcel.rows, parcel.kind) if parcel.rows.is_floating_point() else parcel.rows
        return whole, Formatted(f"fixed point of {self.fraction} binary places"), None

    def rounded(self, x: Tensor, kind: Kind) -> Tensor:
        """Numbers as whole multiples of 2^-fraction: int64; one that is too large, or not finite, is an error."""
        whole = (x.to(torch.float64) * 2.0**self.fraction).round_()
        if whole.numel():
            low, high = (float(end) for end in whole.aminmax())
            if not max(-low, high) <= LARGEST // self.most:  # also where one is NaN
                step = 2.0**-self.fraction
                raise IsthmusError(
                    f"Numbers of {kind} lie between {low * step:.4g} and {high * step:.4g}, but protect=fixed-point "
                    f"can add up {self.most:,} numbers within ±{self.bound:g} (protect.fraction={self.fraction}). Use "
                    "a smaller protect.fraction or protect.most, or features that are scaled."
                )
        return whole.to(torch.int64)

    def open(self, kind: Kind, rows: Tensor, like: Tensor) -> Tensor:
        """Whole numbers as numbers of the run."""
        if kind not in ROWS or rows.is_floating_point():
            return rows
        return (rows.to(torch.float64) * 2.0**-self.fraction).to(like.dtype)

    def add(self, rows: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
        """Exact sums of whole numbers."""
        return add_whole(rows, near, ptr)
