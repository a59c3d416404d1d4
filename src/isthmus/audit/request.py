"""The settings of an audit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isthmus.core.errors import IsthmusError

WHAT_IF = (0.1, 0.3, 1.0, 3.0)  # noise that is added afterwards where the run added none


@dataclass(frozen=True)
class AuditRequest:
    """The settings of an audit.

    ``targets`` are attacked at each layer up to ``deepest``. ``sigmas`` are levels of noise to add to every released
    row (None: those of ``WHAT_IF``, to rows before the first layer, if the run itself added no noise). ``epochs``: how
    many of the run's epochs are replayed (None: all).
    """

    targets: int = 64
    seed: int = 0
    sigmas: tuple[float, ...] | None = None
    deepest: int | None = None
    epochs: int | None = None

    def check(self) -> None:
        """Raise a clear error for settings that make no sense."""
        least = {"targets": 1, "seed": 0, "deepest": 0, "epochs": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise IsthmusError(f"--{name} is {value}; it must be at least {bound}.")
        for sigma in self.sigmas or ():
            if not 0 <= sigma < math.inf:
                raise IsthmusError(f"--sigma has {sigma:g}; noise is a finite number, 0 or more.")

    def levels(self, sigma: float, layer: int) -> list[float]:
        """The levels of noise to add to rows before a layer that left with noise ``sigma``; the first level is 0."""
        asked = self.sigmas if self.sigmas is not None else () if sigma or layer else WHAT_IF
        return [0.0, *sorted({level for level in asked if level})]


def parse_sigmas(text: str | None) -> tuple[float, ...] | None:
    """The numbers in a text such as ``0.1,0.3,1``; None for None."""
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise IsthmusError(f"--sigma is '{text}'; give numbers between commas, like --sigma 0.1,0.3,1.") from None
