"""Events: frozen records of what was done to a payload before it left, for the ledger and the accountants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

_SHARES, _MASKED = "shares, ", "masked, "  # how the texts of events begin that let nobody read a payload alone
_TOTALS = "added up by the server over "


@dataclass(frozen=True)
class Event:
    """One thing that was done to a payload; ``unit`` is whose presence it hides (node, edge, silo), if anybody's."""

    name: ClassVar[str] = "event"

    @property
    def unit(self) -> str:
        """Whose presence this hides; empty where it hides nobody's."""
        return ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Clipped(Event):
    """Each row was brought to a norm of at most ``clip``, and no noise was added."""

    name: ClassVar[str] = "clipped"
    clip: float

    def __str__(self) -> str:
        return f"clipped at {self.clip:g}, no noise"


@dataclass(frozen=True)
class GaussianNoise(Event):
    """Each row was brought to a norm of at most ``clip``, then got noise N(0, ``sigma``^2) of its own.

    ``hidden``: whose presence the noise hides. ``delta`` and ``neighbours`` are for the accountant of the privacy loss.
    """

    name: ClassVar[str] = "gaussian"
    clip: float
    sigma: float
    hidden: str
    delta: float
    neighbours: int

    @property
    def unit(self) -> str:
        """Whose presence the noise hides."""
        return self.hidden

    def __str__(self) -> str:
        return f"Gaussian noise (clip {self.clip:g}, sigma {self.sigma:g})"


@dataclass(frozen=True)
class Bounded(Event):
    """Each number was brought to an absolute value of at most ``bound``, and no noise was added."""

    name: ClassVar[str] = "bounded"
    bound: float

    def __str__(self) -> str:
        return f"each number within {self.bound:g}, no noise"


@dataclass(frozen=True)
class LaplaceNoise(Event):
    """Each number was brought to an absolute value of at most ``bound``, then got Laplace noise of its own.

    ``hidden``: whose presence the noise hides.
    """

    name: ClassVar[str] = "laplace"
    bound: float
    scale: float
    hidden: str

    @property
    def unit(self) -> str:
        """Whose presence the noise hides."""
        return self.hidden

    def __str__(self) -> str:
        return f"Laplace noise (each number within {self.bound:g}, scale {self.scale:g})"


@dataclass(frozen=True)
class Formatted(Event):
    """Numbers were sent in a shorter format, which saves bytes and hides nobody."""

    name: ClassVar[str] = "format"
    format: str

    def __str__(self) -> str:
        return f"sent as {self.format}"


@dataclass(frozen=True)
class Shared(Event):
    """Each row was divided into shares of degree ``threshold``: so many of their holders together learn nothing."""

    name: ClassVar[str] = "shares"
    threshold: int

    def __str__(self) -> str:
        return f"{_SHARES}{self.threshold + 1} of which open"


@dataclass(frozen=True)
class MaskedSums(Event):
    """Vectors of devices were masked so that only sums over groups of ``group`` devices or more can be read.

    A silo with fewer devices has one group of all of them.
    """

    name: ClassVar[str] = "masks"
    group: int

    def __str__(self) -> str:
        return f"{_MASKED}read as sums over groups of {self.group}"


@dataclass(frozen=True)
class MaskedTotals(Event):
    """Vectors of silos were masked so that the server can read sums over ``silos`` of them or more alone."""

    name: ClassVar[str] = "server masks"
    silos: int

    def __str__(self) -> str:
        return f"{_MASKED}{_TOTALS}{self.silos} silos"


@dataclass(frozen=True)
class EdgeSampling(Event):
    """A node's list of neighbours was not read, but drawn from: ``draws`` times, ``fanout`` entries each time.

    ``minimum_degree``: entries of the list, when it was shortest. ``with_replacement``: the list is no longer than the
    fanout, and entries were repeated. Lists of fewer than ``floor`` entries were not drawn from at all.
    ``claimed_rate``: the rate at which a generator kept rows that it made of draws, by which a paper claims
    amplification.
    """

    name: ClassVar[str] = "edge sampling"
    minimum_degree: int
    fanout: int
    draws: int
    with_replacement: bool
    floor: int = 0
    claimed_rate: float = 1.0

    @property
    def unit(self) -> str:
        """An edge, as an entry of this list."""
        return "edge"

    def __str__(self) -> str:
        how = "with" if self.with_replacement else "without"
        return f"{self.draws} draws of {self.fanout} from {self.minimum_degree} neighbours, {how} replacement"


@dataclass(frozen=True)
class NoisyGradients(Event):
    """The gradient of each seed was brought to a norm of at most ``clip``; their sum got noise of ``sigma`` clips."""

    name: ClassVar[str] = "noisy gradients"
    clip: float
    sigma: float
    delta: float

    @property
    def unit(self) -> str:
        """The label of a seed, where there is noise."""
        return "label" if self.sigma else ""

    def __str__(self) -> str:
        noise = f"noise of {self.sigma:g} clips at every step" if self.sigma else "no noise"
        return f"gradients of seeds clipped at {self.clip:g}, {noise}"


@dataclass(frozen=True)
class WholeLists(Event):
    """Lists of neighbours were read as a whole, in ``passes`` passes, which hides no edge."""

    name: ClassVar[str] = "whole lists"
    passes: int

    def __str__(self) -> str:
        return f"whole lists read {self.passes} times"


Events = tuple[Event, ...]  # what a chain of mechanisms has done, first to last; empty: nothing
EVENTS: dict[str, type[Event]] = {
    event.name: event
    for event in (
        Clipped, GaussianNoise, Bounded, LaplaceNoise, Formatted, EdgeSampling, WholeLists, NoisyGradients,
        Shared, MaskedSums, MaskedTotals,
    )
}  # fmt: skip
UNPROTECTED = "unprotected"


def register_event(event: type[Event]) -> type[Event]:
    """Register an event class under its name, so that checkpoints with such events can be read; returns the class."""
    EVENTS[event.name] = event
    return event


def describe(events: Events) -> str:
    """Events as ledgers and reports print them: what was done, and after a slash the unit that is hidden."""
    if not events:
        return UNPROTECTED
    unit = next((event.unit for event in events if event.unit), "")
    return ", ".join(map(str, events)) + (f"/{unit}" if unit else "")


def hides(text: str) -> str:
    """The unit that a text of :func:`describe` names as hidden; empty where it names none."""
    return text.partition("/")[2]


def veil(text: str) -> str:
    """As what a text of :func:`describe` says that nobody reads the payload alone; empty where somebody does."""
    return next((said for word, said in ((_SHARES, "shares"), (_MASKED, "masked sums")) if word in text), "")


def silos_in_sum(text: str) -> int:
    """The number of silos in the smallest sum that the server reads of masked vectors, by a text of :func:`describe`.

    0 where it says nothing of such sums.
    """
    number = text.partition(_TOTALS)[2].partition(" ")[0]
    return int(number) if number else 0


def to_json(events: Events) -> list[dict[str, Any]]:
    """Events as JSON can hold them."""
    return [{"name": event.name, **{k: _plain(v) for k, v in asdict(event).items()}} for event in events]


def from_json(told: Sequence[Mapping[str, Any]]) -> Events:
    """Events from the list of dictionaries that :func:`to_json` gave."""
    return tuple(
        EVENTS[each["name"]](**{k: math.inf if v == "inf" else v for k, v in each.items() if k != "name"})
        for each in told
    )


def _plain(value: Any) -> Any:
    return "inf" if value == math.inf else value
