"""Whole numbers that users give: taken as they are, and refused where they would be cut or would wrap around."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError


def whole_numbers(name: str, values: Any) -> Tensor:
    """Values as int64; raises for a fraction, NaN or infinity, which would be cut to some other number."""
    try:
        given = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise IsthmusError(f"{name} cannot be read as whole numbers: {error}.") from error
    return whole(name, given)


def whole(name: str, values: Tensor) -> Tensor:
    """A tensor as int64; raises for what is no whole number, or has more than 63 bits."""
    if values.is_complex() or (values.dtype == torch.bool and name in ("time", "edge_index")):
        raise IsthmusError(f"{name} is {values.dtype}; give whole numbers.")
    if values.is_floating_point():
        odd = (~torch.isfinite(values) | (values != values.floor())).nonzero()
        if len(odd):
            row = tuple(odd[0].tolist())
            shown = float(values[row])
            raise IsthmusError(
                f"{name}[{', '.join(map(str, row))}] is {shown:g}, which is no whole number ({len(odd):,} such); give "
                "whole numbers, and -1 for an unknown label."
            )
    refuse_long(name, values.double().numpy() if values.is_floating_point() else values.numpy())
    return values.long()


def refuse_long(name: str, values: np.ndarray) -> None:
    """Raise for a whole number beyond 63 bits, which would wrap around to some other one."""
    if values.dtype.kind not in "uf" or not values.size:
        return
    low, high = (each.item() for each in (values.min(), values.max()))
    if high >= 2**63 or low < -(2**63):
        shown = high if high >= 2**63 else low
        raise IsthmusError(f"{name} has {shown:.17g}, which does not fit into 64 bits; count from a later start.")


def long_as(name: str, values: Tensor, rows: int, what: str) -> Tensor:
    """The values themselves; raises unless there is a row for each of ``rows`` nodes or edges (``what``)."""
    if values.dim() == 0 or len(values) != rows:
        raise IsthmusError(f"{name} has the shape {list(values.shape)} for {rows} {what}s; give one row for each.")
    return values
