"""What is done to a payload before it leaves a silo, and the guarantee that comes with it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from isthmus.wire.ledger import Kind


@dataclass(frozen=True)
class Event:
    """What happened to a release: whose presence is hidden (node, edge, silo) and by which mechanism."""

    mechanism: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.mechanism}/{self.unit}" if self.unit else self.mechanism


UNPROTECTED = Event("unprotected")


@dataclass(frozen=True)
class Protect:
    """The nothing of this axis: payloads leave as they are, and the ledger says so.

    A mechanism overrides :meth:`seal`; ``separates`` says that it must see each silo's payload on its own,
    so that parameters cannot be held in common by the silos of a host.
    """

    @property
    def separates(self) -> bool:
        """Whether every silo's payload must be available by itself."""
        return False

    def seal(self, kind: Kind, senders: Tensor, rows: Tensor) -> tuple[Tensor, Event]:
        """Constrain, then perturb rows [n, ...] of the given senders [n]; new tensors, and what was done."""
        return rows, UNPROTECTED

    def epsilon(self, kind: Kind) -> float:
        """The privacy loss of everything released of this kind so far."""
        return float("inf")
