"""How many releases a parcel adds for each silo, by unit: counted before it leaves, as the accountants count later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from isthmus.core.kinds import ROWS, Kind
from isthmus.core.parcel import Parcel
from isthmus.policy.units import NODE, ROW
from isthmus.protect.events import Event


class RowCounts:
    """How often each row of this host has left in this stretch of a run, by kind and noise.

    Rows are numbered as in the book of releases: those of one silo after the other, ``sizes`` of each. What is charged
    follows ``protect/accounting/charges.py``: a row is charged for every release that holds it, the data of a node also
    for all that was computed with it.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[Kind, Event], Tensor] = {}
        self._worst: dict[tuple[Kind, Event], Tensor] = {}  # [silos of this host]

    def added(
        self, parcel: Parcel, noise: Event, silos: Sequence[int], sizes: Sequence[int], units: Sequence[str]
    ) -> dict[str, Mapping[int, int]]:
        """By unit and number of the silo, the releases that a parcel adds; the parcel is counted."""
        if parcel.kind not in ROWS:
            payloads = self._listed(parcel.origin.silo)
            return dict.fromkeys((unit for unit in units if unit != ROW), payloads)
        found: dict[str, Mapping[int, int]] = {}
        worst = parcel.kind in (Kind.EMBEDDINGS, Kind.PARTIALS, Kind.AGGREGATES) and (
            ROW in units or (NODE in units and parcel.kind == Kind.AGGREGATES)
        )
        most = self._of_worst_row(parcel, noise, silos, sizes) if worst else {}
        rows = self._listed(*_distinct(parcel)) if set(units) - {ROW} else {}
        for unit in units:
            by_row = unit == ROW or (unit == NODE and parcel.kind == Kind.AGGREGATES)
            found[unit] = most if by_row else rows
        return found

    def _of_worst_row(
        self, parcel: Parcel, noise: Event, silos: Sequence[int], sizes: Sequence[int]
    ) -> Mapping[int, int]:
        """By silo, how many releases a parcel adds to the row that has left most often."""
        origin, key = parcel.origin, (parcel.kind, noise)
        if key not in self._counts:
            self._counts[key] = torch.zeros(sum(sizes), dtype=torch.int64)
            self._worst[key] = torch.zeros(len(silos), dtype=torch.int64)
        counts, worst = self._counts[key], self._worst[key]
        if origin.parts is None:
            at = origin.row.cpu()
            counts.index_copy_(0, at, counts.index_select(0, at) + 1)
        else:
            at = origin.parts.cpu()
            counts.index_add_(0, at, torch.ones_like(at))
        ends = torch.tensor(sizes, dtype=torch.int64).cumsum(0)
        place = torch.bucketize(at, ends, right=True)
        now = worst.scatter_reduce(0, place, counts.index_select(0, at), "amax")
        self._worst[key] = now
        return {silo: more for silo, more in zip(silos, (now - worst).tolist(), strict=True) if more}

    @staticmethod
    def _listed(silo: Tensor) -> dict[int, int]:
        """How often each silo is listed."""
        each, counts = silo.cpu().unique(return_counts=True)
        return dict(zip(each.tolist(), counts.tolist(), strict=True))


def _distinct(parcel: Parcel) -> tuple[Tensor]:
    """The silo of each row that leaves; a row that leaves for several receivers is listed once."""
    row, silo = parcel.origin.row.cpu(), parcel.origin.silo.cpu()
    many = int(row.max()) + 1 if len(row) else 1
    return ((silo * many + row).unique() // many,)
