"""Masks between silos: models and gradients reach the server as vectors of which it can read the sum alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.chacha import keystream
from isthmus.protect.events import Event, MaskedTotals
from isthmus.protect.masked_sums import groups, largest_input
from isthmus.protect.secrets import Noise

FRACTION = 36  # binary places of a number that is masked


@dataclass(frozen=True)
class ServerMasks(Mechanism):
    """y_i = round(2^36 w_i x_i) + sum_(j > i) m_ij - sum_(j < i) m_ij modulo 2^64, which add up to the sum of w_i x_i.

    x_i is the model, the gradient or the real-valued statistics that silo i sends to the server to be added up, w_i its
    weight in the sum. Masks m_ij of two silos are words of ChaCha20 and cancel. Silos are divided into groups of 64, of
    which the last has the rest as well (fewer than 128 are one group). ``least``: a sum over fewer silos is refused.

    Keys of pairs follow from the run's seed, which stands for a key that two silos agree on: a simulation.
    """

    least: int = 3
    name: ClassVar[str] = "server-masks"
    changes_rows: ClassVar[bool] = False
    of_totals: ClassVar[bool] = True
    masked: ClassVar[tuple[Kind, ...]] = (Kind.PARAMETERS, Kind.GRADIENTS, Kind.STATISTICS)

    def __post_init__(self) -> None:
        if self.least < 2:
            raise IsthmusError(f"protect.least is {self.least}; a sum over fewer than 2 silos hides nobody.")

    def separates(self, kind: Kind) -> bool:
        """Each silo's gradient is masked by itself."""
        return kind == Kind.GRADIENTS

    def weighs(self, kind: Kind) -> bool:
        """What is masked must have its weight before."""
        return kind in self.masked

    def check_silos(self, silos: int) -> None:
        """Refuse fewer silos than the server must read in one sum."""
        if silos < self.least:
            raise IsthmusError(
                f"protect=server-masks has the server read sums over {self.least} silos or more, and there are "
                f"{silos}; use more silos, or protect.least={max(silos, 2)}."
            )

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """Rows that the server adds up, weighted, as masked whole numbers; other payloads as they are."""
        if parcel.kind not in self.masked or not parcel.added or not parcel.rows.is_floating_point():
            return parcel.rows, None, None
        self.check_silos(len(parcel.added))
        rows = parcel.rows if parcel.weights is None else parcel.rows * parcel.weights
        whole = rounded(rows, parcel.kind, len(parcel.added))
        grouped = groups(len(parcel.added))
        for run in grouped.runs:
            _mask(whole, parcel.origin.silo.tolist(), [parcel.added[at] for at in run], noise)
        noise.draws += 1  # on every host alike, also on one without silos
        return whole, MaskedTotals(grouped.smallest), None

    def open(self, kind: Kind, rows: Tensor, like: Tensor) -> Tensor:
        """Sums of whole numbers, in which masks have cancelled, as numbers of the run."""
        if kind not in self.masked or rows.is_floating_point() or not like.is_floating_point():
            return rows
        return (rows.to(torch.float64) * 2.0**-FRACTION).to(like.dtype)


def rounded(x: Tensor, kind: Kind, silos: int) -> Tensor:
    """Numbers as whole multiples of 2^-36: int64; one of which a sum over ``silos`` might wrap, or NaN, is an error."""
    whole = (x.to(torch.float64) * 2.0**FRACTION).round_()
    most = largest_input(silos)
    low, high = (float(end) for end in whole.aminmax()) if whole.numel() else (0.0, 0.0)
    if not max(-low, high) < most:  # also where one is NaN
        step = 2.0**-FRACTION
        raise IsthmusError(
            f"Numbers of {kind} lie between {low * step:.4g} and {high * step:.4g}, but protect=server-masks adds up "
            f"numbers of {silos} silos within ±{most * step:.4g}; use a smaller train.lr, or features that are scaled."
        )
    return whole.to(torch.int64)


def _mask(rows: Tensor, silos: list[int], group: list[int], noise: Noise) -> None:
    """Add to this host's ``rows`` [silos, ...] the masks that their silos share with others of a group, in place."""
    place = {silo: at for at, silo in enumerate(silos)}
    for first, second in combinations(sorted(group), 2):
        if first in place or second in place:
            mask = keystream(noise.pair_key(first, second), rows[:1].numel(), rows.device).reshape(rows.shape[1:])
            if first in place:
                rows[place[first]] += mask
            if second in place:
                rows[place[second]] -= mask
