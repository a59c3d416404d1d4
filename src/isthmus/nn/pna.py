"""Principal neighbourhood aggregation of Corso and others, 2020."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import Features
from isthmus.kernels import compiled
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges, mapped
from isthmus.nn.fused import fused_scale
from isthmus.nn.layer import Layer, at_targets, product_at_targets
from isthmus.nn.linear import Linear, tower_product
from isthmus.nn.monoid import Aggregate, Message, Moments
from isthmus.nn.sets import per_row


class PNA(Layer):
    """y_v = W [ U_t h_v + sum_k s_k(d_v) V_tk [mean, min, max, std]_u m_tuv + c_t ]_t + b for the towers t.

    m_tuv = A_t h_v + B_t h_u + C_t (D e_uv + f) + a_t; the scalers are s = 1, log(d + 1) / delta and
    delta / log(d + 1), where d counts the edges at hand and delta is the mean of log(d + 1) over the graph.
    """

    # To keep [E, d] matrices few, B h and the tables of the encodings are mapped before they are gathered;
    # A h_v + a + C f, which all edges of v share, is added to their aggregates; and because a scaler is one number for
    # each row, V is applied to the aggregates before they are scaled.

    uses_edges = True
    uses_degrees = False
    final: ClassVar[dict[str, Any]] = {"towers": 1}
    delta: Tensor  # [silos, 1]

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True, *, towers: int = 4) -> None:
        super().__init__(inputs, outputs, edge, bias)
        if towers < 1 or outputs % towers:
            raise IsthmusError(
                f"PNA cannot share {outputs} outputs between {towers} towers; use a divisor of {outputs}."
            )
        self.towers, self.monoid = towers, Moments(towers)
        self.target = Linear(inputs, towers * inputs)  # A, a
        self.source = Linear(inputs, towers * inputs, bias=False)  # B
        self.encode = Linear(edge, inputs) if edge else None  # D, f
        self.mix = Linear(inputs, towers * inputs, bias=False) if edge else None  # C
        self.own = Linear(inputs, outputs, bias)  # U, c
        self.post = self.fresh(
            "post", towers, 4 * inputs, 3 * (outputs // towers)
        )  # V: rows by aggregate, columns by k
        self.out = Linear(outputs, outputs, bias)  # W, b
        self.register_buffer("delta", torch.ones(1, 1))

    def set_degree(self, inward: Tensor, outward: Tensor | None = None) -> None:
        """Set delta from each silo's mean of log(in-degree + 1): [silos], or [silos, 2] for two sides."""
        delta = dict(self.named_buffers())["delta"]
        if len(inward) != len(delta):
            raise IsthmusError(f"{len(inward)} degree constants for {len(delta)} silos; give one for each.")
        delta.copy_(inward[..., None].clamp(min=1e-6))

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """The message of edge (u, v) without what all edges of v share: B h_u + C D e_uv, towers side by side."""
        rows = self.source(h, block.sources)
        if self.encode is None or self.mix is None:
            return Message(rows=rows)
        values, lookup = mapped(self.present(edge), self.encode.weight @ self.mix.weight, block.edges)
        return Message(rows=rows, values=values, lookup=lookup)

    def common(self, h: Features, block: Block) -> Tensor:
        """A h_v + a + C f, which all messages of v share: [targets, towers * inputs]."""
        bias: Tensor | None = self.target.bias
        if self.encode is not None and self.mix is not None and bias is not None:
            assert self.encode.bias is not None
            bias = torch.baddbmm(bias[:, None], self.encode.bias[:, None], self.mix.weight).squeeze(1)
        return product_at_targets(h, self.target.weight, bias, block)

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """The target rows: V of the four aggregates, scaled and summed, then W over all towers: [targets, outputs]."""
        assert near.count is not None
        each = tower_product(near.value.flatten(2), self.post, block.targets)
        scaled = self._scale(each, at_targets(self.own, h, block), near.count, block)
        out: Tensor = self.out(scaled, block.targets)
        return out

    def _scale(self, x: Tensor, own: Tensor, count: Tensor, block: Block) -> Tensor:
        """Own row + x_0 + x_1 log(d + 1) / delta + x_2 delta / log(d + 1): [n, outputs]."""
        delta = per_row(self.delta, block.targets).expand(len(count), 1)
        kernels = compiled(x.device, x.dtype)
        if kernels is not None:
            return fused_scale(x, own, count, delta.contiguous(), kernels)
        plain, amplified, attenuated = x.chunk(3, 2)
        amplify, attenuate = (count + 1).log() / delta, delta / (count.clamp(min=1) + 1).log()
        return own + (plain + amplify * amplified + attenuate * attenuated).transpose(0, 1).flatten(1)
