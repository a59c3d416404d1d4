"""What is done to a payload before it leaves a silo, and the guarantee that comes with it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.errors import unknown
from isthmus.wire.ledger import Kind


@dataclass(frozen=True)
class Event:
    """What happened to a release: whose presence is hidden (node, edge, silo) and by which mechanism."""

    mechanism: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.mechanism}/{self.unit}" if self.unit else self.mechanism


UNPROTECTED = Event("unprotected")
FORMATS = {"": None, "float32": torch.float32, "bfloat16": torch.bfloat16}
ROWS = (Kind.EMBEDDINGS, Kind.ADJOINTS)


@dataclass(frozen=True)
class Protect:
    """The nothing of this axis: payloads leave as they are, and the ledger says so.

    ``format`` is the number format of rows on the wire: ``float32``, ``bfloat16``, or empty for that of the run. It
    saves bytes and protects nothing.
    A mechanism overrides :meth:`seal`; ``separates`` says that it must see each silo's payload on its own,
    so that parameters cannot be held in common by the silos of a host.
    """

    format: str = ""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise unknown("protect.format", self.format, [name for name in FORMATS if name])

    @property
    def separates(self) -> bool:
        """Whether every silo's payload must be available by itself."""
        return False

    def seal(self, kind: Kind, senders: Tensor, rows: Tensor) -> tuple[Tensor, Event]:
        """Constrain, then perturb rows [n, ...] of the given senders [n]; new tensors, and what was done."""
        as_sent = FORMATS[self.format] if kind in ROWS else None
        return rows if as_sent is None else rows.to(as_sent), UNPROTECTED

    def epsilon(self, kind: Kind) -> float:
        """The privacy loss of everything released of this kind so far."""
        return float("inf")
