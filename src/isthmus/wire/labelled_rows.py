"""Letters whose rows are bytes about members of a group, each with the number of the member that it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.kinds import Kind

_NUMBER = 8  # bytes of a member's number


def write(rows: Mapping[int, bytes], width: int) -> Tensor:
    """Rows {member: ``width`` bytes} as a letter, in the order of members: uint8 [rows, 8 + width]."""
    joined = b"".join(member.to_bytes(_NUMBER, "little") + rows[member] for member in sorted(rows))
    return torch.from_numpy(np.frombuffer(bytearray(joined), dtype=np.uint8)).reshape(-1, _NUMBER + width)


def read(
    kind: Kind, letter: Tensor, width: int, due: Collection[int], who: str, whole: bool = True
) -> dict[int, bytes]:
    """The rows {member: ``width`` bytes} of a letter of ``who``: one of every member that is due, and of nobody else.

    Without ``whole``, rows of some of the members that are due.
    """
    if letter.dtype != torch.uint8 or letter.dim() != 2 or letter.shape[1] != _NUMBER + width:
        raise PeerError(
            f"{who} sent {kind} of the form {letter.dtype} {list(letter.shape)}, where rows of {_NUMBER + width} bytes "
            "are due."
        )
    lines = [bytes(line) for line in letter.numpy()]
    members = [int.from_bytes(line[:_NUMBER], "little") for line in lines]
    found = dict(zip(members, (line[_NUMBER:] for line in lines), strict=True))
    twice = sorted((Counter(members) - Counter(found.keys())).keys())
    others, missing = sorted(set(found) - set(due)), sorted(set(due) - set(found)) if whole else []
    for problem, named in (("twice", twice), ("which are not due", others), ("and left these out:", missing)):
        if named:
            raise PeerError(f"{who} sent {kind} of members {sorted(found)}, {problem} {named}; due are {sorted(due)}.")
    return found
