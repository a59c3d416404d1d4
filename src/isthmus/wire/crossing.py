"""Rows that silos copy to each other, as one differentiable linear map: the backward pass is its transpose."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.wire.door import Door
from isthmus.wire.route import Route


class Across(torch.autograd.Function):
    """y[keep] = h, y[fill] = what the owners sent; backwards, adjoints of filled rows return and are summed."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, token: Tensor, wire: Door, route: Route, kind: Kind, layer: int
    ) -> tuple[Tensor, Tensor]:
        """Rows of ``h`` and of other silos, where ``route`` puts them: [route.size, width]; and the token."""
        ctx.wire, ctx.route, ctx.layer = wire, route, layer
        rows = wire.move(kind, h.index_select(0, route.send.at), route.send, route.fill, layer)
        filled = len(route.keep) + len(route.fill.at) >= route.size  # else rows of absent silos are missing: zeros
        y = (h.new_empty if filled else h.new_zeros)((route.size, h.shape[1]))
        return y.index_copy_(0, route.keep, h).index_copy_(0, route.fill.at, rows), token.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        """Send adjoints of received rows back to their owners, who add them to the gradients of their rows of ``h``."""
        gy, gtoken = grads
        route: Route = ctx.route
        sent = gy.index_select(0, route.fill.at)
        back = ctx.wire.move(Kind.ADJOINTS, sent, route.fill, route.send, ctx.layer)
        if len(route.keep) + len(route.fill.at) > route.size:  # some of my own rows were overwritten
            gy = gy.index_fill(0, route.fill.at, 0)
        return gy.index_select(0, route.keep).index_add_(0, route.send.at, back), gtoken, None, None, None, None


def detached(wire: Door, route: Route, kind: Kind, h: Tensor, layer: int) -> Tensor:
    """What `Across` computes, without its backward pass: rows of other silos are constants, own rows have gradients."""
    rows = wire.move(kind, h.detach().index_select(0, route.send.at), route.send, route.fill, layer)
    y = h.new_zeros(route.size, h.shape[1])
    return y.index_copy(0, route.keep, h).index_copy(0, route.fill.at, rows)
