"""What is done to a payload before it leaves a silo, and the guarantee that comes with it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.errors import unknown
from isthmus.protect.noise import Noise
from isthmus.wire.ledger import Kind


@dataclass(frozen=True)
class Event:
    """What happened to a release: whose presence is hidden (node, edge, silo) and by which mechanism."""

    mechanism: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.mechanism}/{self.unit}" if self.unit else self.mechanism


def hides(event: str) -> str:
    """The unit that a written event hides; empty where it hides none."""
    return event.partition("/")[2]


UNPROTECTED = Event("unprotected")
FORMATS = {"": None, "float32": torch.float32, "bfloat16": torch.bfloat16}
# What belongs to single nodes, or to a few of them; how often each left is counted.
ROWS = (Kind.EMBEDDINGS, Kind.ADJOINTS, Kind.AGGREGATES, Kind.PARTIALS)


@dataclass(frozen=True)
class Origin:
    """Whose rows leave: the silo of each [n], and which of its rows it is [n].

    A row that leaves for several silos is listed once for each of them, and is still one release of one row.
    """

    silo: Tensor
    row: Tensor

    @staticmethod
    def whole(silos: Tensor) -> Origin:
        """One payload of each silo, as a whole."""
        return Origin(silos, torch.zeros_like(silos))


@dataclass(frozen=True)
class Protect:
    """The nothing of this axis: payloads leave as they are, and the ledger says so.

    ``format`` is the number format of rows on the wire: ``float32``, ``bfloat16``, or empty for that of the run. It
    saves bytes and protects nothing. A mechanism overrides the three methods.
    """

    format: str = ""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise unknown("protect.format", self.format, [name for name in FORMATS if name])

    def separates(self, kind: Kind) -> bool:
        """Whether it must see each silo's payload of this kind by itself, so that silos cannot hold it in common."""
        return False

    def seal(self, kind: Kind, rows: Tensor, origin: Origin, noise: Noise) -> tuple[Tensor, Event]:
        """Constrain, then perturb rows [n, ...]; new tensors, and what was done."""
        return self.formatted(kind, rows), UNPROTECTED

    def formatted(self, kind: Kind, rows: Tensor) -> Tensor:
        """Rows in the number format of the wire."""
        as_sent = FORMATS[self.format] if kind in ROWS else None
        return rows if as_sent is None else rows.to(as_sent)

    def constrain(self, kind: Kind, rows: Tensor) -> Tensor | None:
        """The rows as noise finds them, by which the loss of privacy is measured; None where none is added."""
        return None
