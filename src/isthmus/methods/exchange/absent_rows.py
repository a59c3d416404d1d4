"""Halo rows of absent silos: which they are, and the rows that stand in for them until their owners are back."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.errors import unknown
from isthmus.engine.absence import AVERAGE, HALO_ROWS
from isthmus.engine.site import Site
from isthmus.methods.exchange.base import LiveExchange

PACE = 0.5  # of moving averages of released rows


def check_absent(how: str) -> None:
    """Refuse an option ``exchange.absent`` that does not exist."""
    if how not in HALO_ROWS:
        raise unknown("exchange.absent", how, HALO_ROWS)


def absent_places(site: Site) -> Tensor:
    """Which halo rows of this host belong to absent silos: [halo rows] bool."""
    members, boundary = site.wire.members, site.boundary
    gone = torch.ones(members.silos, dtype=torch.bool, device=site.device)
    gone[list(members.present)] = False
    return gone[boundary.halo_pair % members.silos]


def absent_rows(site: Site) -> Tensor:
    """Which stack rows of this host are halo rows of absent silos: [rows] bool."""
    marks = torch.zeros(site.stack.rows, dtype=torch.bool, device=site.device)
    marks[site.boundary.halo[absent_places(site)]] = True
    return marks


class AbsentRows:
    """Rows that were released last, or their moving averages, kept for times at which their owners are absent.

    They lie in the exchange's ``state``: ``absent-l`` [halo rows, width], and which of them are ``absent-known-l``.
    """

    def __init__(self, of: LiveExchange, how: str) -> None:
        self.of, self.site, self.how = of, of.site, how

    @property
    def state(self) -> dict[str, Tensor]:
        """The state of the exchange, in which the kept rows lie."""
        return self.of.state

    def keep(self, layer: int, places: Tensor, rows: Tensor) -> None:
        """Keep rows that owners released for halo rows at ``places`` of the boundary."""
        rows = rows.detach()
        if f"absent-{layer}" not in self.state:
            halo = len(self.site.boundary.halo)
            self.state[f"absent-{layer}"] = rows.new_zeros(halo, rows.shape[1])
            self.state[f"absent-known-{layer}"] = torch.zeros(halo, dtype=torch.bool, device=rows.device)
        table, known = self.state[f"absent-{layer}"], self.state[f"absent-known-{layer}"]
        pace = torch.where(known[places] & (self.how == AVERAGE), PACE, 1.0).to(rows.dtype)[:, None]
        table[places] = (1 - pace) * table[places] + pace * rows
        known[places] = True

    def fill(self, layer: int, rows: Tensor, read: Tensor) -> Tensor:
        """The rows that a layer reads (of the stack rows ``read``), those of absent silos as they were kept."""
        known = self.state.get(f"absent-known-{layer}")
        if known is None or self.site.wire.members.complete:
            return rows
        place = self.site.boundary.place[read]
        at = ((place >= 0) & (known & absent_places(self.site))[place.clamp(min=0)]).nonzero().flatten()
        return rows.index_copy(0, at, self.state[f"absent-{layer}"][place[at]].to(rows.dtype))

    def patched(self, layer: int, table: Tensor) -> Tensor:
        """A table of all halo rows, those of absent silos replaced where others were kept for them."""
        known = self.state.get(f"absent-known-{layer}")
        if known is None or self.site.wire.members.complete:
            return table
        stand_in = (known & absent_places(self.site))[:, None]
        return torch.where(stand_in, self.state[f"absent-{layer}"].to(table.dtype), table)
