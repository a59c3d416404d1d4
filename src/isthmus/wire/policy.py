"""A party's own rules on what may leave it; :meth:`Door.leave` asks them before it seals a parcel."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.core.errors import IsthmusError
from isthmus.core.parcel import Parcel


class Refused(IsthmusError):
    """A party's policy does not let a parcel leave."""


@dataclass(frozen=True)
class Policy:
    """Rules of the parties on one host. This one lets everything leave; a subclass overrides ``refusal``."""

    def refusal(self, parcel: Parcel) -> str:
        """The reason why a parcel may not leave, with the rule's name; an empty string where it may."""
        return ""

    def check(self, parcel: Parcel) -> None:
        """Raise `Refused` for a parcel that may not leave."""
        why = self.refusal(parcel)
        if why:
            raise Refused(why)
