"""The chain of mechanisms that change a payload before it leaves a silo, applied in order and undone in reverse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.nn.maps import sum_lists
from isthmus.protect.events import Event, Events
from isthmus.protect.secrets import Noise


@dataclass(frozen=True)
class Sealed:
    """Rows as they leave, what was done to them, and, where noise was added, the rows before it.

    ``shares``: into how many each row was divided, [n, shares, ...]; 1 where it was not.
    """

    rows: Tensor
    events: Events = ()
    plain: Tensor | None = None
    shares: int = 1


@dataclass(frozen=True)
class Mechanism:
    """Base of all mechanisms; this one changes nothing.

    ``seal`` runs at the sender and may change width and number format; ``open`` runs at whoever may read and brings
    rows back to the format of the run. What the server makes of sealed rows needs no second seal.
    """

    name: ClassVar[str] = "nothing"
    needs_all: ClassVar[str] = ""  # why it cannot go on without a member; empty: it can
    encodes: ClassVar[bool] = False  # its rows can be read only after ``open``
    whole: ClassVar[bool] = False  # its rows are whole numbers, which can be added up before ``open``
    reads_whole: ClassVar[bool] = False  # it takes whole numbers, as a mechanism before it makes them
    shares: ClassVar[bool] = False  # it divides each row of nodes among several holders
    changes_rows: ClassVar[bool] = True  # it may change rows of nodes
    of_devices: ClassVar[bool] = False  # it acts on what devices hand in to their silo, and on nothing else
    bounds_seeds: ClassVar[bool] = False  # it acts on gradients of single seeds, at every step of a silo
    of_totals: ClassVar[bool] = False  # it acts on what the server adds up; nothing can be done to that behind it

    def weighs(self, kind: Kind) -> bool:
        """Whether it multiplies rows that the server adds up by their weights, since the server cannot."""
        return False

    def check_silos(self, silos: int) -> None:
        """Refuse to protect a federation of so many silos."""

    def shortfalls(self, devices: Mapping[str, int]) -> list[str]:
        """Sentences on silos, with so many ``devices`` each, for which it protects less than was asked for."""
        return []

    def separates(self, kind: Kind) -> bool:
        """Whether it must see each silo's payload of this kind by itself, so that silos cannot hold it in common."""
        return False

    @property
    def noisy(self) -> bool:
        """Whether it draws from silos' secrets."""
        return False

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        """New rows for a parcel, what was done (None: nothing), and the rows before noise (None: no noise)."""
        return parcel.rows, None, None

    def bound_each(self, gradients: Tensor) -> Tensor:
        """Gradients of single seeds [n, numbers] with their norms bounded, before they are summed; here unchanged."""
        return gradients

    def perturb(self, sums: Tensor, silos: Sequence[int], noise: Noise) -> tuple[Tensor, Event | None]:
        """Sums of bounded gradients of ``silos`` [n, numbers], perturbed, and what was done (here None: nothing)."""
        return sums, None

    def open(self, kind: Kind, rows: Tensor, like: Tensor) -> Tensor:
        """Rows that arrived, in the number format and width of ``like``."""
        return rows

    def add(self, rows: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
        """Sums of sealed rows at each target t, over the rows near[ptr[t]:ptr[t + 1]]: [targets, ...]."""
        return sum_lists(rows, near, ptr)

    @property
    def terms(self) -> float:
        """How many sealed rows may be added up at most."""
        return math.inf

    @property
    def holders(self) -> int:
        """Among how many parties it divides each row of a node."""
        return 1


@dataclass(frozen=True)
class Chain:
    """Mechanisms in the order in which they act; without any, payloads leave as they are and the ledger says so."""

    mechanisms: tuple[Mechanism, ...] = ()

    def check(self) -> None:
        """Refuse a chain whose mechanisms cannot follow each other in this order."""
        names = [mechanism.name for mechanism in self.mechanisms]
        if len(set(names)) < len(names):
            raise IsthmusError(f"protect is {', '.join(names)}: each mechanism can be in the chain once.")
        before: Mechanism | None = None  # the last one whose rows can be read only after ``open``
        for mechanism in self.mechanisms:
            fits = mechanism.reads_whole and before is not None and before.whole
            if mechanism.reads_whole and not fits:
                raise IsthmusError(
                    f"protect is {', '.join(names)}: '{mechanism.name}' takes whole numbers; put fixed-point before it."
                )
            if before is not None and not fits and mechanism.changes_rows:
                raise IsthmusError(
                    f"protect is {', '.join(names)}: after '{before.name}' rows are no plain numbers any more, so that "
                    f"'{mechanism.name}' must come before it."
                )
            before = mechanism if mechanism.encodes else before
        for mechanism in self.mechanisms[:-1]:
            if mechanism.of_totals:
                raise IsthmusError(
                    f"protect is {', '.join(names)}: '{mechanism.name}' masks what the server adds up; put it last."
                )

    @property
    def shares(self) -> bool:
        """Whether rows of nodes are divided among several holders."""
        return any(mechanism.shares for mechanism in self.mechanisms)

    @property
    def adds(self) -> bool:
        """Whether sealed rows of nodes can be added up before they are opened."""
        return all(mechanism.whole for mechanism in self.mechanisms if mechanism.encodes)

    @property
    def adds_sealed(self) -> bool:
        """Whether rows of nodes leave in a form that can be added up and is no plain number: whole numbers, shares."""
        return self.adds and any(mechanism.encodes for mechanism in self.mechanisms)

    @property
    def holders(self) -> int:
        """Among how many parties each row of a node is divided."""
        return max((mechanism.holders for mechanism in self.mechanisms), default=1)

    @property
    def terms(self) -> float:
        """How many sealed rows may be added up at most."""
        return min((mechanism.terms for mechanism in self.mechanisms), default=math.inf)

    def add(self, rows: Tensor, near: Tensor, ptr: Tensor) -> Tensor:
        """Sums of sealed rows at each target t, over the rows near[ptr[t]:ptr[t + 1]]: [targets, ...]."""
        encoding = [mechanism for mechanism in self.mechanisms if mechanism.encodes]
        return (encoding[-1] if encoding else Mechanism()).add(rows, near, ptr)

    @property
    def noisy(self) -> bool:
        """Whether anything that leaves may get noise."""
        return any(mechanism.noisy for mechanism in self.mechanisms)

    @property
    def secrets(self) -> str:
        """Where noise comes from: ``seed``, ``random``, or empty for the default of the wire."""
        chosen = (getattr(mechanism, "secrets", "") for mechanism in self.mechanisms if mechanism.noisy)
        return next((secrets for secrets in chosen if secrets), "")

    def separates(self, kind: Kind) -> bool:
        """Whether some mechanism must see each silo's payload of this kind by itself."""
        return any(mechanism.separates(kind) for mechanism in self.mechanisms)

    def weighs(self, kind: Kind) -> bool:
        """Whether some mechanism multiplies rows that the server adds up by their weights."""
        return any(mechanism.weighs(kind) for mechanism in self.mechanisms)

    @property
    def of_totals(self) -> bool:
        """Whether some mechanism acts on what the server adds up."""
        return any(mechanism.of_totals for mechanism in self.mechanisms)

    def check_silos(self, silos: int) -> None:
        """Refuse to protect a federation of so many silos."""
        for mechanism in self.mechanisms:
            mechanism.check_silos(silos)

    def shortfalls(self, devices: Mapping[str, int]) -> list[str]:
        """Sentences on silos, with so many ``devices`` each, that are protected less than was asked for."""
        return [said for mechanism in self.mechanisms for said in mechanism.shortfalls(devices)]

    @property
    def bounds_seeds(self) -> bool:
        """Whether some mechanism acts on gradients of single seeds."""
        return any(mechanism.bounds_seeds for mechanism in self.mechanisms)

    def bound_each(self, gradients: Tensor) -> Tensor:
        """Let every mechanism act on gradients of single seeds [n, numbers], first to last."""
        for mechanism in self.mechanisms:
            gradients = mechanism.bound_each(gradients)
        return gradients

    def perturb(self, sums: Tensor, silos: Sequence[int], noise: Noise) -> tuple[Tensor, Events]:
        """Let every mechanism act on sums of bounded gradients [n, numbers] of the named silos, first to last."""
        events = list[Event]()
        for mechanism in self.mechanisms:
            sums, event = mechanism.perturb(sums, silos, noise)
            events += [event] if event is not None else []
        return sums, tuple(events)

    def seal(self, parcel: Parcel, noise: Noise) -> Sealed:
        """Let every mechanism act on a parcel, first to last."""
        rows, events, plain = parcel.rows, list[Event](), None
        for mechanism in self.mechanisms:
            rows, event, found = mechanism.seal(replace(parcel, rows=rows), noise)
            events += [event] if event is not None else []
            plain = found if found is not None else plain
        divided = self.shares and parcel.of_nodes
        return Sealed(rows, tuple(events), plain, rows.shape[1] if divided else 1)

    def events(self, kind: Kind) -> Events:
        """The events of a parcel of this kind that passes the chain."""
        none = torch.zeros(0, dtype=torch.int64)
        return self.seal(Parcel(kind, torch.zeros(0, 1), Origin(none, none), Traffic.up(none)), Noise()).events

    def open(self, kind: Kind, rows: Tensor, like: Tensor) -> Tensor:
        """Bring rows that arrived into readable form: every mechanism's ``open``, last to first."""
        for mechanism in reversed(self.mechanisms):
            rows = mechanism.open(kind, rows, like)
        return rows
