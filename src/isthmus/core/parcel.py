"""What leaves a party at once: rows of one kind, whose data is inside, and from whom to whom each row goes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from isthmus.core.kinds import ROWS, SERVER, SILO, Kind


@dataclass(frozen=True)
class Origin:
    """Whose data is inside the rows of a parcel.

    Row i is what silo ``silo[i]`` tells of its row ``row[i]`` (a stack row of its host). A row that leaves for several
    receivers is listed once for each of them, and is still one release of one row. ``parts`` names the stack rows that
    sums were made of, each once for every sum that it is in; None where rows are no sums. The row of a derivative is
    the far end that it is for; what is inside comes from the losses of the silo that sends it. ``fewest``: of how many
    rows, or silos, any sum that somebody reads is made at least; 1 where rows are no sums, or nobody has counted.
    """

    silo: Tensor  # [n]
    row: Tensor  # [n]
    parts: Tensor | None = None
    fewest: int = 1

    @staticmethod
    def whole(silos: Tensor, fewest: int = 1) -> Origin:
        """One payload of each silo, as a whole; ``fewest`` silos have one, where others read their sum alone."""
        return Origin(silos, torch.zeros_like(silos), fewest=fewest)

    @staticmethod
    def server(rows: int) -> Origin:
        """Rows that the server has made of what silos sent it."""
        return Origin(torch.full((rows,), SERVER), torch.arange(rows))


def members(source: Tensor, target: Tensor, rows: int) -> Tensor:
    """The sources, of ``rows``, that are in the sums of targets: each once for every sum, also along parallel edges."""
    pairs: Tensor = (target * rows + source).unique()
    return pairs % rows


@dataclass(frozen=True)
class Traffic:
    """How many rows each sender sends to each receiver: one message for every entry."""

    sender: np.ndarray  # [messages] numbers of parties
    receiver: np.ndarray
    rows: np.ndarray

    @staticmethod
    def between(pairs: Tensor, silos: int) -> Traffic:
        """Rows between silos, each by its pair (sender * silos + receiver); who has nothing to send sends nothing."""
        code, rows = np.unique(pairs.cpu().numpy(), return_counts=True)
        return Traffic(code // silos, code % silos, rows)

    @staticmethod
    def up(silo: Tensor) -> Traffic:
        """Rows of silos on their way to the server, each by the number of its silo."""
        sender, rows = np.unique(silo.cpu().numpy(), return_counts=True)
        return Traffic(sender, np.full_like(sender, SERVER), rows)

    @staticmethod
    def down(silo: Tensor) -> Traffic:
        """Rows of the server on their way to silos, each by the number of its silo."""
        there = Traffic.up(silo)
        return Traffic(there.receiver, there.sender, there.rows)

    def __add__(self, other: Traffic) -> Traffic:
        """The messages of both."""
        both = zip((self.sender, self.receiver, self.rows), (other.sender, other.receiver, other.rows), strict=True)
        return Traffic(*(np.concatenate(each) for each in both))

    @staticmethod
    @lru_cache(maxsize=1024)
    def round_trip(silos: tuple[int, ...]) -> Traffic:
        """One row of each silo up to the server, and one row back to each."""
        mine, server = np.array(silos, dtype=np.int64), np.full(len(silos), SERVER)
        ends = np.concatenate([mine, server]), np.concatenate([server, mine])
        return Traffic(*ends, np.ones(2 * len(silos), dtype=np.int64))

    @staticmethod
    @lru_cache(maxsize=65536)  # the same few letters travel over and over
    def single(sender: int, receiver: int, rows: int) -> Traffic:
        """One message, also where it is empty."""
        return Traffic(np.array([sender]), np.array([receiver]), np.array([rows]))


@dataclass(frozen=True)
class Level:
    """Whose the rows of a silo are: at this level the silo's own, and nothing lies below it."""

    name: ClassVar[str] = SILO

    def named(self, kind: Kind, traffic: Traffic) -> Traffic:
        """Messages as the ledger is to name their parties; here as they are."""
        return traffic

    def below(self, kind: Kind, traffic: Traffic) -> Traffic | None:
        """What devices hand in to their silos for messages of silos; here None."""
        return None


@dataclass(frozen=True)
class Parcel:
    """Rows [n, ...] of one kind on their way out; ``layer`` is the layer that will read them, where that has a meaning.

    On a host that receives without sending, ``rows`` is empty but has the width and number format of what will arrive.
    ``holders``: where rows may be divided into shares, who gets the first share of each row, the second, and so on.
    ``copies``: where every message has shares of its own, the row that each carries (None: a row is one message).
    ``derived``: somebody made these rows of what arrived; whose data is inside was booked when that left.
    ``added``: the server adds these rows up, one of each of these silos; ``weights``: what each row here counts for.
    """

    kind: Kind
    rows: Tensor
    origin: Origin
    traffic: Traffic
    layer: int = 0
    by_server: bool = False
    holders: tuple[Traffic, ...] = ()
    copies: Tensor | None = None
    derived: bool = False
    added: tuple[int, ...] = ()
    weights: Tensor | None = None

    @property
    def of_nodes(self) -> bool:
        """Whether silos release rows that belong to single nodes, or to a few of them."""
        return self.kind in ROWS and not self.by_server and not self.derived
