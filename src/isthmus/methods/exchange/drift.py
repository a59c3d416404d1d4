"""Drift: how far kept halo rows had moved when fresh ones arrived at the end of a round.

drift = sqrt(sum over rows of |new - old|^2 / sum over rows of |new|^2), for each silo.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.engine.site import Site

FAR = 0.4  # a mean drift above which runs were seen to lose where most edges cross (docs/moving.md)


class Drift:
    """Squared distances and sizes of halo rows, summed over the layers of a round: [mine, 2].

    A silo compares what it holds, so that only its two sums are told to others.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.sums = torch.zeros(len(site.wire.mine), 2, dtype=torch.float64)

    def begin(self) -> None:
        """Reset the sums at the end of a round, before its rows arrive."""
        self.sums.zero_()

    def compare(self, places: Tensor, old: Tensor, new: Tensor) -> None:
        """Add rows to the sums: ``old`` as they were read, ``new`` as they arrived, at ``places`` of the halo."""
        silo = self.site.stack.silo_of(self.site.boundary.halo[places]).cpu()
        for column, squares in enumerate(((new - old).square().sum(1), new.square().sum(1))):
            self.sums[:, column].index_add_(0, silo, squares.cpu().double())

    def told(self) -> list[float | None]:
        """The drift of every silo's halo, as a share of its rows' size; all hosts call this."""
        wire = self.site.wire
        sums = wire.share(Kind.METRICS, self.sums)
        return [None if size == 0 else (moved / size) ** 0.5 for moved, size in sums.tolist()]


def mean_drift(drifts: Sequence[float | None]) -> float | None:
    """The mean of silos' drifts at all validations; None where no rows are kept."""
    known = [drift for drift in drifts if drift is not None]
    return fmean(known) if known else None


def drift_note(drifts: Sequence[float | None]) -> list[str]:
    """A note for the report where kept rows moved far within rounds, from the drifts of silos at all validations."""
    mean = mean_drift(drifts)
    if mean is None or mean <= FAR:
        return []
    return [
        f"STALE ROWS: what silos read of each other's nodes moved by {100 * mean:.0f} % of its size within a "
        "round, on average, so that they learnt from rows that were no longer true. Try shorter rounds "
        "(sync.local_steps), a smaller train.lr, or train.optimiser=sgd."
    ]
