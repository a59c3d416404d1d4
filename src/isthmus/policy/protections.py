"""Protections that a rule may ask for: which event of a message shows one, and which bounds it must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.protect.events import (
    Bounded,
    Clipped,
    Event,
    Events,
    Formatted,
    GaussianNoise,
    LaplaceNoise,
    MaskedSums,
    MaskedTotals,
    NoisyGradients,
    Shared,
)

LEAST, MOST = "at least", "at most"


@dataclass(frozen=True)
class Protection:
    """One protection by name: the events that show it, and for each bound whether it is a least or a most value."""

    events: tuple[type[Event], ...]
    bounds: Mapping[str, str]


PROTECTIONS: dict[str, Protection] = {
    "gaussian": Protection((GaussianNoise,), {"sigma": LEAST, "clip": MOST, "ratio": LEAST}),
    "laplace": Protection((LaplaceNoise,), {"scale": LEAST, "bound": MOST}),
    "clipped": Protection((Clipped, GaussianNoise), {"clip": MOST}),
    "bounded": Protection((Bounded, LaplaceNoise), {"bound": MOST}),
    "shares": Protection((Shared,), {"threshold": LEAST}),
    "masks": Protection((MaskedSums,), {"group": LEAST}),
    "server-masks": Protection((MaskedTotals,), {"silos": LEAST}),
    "dp-sgd": Protection((NoisyGradients,), {"sigma": LEAST, "clip": MOST}),
    "format": Protection((Formatted,), {}),
}


@dataclass(frozen=True)
class RequiredProtection:
    """One protection with its bounds: ``gaussian = { sigma = 1.0, clip = 5.0 }``.

    ``ratio`` of a Gaussian is sigma / clip. ``formats``: the number formats of which one must be used.
    """

    name: str
    bounds: tuple[tuple[str, float], ...] = ()
    formats: tuple[str, ...] = ()

    def met(self, events: Events) -> bool:
        """Whether a message with these events has this protection."""
        shown = [event for event in events if isinstance(event, PROTECTIONS[self.name].events)]
        return any(self._within(event) for event in shown)

    def _within(self, event: Event) -> bool:
        if isinstance(event, Formatted):
            return not self.formats or event.format in self.formats
        sides = PROTECTIONS[self.name].bounds
        return all(_kept(_value(event, key), bound, sides[key]) for key, bound in self.bounds)

    def __str__(self) -> str:
        sides = PROTECTIONS[self.name].bounds
        words = [f"{key} {sides[key]} {bound:g}" for key, bound in self.bounds]
        words += [f"one of {', '.join(self.formats)}"] if self.formats else []
        return self.name + (f" ({', '.join(words)})" if words else "")


def _value(event: Event, key: str) -> float:
    if key == "ratio" and isinstance(event, GaussianNoise):
        return event.sigma / event.clip
    value: Any = getattr(event, key)
    return float(value)


def _kept(value: float, bound: float, side: str) -> bool:
    return value >= bound if side == LEAST else value <= bound
