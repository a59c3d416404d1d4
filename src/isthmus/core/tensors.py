"""Small things that torch leaves to its callers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def stacked(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Equal tensors under each other: [parts, ...]; without any, an empty one for parts such as ``like``."""
    return torch.stack(list(parts)) if parts else like.new_zeros(0, *like.shape)
