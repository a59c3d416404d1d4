"""A party's own rules on what may leave it; :meth:`Door.leave` asks them before it seals a parcel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from isthmus.core.errors import IsthmusError
from isthmus.core.parcel import Parcel
from isthmus.protect.base import Chain
from isthmus.protect.releases import Releases
from isthmus.protect.secrets import Noise
from isthmus.wire.ledger import Ledger


class Refused(IsthmusError):
    """A party's policy does not let a parcel leave, or does not take part in a run.

    ``told`` is what other parties hear: who refuses what, and by which rule.
    """

    def __init__(self, message: str, told: str = "") -> None:
        super().__init__(message)
        self.told = told or "The policy of a party ends this run."


class Sender(Protocol):
    """What a policy may know of the wire that asks it: mechanisms, books, its own silos, and names of parties."""

    protect: Chain
    ledger: Ledger
    noise: Noise
    releases: Releases
    mine: tuple[int, ...]

    def party(self, number: int) -> str:
        """The name of a party."""


@dataclass(frozen=True)
class Policy:
    """Rules of the parties on one host. This one lets everything leave; a subclass overrides ``refusal`` or ``admit``.

    Rules that a party wrote down for itself are read and applied in the room ``policy``.
    """

    def refusal(self, parcel: Parcel) -> str:
        """The reason why a parcel may not leave, with the rule's name; an empty string where it may."""
        return ""

    def check(self, parcel: Parcel) -> None:
        """Raise `Refused` for a parcel that may not leave."""
        why = self.refusal(parcel)
        if why:
            raise Refused(why)

    def admit(self, sender: Sender, parcels: Collection[Parcel]) -> None:
        """Raise `Refused` where one of the parcels that are to leave ``sender`` together may not leave."""
        for parcel in parcels:
            self.check(parcel)
