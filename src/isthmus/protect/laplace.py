"""The Laplace mechanism: each number of a gradient is bounded and gets Laplace noise at its sender; off by default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Mechanism
from isthmus.protect.events import Bounded, Event, LaplaceNoise
from isthmus.protect.gaussian import SECRETS, drawn, finite
from isthmus.protect.secrets import Noise


@dataclass(frozen=True)
class Laplace(Mechanism):
    r"""g <- clip(g, ``bound``) + Laplace(0, ``scale``), for each number of each silo's gradient by itself.

    Equation 1 of Wu et al. 2022 (clip threshold delta, noise strength lambda). A number lies in [-bound, bound], so
    that one number of one release has pure local differential privacy with epsilon = 2 bound / scale, whatever the
    silo's data is. That is the paper's figure. A gradient has P numbers, and the data of a node is in all of them: R
    releases have epsilon = R P 2 bound / scale, which is what the accountant says.

    With bound = infinity and scale = 0, the default, nothing is done and nothing is claimed. What is not gradients
    leaves as it is. A gradient that is not finite leaves as noise alone. ``secrets``: noise comes from
    the run's ``seed``, or from ``random`` secrets of each silo; empty: the seed in a simulation, else secrets.
    """

    name: ClassVar[str] = "laplace"
    bound: float = math.inf
    scale: float = 0.0
    secrets: str = ""

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise IsthmusError(f"protect.bound is {self.bound}; it must be positive (inf: no bound).")
        if not 0 <= self.scale < math.inf:
            raise IsthmusError(f"protect.scale is {self.scale}; it must be a finite number, 0 (no noise) or more.")
        if self.secrets not in SECRETS:
            raise unknown("protect.secrets", self.secrets, [choice for choice in SECRETS if choice])

    @property
    def noisy(self) -> bool:
        """Whether gradients leave with noise."""
        return self.scale > 0

    def separates(self, kind: Kind) -> bool:
        """Whether gradients are bounded or get noise: a sum over silos cannot be bounded silo by silo."""
        return kind == Kind.GRADIENTS and (self.bound < math.inf or self.noisy)

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """Bound each number and add noise to it; gradients that the server summed are not changed again."""
        if not self.separates(parcel.kind) or parcel.derived:
            return parcel.rows, None, None
        event: Event = LaplaceNoise(self.bound, self.scale, "silo") if self.noisy else Bounded(self.bound)
        if parcel.by_server:
            return parcel.rows, event, None
        if not self.noisy:
            return parcel.rows.clamp(-self.bound, self.bound), event, None
        plain = finite(parcel.rows).clamp(-self.bound, self.bound)
        return plain + self.scale * drawn(plain, parcel.origin, noise, noise.laplace), event, plain
