"""Who takes part: the silos of a federation, those of them that are present, and the host each party lives on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER


@dataclass(frozen=True)
class Membership:
    """The parties of a federation; collectives run over the silos that are ``present``, and the server.

    Silos are numbered 0 .. ``silos`` - 1 whether they are present or not. A host carries silos, the server, or both.
    """

    silos: int
    homes: tuple[int, ...]  # [silos] host of each silo
    server: int  # host of the server
    present: tuple[int, ...]  # ascending

    @staticmethod
    def dealt(silos: int, hosts: int = 1) -> Membership:
        """All silos present, divided among hosts in contiguous runs (host order is silo order); the server on host 0.

        With one host more than there are silos, host 0 carries the server alone.
        """
        if not 1 <= hosts <= silos + 1:
            raise IsthmusError(
                f"--hosts {hosts}, but there are only {silos} silos; a host carries at least one of them, or the "
                f"server alone: at most {silos + 1} hosts."
            )
        alone = hosts > silos
        carriers = hosts - alone
        homes = [host + alone for host in range(carriers) for _ in _run(host, carriers, silos)]
        return Membership(silos, tuple(homes), 0, tuple(range(silos)))

    def only(self, present: Iterable[int]) -> Membership:
        """A copy of this membership in which only the silos ``present`` are present."""
        chosen = tuple(sorted(set(present)))
        if not chosen or not set(chosen) <= set(range(self.silos)):
            raise IsthmusError(
                f"Members {list(chosen)} must be some of the silos 0..{self.silos - 1}, and at least one."
            )
        return replace(self, present=chosen)

    def on(self, host: int) -> tuple[int, ...]:
        """The present silos of a host, ascending."""
        return tuple(silo for silo in self.present if self.homes[silo] == host)

    def carried(self, host: int) -> tuple[int, ...]:
        """All silos that live on a host, present or not, ascending."""
        return tuple(silo for silo, home in enumerate(self.homes) if home == host)

    def home(self, party: int) -> int:
        """The host on which a party lives."""
        return self.server if party == SERVER else self.homes[party]

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """Hosts that carry a present silo or the server, ascending."""
        return tuple(sorted({self.server, *(self.homes[silo] for silo in self.present)}))

    @property
    def complete(self) -> bool:
        """Whether every silo is present."""
        return len(self.present) == self.silos

    @property
    def shared_with_server(self) -> tuple[int, ...]:
        """Silos in whose process the server lives: their owners also see what the server sees."""
        return tuple(silo for silo, host in enumerate(self.homes) if host == self.server)


def _run(host: int, hosts: int, silos: int) -> range:
    """Numbers of the silos that ``host`` carries when ``silos`` are divided among ``hosts``."""
    return range(host * silos // hosts, (host + 1) * silos // hosts)
