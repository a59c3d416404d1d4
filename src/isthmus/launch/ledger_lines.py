"""What lines of a ledger from another host must be like."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import KINDS, PURPOSES, devices_of
from isthmus.wire.books import BOOKS
from isthmus.wire.wire import Wire


def check_lines(wire: Wire, book: str, lines: Tensor, events: int, who: str) -> None:
    """Refuse lines of a book with a wrong shape, or with parties, kinds or events that do not exist."""
    columns = BOOKS[book]
    if lines.dtype != torch.int64 or lines.dim() != 2 or lines.shape[1] != len(columns):
        raise IsthmusError(f"{who} sent lines of the book '{book}' that are {lines.dtype} {list(lines.shape)}.")
    parties = (devices_of(wire.silos - 1), wire.silos)
    allowed: dict[str, tuple[int, int]] = {
        "purpose": (0, len(PURPOSES)),
        "kind": (0, len(KINDS)),
        "event": (0, max(events, 1)),
        "model": (0, len(wire.ledger.models)),
        **dict.fromkeys(("sender", "receiver", "party"), parties),
    }
    for place, column in enumerate(columns):
        low, high = allowed.get(column, (0, 2**62))
        if len(lines) and not low <= int(lines[:, place].min()) <= int(lines[:, place].max()) < high:
            raise IsthmusError(f"{who} sent lines of the book '{book}' whose column {column} is out of range.")
