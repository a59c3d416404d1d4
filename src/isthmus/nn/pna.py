"""Principal neighbourhood aggregation of Corso and others, 2020."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from isthmus.errors import IsthmusError
from isthmus.graph.features import Features
from isthmus.nn.block import Block
from isthmus.nn.edges import Edges, mapped
from isthmus.nn.layer import Layer, product_at_targets
from isthmus.nn.linear import Linear, product
from isthmus.nn.monoid import Aggregate, Message, Moments
from isthmus.nn.sets import per_row


class PNA(Layer):
    """y_v = W [ U_t h_v + sum_k s_k(d_v) V_tk [mean, min, max, std]_u m_tuv + c_t ]_t + b for the towers t.

    m_tuv = A_t h_v + B_t h_u + C_t (D e_uv + f) + a_t; the scalers are s = 1, log(d + 1) / delta and
    delta / log(d + 1), where d counts the edges at hand and delta is the mean of log(d + 1) over the graph.
    """

    # Nothing is as wide as an edge that need not be: B h and the tables of the encodings are mapped before they are
    # gathered. What is the same for all edges of v, A h_v + a + C f, moves their mean, min and max alike and leaves
    # std alone, so it is mapped straight to the outputs by V_mean + V_min + V_max. A scaler is a number for each row,
    # so V is applied to the aggregates before they are scaled.

    uses_edges = True
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
        """Set delta from each silo's mean of log(in-degree + 1): [silos]."""
        if len(inward) != len(self.delta):
            raise IsthmusError(f"{len(inward)} degree constants for {len(self.delta)} silos; give one for each.")
        self.delta.copy_(inward[:, None].clamp(min=1e-6))

    def message(self, h: Features, block: Block, edge: Edges | None) -> Message:
        """B h_u + C D e_uv, all towers side by side."""
        rows = self.source(h, block.sources)
        if self.encode is None or self.mix is None:
            return Message(rows=rows)
        values, lookup = mapped(self.present(edge), self.encode.weight @ self.mix.weight, block.edges)
        return Message(rows=rows, values=values, lookup=lookup)

    def update(self, h: Features, near: Aggregate, block: Block) -> Tensor:
        """V of the four aggregates and of the target's part, scaled and summed; then mix the towers."""
        assert near.count is not None
        own, shift = self._of_targets(h, block)
        each = self._post(near.value.flatten(2), block) + shift * (near.count > 0)
        scaled = self._scale(each, near.count, block)
        out: Tensor = self.out(own + scaled, block.targets)
        return out

    def _of_targets(self, h: Features, block: Block) -> tuple[Tensor, Tensor]:
        """U h_v + c [n, outputs], and (V_mean + V_min + V_max)(A h_v + a + C f): [towers, n, 3 outputs / towers]."""
        sets = len(self.post)
        all_three = self.post.view(sets, self.towers, 4, self.inputs, -1)[:, :, :3].sum(2)
        weight = self.target.weight.view(sets, self.inputs, self.towers, self.inputs).transpose(1, 2) @ all_three
        weight = torch.cat((self.own.weight, weight.transpose(1, 2).flatten(2)), 2)
        constant = self._constant()
        constant = (constant.view(sets, self.towers, 1, self.inputs) @ all_three).flatten(1)
        own = constant.new_zeros(sets, self.outputs) if self.own.bias is None else self.own.bias
        out = product_at_targets(h, weight, torch.cat((own, constant), 1), block)
        return out[:, : self.outputs], out[:, self.outputs :].unflatten(1, (self.towers, -1)).transpose(0, 1)

    def _constant(self) -> Tensor:
        """The part of a message that is equal for all edges, a + C f: [sets, towers * inputs]."""
        assert self.target.bias is not None
        if self.encode is None or self.mix is None:
            return self.target.bias
        assert self.encode.bias is not None
        return self.target.bias + (self.encode.bias[:, None] @ self.mix.weight).squeeze(1)

    def _post(self, four: Tensor, block: Block) -> Tensor:
        """V_t of each tower's four aggregates: [towers, n, 4 inputs] to [towers, n, 3 outputs / towers]."""
        if len(self.post) == 1:
            return torch.bmm(four, self.post[0])
        each = zip(four, self.post.unbind(1), strict=True)
        return torch.stack([product(x, weight, None, block.targets) for x, weight in each])

    def _scale(self, x: Tensor, count: Tensor, block: Block) -> Tensor:
        """x_0 + x_1 log(d + 1) / delta + x_2 delta / log(d + 1), for each row: [n, outputs]."""
        delta = per_row(self.delta, block.targets)
        amplify = (count + 1).log() / delta
        attenuate = delta / (count.clamp(min=1) + 1).log()
        plain, amplified, attenuated = x.chunk(3, 2)
        return (plain + amplify * amplified + attenuate * attenuated).transpose(0, 1).flatten(1)
