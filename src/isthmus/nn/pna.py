"""Principal neighbourhood aggregation of Corso and others, 2020."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.graph.features import Features
from isthmus.nn.block import Block
from isthmus.nn.layer import Layer, at_targets
from isthmus.nn.linear import Linear, product
from isthmus.nn.monoid import MOMENTS, Message, State
from isthmus.nn.sets import per_row


class PNA(Layer):
    """y_v = W [ U_t h_v + sum_k s_k(d_v) V_tk [mean, min, max, std]_u m_tuv + c_t ]_t + b for the towers t.

    m_tuv = A_t h_v + B_t h_u + C_t (D e_uv + f) + a_t; the scalers are s = 1, log(d + 1) / delta and
    delta / log(d + 1), where d counts the edges at hand and delta is the mean of log(d + 1) over the graph.
    """

    # Nothing is as wide as an edge that need not be: B h is mapped before it is gathered; A h_v + a is the
    # same for all edges of v, so it is added to their mean, min and max afterwards and leaves std alone; D
    # and C fold into one narrow matrix; and a scaler is a number for each row, so V is applied to the
    # aggregates before they are scaled.

    monoid = MOMENTS
    uses_edges = True
    final: ClassVar[dict[str, Any]] = {"towers": 1}
    delta: Tensor  # [silos, 1]

    def __init__(self, inputs: int, outputs: int, edge: int = 0, bias: bool = True, *, towers: int = 4) -> None:
        super().__init__(inputs, outputs, edge, bias)
        if towers < 1 or outputs % towers:
            raise IsthmusError(
                f"PNA cannot share {outputs} outputs between {towers} towers; use a divisor of {outputs}."
            )
        self.towers = towers
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
        """Set delta from each silo's mean of log(in-degree + 1): [silos]."""
        if len(inward) != len(self.delta):
            raise IsthmusError(f"{len(inward)} degree constants for {len(self.delta)} silos; give one for each.")
        self.delta.copy_(inward[:, None].clamp(min=1e-6))

    def message(self, h: Features, block: Block, edge: Tensor | None) -> Message:
        """B h_u + C (D e_uv + f), all towers side by side."""
        rows = self.source(h, block.sources)
        if self.encode is None or self.mix is None:
            return Message(rows=rows)
        assert self.encode.bias is not None
        weight = self.encode.weight @ self.mix.weight
        bias = (self.encode.bias[:, None] @ self.mix.weight).squeeze(1)
        return Message(rows=rows, values=product(self.encoded(edge), weight, bias, block.edges))

    def update(self, h: Features, state: State, block: Block) -> Tensor:
        """Add the target's part, apply V, scale, sum, mix the towers."""
        count = state["count"]
        shift = at_targets(self.target, h, block) * (count > 0)
        mean, low, high, std = MOMENTS.parts(state)
        four = torch.stack((mean + shift, low + shift, high + shift, std), 1)
        four = four.view(len(count), 4, self.towers, self.inputs)
        scaled = self._scale(self._post(four, block), count, block)
        out: Tensor = self.out(at_targets(self.own, h, block) + scaled, block.targets)
        return out

    def _post(self, four: Tensor, block: Block) -> Tensor:
        """V_t of each tower's four aggregates: [n, 4, towers, inputs] to [n, towers, 3, outputs / towers]."""
        each = zip(four.unbind(2), self.post.unbind(1), strict=True)
        out = [product(x.flatten(1), weight, None, block.targets) for x, weight in each]
        return torch.stack(out, 1).view(len(four), self.towers, 3, self.outputs // self.towers)

    def _scale(self, x: Tensor, count: Tensor, block: Block) -> Tensor:
        """x_0 + x_1 log(d + 1) / delta + x_2 delta / log(d + 1), for each row: [n, outputs]."""
        delta = per_row(self.delta, block.targets)
        amplify = (count + 1).log() / delta
        attenuate = delta / (count.clamp(min=1) + 1).log()
        plain, amplified, attenuated = x.unbind(2)
        return (plain + amplify[:, :, None] * amplified + attenuate[:, :, None] * attenuated).flatten(1)
