"""What stands between layers: normalisation and dropout, neither of which may depend on who owns a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.core.random import keep_mask, stream
from isthmus.kernels import compiled
from isthmus.kernels.messages import Activation
from isthmus.nn import fused
from isthmus.nn.block import Rows
from isthmus.nn.sets import Stackable, per_row, row_sums


@dataclass(frozen=True)
class Pass:
    """One forward pass through a model.

    ``total`` takes per-silo sums [silos on this host, d] to the sum over all silos of the federation [d],
    with gradients; None means that every silo keeps to its own moments.
    """

    training: bool
    seed: int = 0
    step: int = 0
    total: Callable[[Tensor], Tensor] | None = None


class Norm(Stackable):
    """A normalisation of rows [n, width]."""

    centres: ClassVar[bool] = False  # takes away any constant that was added to all rows before it

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, h: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """The normalised rows."""
        raise NotImplementedError


class Identity(Norm):
    """No normalisation."""

    def forward(self, h: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """The rows as they are."""
        return h


class _Affine(Norm):
    """A normalisation with a trained scale, from 1, and shift, from 0."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale = self.fresh("scale", width)
        self.shift = self.fresh("shift", width)

    def start(self, name: str, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """Scale 1, shift 0."""
        return torch.full(shape, float(name == "scale"), dtype=torch.float64)


class LayerNorm(_Affine):
    """y = scale (h - mean(h)) / sqrt(var(h) + eps) + shift, over the entries of each row."""

    def forward(self, h: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """Normalise each row by itself."""
        out = functional.layer_norm(h, (h.shape[1],))
        return out * per_row(self.scale, rows) + per_row(self.shift, rows)


class BatchNorm(_Affine):
    """y = scale (h - m) / sqrt(v + eps) + shift, with moments over the owned rows of a silo, or of all silos.

    The mean comes first and the variance from centred squares: squares of large numbers would cancel in
    float32. Evaluation uses running moments (the variance unbiased, momentum 0.1), as torch does.
    """

    centres = True
    eps, momentum = 1e-5, 0.1
    mean: Tensor  # [silos, width]
    var: Tensor  # [silos, width]

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.register_buffer("mean", torch.zeros(1, width))
        self.register_buffer("var", torch.ones(1, width))

    def forward(self, h: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """Normalise by the moments of this pass, or in evaluation by the running ones."""
        mean, scale = self.moments(h, rows, this_pass)
        return (h - per_row(mean, rows)) * per_row(scale, rows) + per_row(self.shift, rows)

    def moments(self, h: Tensor, rows: Rows, this_pass: Pass) -> tuple[Tensor, Tensor]:
        """What is taken away from the rows, and what they are multiplied by: [silos or 1, d] each."""
        if not this_pass.training:
            return self.mean, self.scale * (self.var + self.eps).rsqrt()
        owned = h.new_ones(len(h), 1) if rows.owned is None else rows.owned[:, None].to(h.dtype)
        count, mean = _mean(h, owned, rows, this_pass.total)
        centred = h - per_row(mean, rows)
        var = _total(row_sums(owned * centred.square(), rows), this_pass.total) / count.clamp(min=1)
        self._remember(count, mean.detach(), var.detach())
        return mean, self.scale * (var + self.eps).rsqrt()

    @torch.no_grad()
    def _remember(self, count: Tensor, mean: Tensor, var: Tensor) -> None:
        """Move the running moments, except those of a silo that had no row."""
        pace = self.momentum * (count > 0).to(mean.dtype)
        self.mean += pace * (mean - self.mean)
        self.var += pace * (var * count / (count - 1).clamp(min=1) - self.var)


def _mean(h: Tensor, owned: Tensor, rows: Rows, total: Callable[[Tensor], Tensor] | None) -> tuple[Tensor, Tensor]:
    """Number of owned rows [silos or 1, 1] and their mean [silos or 1, d], from one sum."""
    sums = _total(row_sums(torch.cat((owned * h, owned), 1), rows), total)
    count = sums[:, -1:].detach()
    return count, sums[:, :-1] / count.clamp(min=1)


def _total(sums: Tensor, total: Callable[[Tensor], Tensor] | None) -> Tensor:
    return sums if total is None else total(sums)[None]


NORMS: dict[str, type[Norm]] = {"none": Identity, "layer": LayerNorm, "batch": BatchNorm}


def activate(norm: Norm, h: Tensor, rows: Rows, p: float, layer: int, this_pass: Pass) -> Tensor:
    """Normalisation, ReLU and dropout; in one compiled pass after the moments are known, where there is one."""
    found = compiled(h.device, h.dtype)
    if found is None or not isinstance(norm, BatchNorm):
        return dropout(norm(h, rows, this_pass).relu(), rows, p, layer, this_pass)
    mean, scale = norm.moments(h, rows, this_pass)
    drops = round(p * 65536) if this_pass.training else 0
    key = stream(this_pass.seed, "dropout", this_pass.step, layer)
    by = Activation(mean, scale, norm.shift, rows.silo, rows.keys, key, 65536 - drops)
    return fused.activate(h, by, rows, found)


def dropout(h: Tensor, rows: Rows, p: float, layer: int, this_pass: Pass) -> Tensor:
    """Zero each entry with probability p, scale the others; the mask follows from the row's public key."""
    if not this_pass.training or p == 0:
        return h
    key = stream(this_pass.seed, "dropout", this_pass.step, layer)
    kept = 1 - rounded(p)
    return h * (keep_mask(key, rows.keys, h.shape[1], p).to(h.dtype) / kept)


def rounded(p: float) -> float:
    """The probability that masks of 16 bits can have."""
    return round(p * 65536) / 65536
