"""Checks of what arrives from other hosts, before it is used: size, shape, number format, order, finite numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind
from isthmus.protect.field import PRIME

# Letters of these are finite; scores may be undefined.
NUMBERS = (Kind.PARAMETERS, Kind.GRADIENTS, Kind.FEATURES, Kind.GENERATED, Kind.ROW_GRADIENTS)


def check_sizes(kind: Kind, sizes: Sequence[int], most: Sequence[int] | None, width: int, who: Sequence[str]) -> None:
    """Refuse announced numbers of rows (``width`` bytes each) that are too large, before memory is taken for them.

    ``most`` is the largest number that each host may announce; None: as many as half of the memory holds.
    """
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // max(width, 1)
    for host, size in enumerate(sizes):
        limit = room if most is None else most[host]
        if not 0 <= size <= limit:
            raise PeerError(f"{who[host]} said that {size:,} rows of {kind} would come, where {limit:,} can.")


def check_like(kind: Kind, row: Tensor, rows: Tensor, who: str) -> None:
    """Refuse one silo's row whose number format or width differs from that of ``rows``, the rows of this host."""
    if row.dtype != rows.dtype or row.shape != (1, *rows.shape[1:]):
        raise PeerError(
            f"{who} sent {kind} of the form {row.dtype} {list(row.shape)}, where {rows.dtype} {[1, *rows.shape[1:]]} "
            "is due."
        )


def check_places(told: Tensor, splits: Sequence[int], lengths: Sequence[int], who: Sequence[str]) -> None:
    """Refuse places outside of a host's list (``lengths`` [hosts]), and places that do not ascend."""
    for host, places in enumerate(told.split(list(splits))):
        if not len(places):
            continue
        low, high = int(places[0]), int(places[-1])
        if low < 0 or high >= lengths[host] or not bool((places[1:] > places[:-1]).all()):
            raise PeerError(
                f"{who[host]} asked for rows {low:,} to {high:,} of a list of {lengths[host]:,}, or for one twice; it "
                "gets none."
            )


def check_elements(kind: Kind, rows: Tensor, splits: Sequence[int], who: Sequence[str]) -> None:
    """Refuse shares that are no elements of the field and name their sender; ``splits`` rows came from each ``who``."""
    for sender, part in zip(who, rows.split(list(splits)), strict=True):
        if part.numel() and not 0 <= int(part.min()) <= int(part.max()) < PRIME:
            raise PeerError(f"{sender} sent shares of {kind} that lie outside of the field; they are not added up.")


def check_finite(kind: Kind, rows: Tensor, splits: Sequence[int], who: Sequence[str]) -> None:
    """Refuse rows with NaN or infinity and name their sender; ``splits`` of the rows came from each of ``who``."""
    if not rows.is_floating_point() or bool(torch.isfinite(rows).all()):
        return
    for sender, part in zip(who, rows.split(list(splits)), strict=True):
        if not bool(torch.isfinite(part).all()):
            raise PeerError(
                f"{sender} sent {kind} that are not finite numbers: its training has diverged (a smaller train.lr may "
                "help), or it does not send what it should."
            )
