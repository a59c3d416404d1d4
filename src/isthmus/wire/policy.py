"""A party's own rules on what may leave it; every wire asks them before anything leaves."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.core.errors import IsthmusError
from isthmus.core.parcel import Parcel


class Refused(IsthmusError):
    """A party's policy does not let a parcel leave."""


@dataclass(frozen=True)
class Policy:
    """The rules of the parties on one host; these let everything leave."""

    def refusal(self, parcel: Parcel) -> str:
        """Why a parcel may not leave, naming the rule; empty where it may."""
        return ""

    def check(self, parcel: Parcel) -> None:
        """Refuse a parcel that may not leave, before anything of it does."""
        why = self.refusal(parcel)
        if why:
            raise Refused(why)
