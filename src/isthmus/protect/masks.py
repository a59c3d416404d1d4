"""Pairwise masks: what devices hand in to their silo can be read in sums over a group of them alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind, silo_of_devices
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Event, MaskedSums
from isthmus.protect.fixed_point import LARGEST
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
    needs_all: ClassVar[str] = "masks of whoever is absent would not cancel"
    changes_rows: ClassVar[bool] = False
    of_devices: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.group < 2:
            raise IsthmusError(f"protect.group is {self.group}; a sum over fewer than 2 devices hides nobody.")

    def shortfalls(self, devices: Mapping[str, int]) -> list[str]:
        """A sentence for each silo with too few devices for a group, which are one smaller group."""
        return [
            f"{silo} has {n} devices, fewer than a group of {self.group}: the sums that it reads of them are over {n}."
            for silo, n in devices.items()
            if n < self.group
        ]

    def separates(self, kind: Kind) -> bool:
        """Gradients are rounded silo by silo, so that their sum does not depend on which silos share a host."""
        return kind == Kind.GRADIENTS

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """What devices hand in to their silo, as sums over groups; other payloads as they are."""
        senders = parcel.traffic.sender.tolist()
        if parcel.kind not in MASKED or not any(silo_of_devices(sender) is not None for sender in senders):
            return parcel.rows, None, None
        return rounded(parcel.rows, parcel.kind), MaskedSums(self.group), None


def rounded(x: Tensor, kind: Kind) -> Tensor:
    """Numbers rounded to whole multiples of 2^-36, the step in which devices send what is masked.

    A sum that would not fit the field of the masks, or that is not finite, is an error.
    """
    if not x.is_floating_point() or not x.numel():
        return x
    whole = (x.to(torch.float64) * 2.0**FRACTION).round_()
    low, high = (float(end) for end in whole.aminmax())
    if not max(-low, high) <= LARGEST:  # also where one is NaN
        step = 2.0**-FRACTION
        raise IsthmusError(
            f"Sums of {kind} of devices lie between {low * step:.4g} and {high * step:.4g}, but protect=masks carries "
            f"numbers within ±{LARGEST * step:g}; use a smaller train.lr, or features that are scaled."
        )
    return (whole * 2.0**-FRACTION).to(x.dtype)
