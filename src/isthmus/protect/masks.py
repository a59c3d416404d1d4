"""Pairwise masks: what devices hand in to their silo can be read in sums over a group of them alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind, silo_of_devices
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Event, MaskedSums
from isthmus.protect.secrets import Noise

MASKED = (Kind.GRADIENTS, Kind.METRICS, Kind.STATISTICS)  # what a silo reads of its devices as sums
FRACTION = 36  # binary places of a number that is masked


@dataclass(frozen=True)
class Masks(Mechanism):
    """Devices of a silo are divided into groups of ``group``; masks that two of them share cancel in the group's sum.

    The rest of a division joins the last group. A silo with fewer devices has one group of all, whose size is told.
    A run computes what is left when masks have cancelled: the sum, rounded to the step of its fixed point. The
    protocol itself, with keys and drop-outs, is ``wire/secure_sum.py``.
    """

    group: int = 64
    name: ClassVar[str] = "masks"
    changes_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.group < 2:
            raise IsthmusError(f"protect.group is {self.group}; a sum over fewer than 2 devices hides nobody.")

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """What devices hand in to their silo, as sums over groups; other payloads as they are."""
        senders = parcel.traffic.sender.tolist()
        if parcel.kind not in MASKED or not any(silo_of_devices(sender) is not None for sender in senders):
            return parcel.rows, None, None
        return rounded(parcel.rows), MaskedSums(self.group), None


def rounded(x: Tensor) -> Tensor:
    """Numbers rounded to whole multiples of 2^-36, the step in which devices send what is masked."""
    if not x.is_floating_point():
        return x
    return ((x.to(torch.float64) * 2.0**FRACTION).round_() * 2.0**-FRACTION).to(x.dtype)

