"""Letters as plain bytes, and back. No pickle."""

from __future__ import annotations

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bfloat16, torch.int16)
_HEADER = 7  # sender, receiver, number format, dimensions, and up to three sizes


def pack(letters: dict[tuple[int, int], Tensor]) -> Tensor:
    """Letters as plain bytes: how many there are, a header for each, then the payloads."""
    header = [[s, r, _DTYPES.index(x.dtype), x.dim(), *x.shape, *[0] * (3 - x.dim())] for (s, r), x in letters.items()]
    head = torch.tensor([len(header), *sum(header, [])], dtype=torch.int64)
    bodies = [x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in letters.values()]
    return torch.cat([head.view(torch.uint8), *bodies]) if letters else torch.empty(0, dtype=torch.uint8)


def unpack(buffer: Tensor) -> dict[tuple[int, int], Tensor]:
    """The inverse of :func:`pack`."""
    if not len(buffer):
        return {}
    count = int(buffer[:8].clone().view(torch.int64))
    at = 8 * (1 + _HEADER * count)
    letters = {}
    for sender, receiver, code, dims, *shape in buffer[8:at].clone().view(torch.int64).reshape(count, _HEADER).tolist():
        size = _DTYPES[code].itemsize
        for length in shape[:dims]:
            size *= length
        body = buffer[at : at + size].clone().view(_DTYPES[code])
        letters[sender, receiver] = body.reshape(shape[:dims])
        at += size
    return letters
