"""Envelopes of letters between hosts: of which kind they are, and which exchange of the run they belong to."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.core.kinds import KINDS, Kind

_SIZE = 16  # bytes: the kind, and the number of the exchange


def enveloped(letters: Tensor, kind: Kind, number: int) -> Tensor:
    """Packed letters [bytes] in an envelope; where there are none, there is no envelope either."""
    if not len(letters):
        return letters
    return torch.cat([torch.tensor([KINDS.index(kind), number]).view(torch.uint8), letters])


def opened(buffer: Tensor, kind: Kind, number: int) -> Tensor:
    """The packed letters of an envelope; raises ``ValueError`` where they belong to another exchange.

    A letter that is sent twice, too early or too late is found out by that. It is no seal: whoever can write letters
    can write envelopes.
    """
    if not len(buffer):
        return buffer
    if len(buffer) < _SIZE:
        raise ValueError(f"an envelope of {len(buffer)} bytes")
    which, when = buffer[:_SIZE].clone().view(torch.int64).tolist()
    if (which, when) != (KINDS.index(kind), number):
        named = str(KINDS[which]) if 0 <= which < len(KINDS) else "no known kind"
        raise ValueError(f"letters of {named} of exchange {when:,} (a replay, or out of order), where {number:,} is on")
    return buffer[_SIZE:]
