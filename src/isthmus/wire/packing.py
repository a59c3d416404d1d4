"""Packs letters into plain bytes and reads them back; no pickle, since reading a pickle can run a sender's code."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bfloat16, torch.int16)
_HEADER = 7  # sender, receiver, number format, dimensions, and up to three sizes


def pack(letters: dict[tuple[int, int], Tensor]) -> Tensor:
    """Letters {(sender, receiver): payload} as bytes: how many there are, a header for each, then the payloads."""
    header = [[s, r, _DTYPES.index(x.dtype), x.dim(), *x.shape, *[0] * (3 - x.dim())] for (s, r), x in letters.items()]
    head = torch.tensor([len(header), *sum(header, [])], dtype=torch.int64)
    bodies = [x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in letters.values()]
    return torch.cat([head.view(torch.uint8), *bodies]) if letters else torch.empty(0, dtype=torch.uint8)


def unpack(buffer: Tensor, senders: Collection[int], receivers: Collection[int]) -> dict[tuple[int, int], Tensor]:
    """Letters from the bytes that :func:`pack` made; raises ``ValueError`` for bytes that it cannot have made.

    ``senders`` and ``receivers`` are the parties that letters may be from and to: a host may send only for its own.
    """
    if not len(buffer):
        return {}
    letters: dict[tuple[int, int], Tensor] = {}
    header, at = _header(buffer)
    for sender, receiver, code, dims, *shape in header:
        if sender not in senders or receiver not in receivers or (sender, receiver) in letters:
            raise ValueError(f"a letter from party {sender} to party {receiver}")
        if not 0 <= code < len(_DTYPES) or not 0 <= dims <= 3 or min(shape) < 0:
            raise ValueError("a letter of unknown form")
        size = _DTYPES[code].itemsize * math.prod(shape[:dims])
        if size > len(buffer) - at:
            raise ValueError(f"a letter that is said to have {size:,} bytes and has {len(buffer) - at:,}")
        letters[sender, receiver] = buffer[at : at + size].clone().view(_DTYPES[code]).reshape(shape[:dims])
        at += size
    if at != len(buffer):
        raise ValueError(f"{len(buffer) - at:,} bytes that belong to no letter")
    return letters


def _header(buffer: Tensor) -> tuple[list[list[int]], int]:
    """Sender, receiver, number format, dimensions and sizes of each letter; and where the first payload begins."""
    count = int(buffer[:8].clone().view(torch.int64)) if len(buffer) >= 8 else -1
    at = 8 * (1 + _HEADER * count)
    if count < 0 or at > len(buffer):
        raise ValueError(f"{count:,} letters in {len(buffer):,} bytes")
    lines: list[list[int]] = buffer[8:at].clone().view(torch.int64).reshape(count, _HEADER).tolist()
    return lines, at
