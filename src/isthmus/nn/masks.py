"""Masks: a factor for each weight of a model, learnt beside it; whoever reads a masked weight gets the product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

_PREFIX = "mask_"


def mask_of(name: str) -> str:
    """The name of the mask of a parameter."""
    return f"{_PREFIX}{name}"


def is_mask(name: str) -> bool:
    """Whether a parameter of a model, by its full name, is a mask."""
    return name.rpartition(".")[2].startswith(_PREFIX)


class _MaskProduct(torch.autograd.Function):
    """y = w m, where an m below the threshold counts as 0; the gradient for m is that of w m all the same."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, mask: Tensor, threshold: float) -> Tensor:
        kept = functional.hardshrink(mask, threshold)
        ctx.save_for_backward(weight, kept)
        return weight * kept

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        weight, kept = ctx.saved_tensors
        return grad * kept, grad * weight, None


def masked(weight: Tensor, mask: Tensor, threshold: float) -> Tensor:
    """A weight times its mask, entry by entry; entries of the mask that are at most ``threshold`` switch weights off.

    Such an entry still learns from w times the gradient, so that a weight that is off can come back.
    """
    product: Tensor = _MaskProduct.apply(weight, mask, threshold)  # type: ignore[no-untyped-call]
    return product
