"""Normalisation and dropout between layers; neither depends on which silo owns a row."""

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
from isthmus.nn.block import Rows
from isthmus.nn.fused import fused_activate
from isthmus.nn.sets import Stackable, per_row, row_sums


@dataclass(frozen=True)
class Pass:
    """The circumstances of one forward pass through a model: training or not, and what dropout is drawn from.

    ``total`` maps sums of this host's silos [silos, d] to the sum over all silos of the federation [d], with gradients;
    None means that every silo normalises by its own moments.
    """

    training: bool
    seed: int = 0
    step: int = 0
    total: Callable[[Tensor], Tensor] | None = None


class Norm(Stackable):
    """A normalisation of rows [n, width]; the parent of all of them."""

    centres: ClassVar[bool] = False  # takes away any constant that was added to all rows before it

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, h: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """The normalised rows: [n, width]."""
        raise NotImplementedError


class Identity(Norm):
    """No normalisation."""

    def forward(self, h: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """The rows as they are."""
        return h


class _Affine(Norm):
    """A normalisation with a trained scale, which starts at 1, and a trained shift, which starts at 0."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.scale = self.fresh("scale", width)
        self.shift = self.fresh("shift", width)

    def start(self, name: str, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
        """The starting value of a parameter: 1 for the scale, 0 for the shift."""
        return torch.full(shape, float(name == "scale"), dtype=torch.float64)


class LayerNorm(_Affine):
    """y = scale (h - mean(h)) / sqrt(var(h) + eps) + shift, over the entries of each row."""

    def forward(self, h: Tensor, rows: Rows, this_pass: Pass) -> Tensor:
        """The rows, each normalised by its own mean and variance: [n, width]."""
        out = functional.layer_norm(h, (h.shape[1],))
        return out * per_row(self.scale, rows) + per_row(self.shift, rows)


class BatchNorm(_Affine):
    """y = scale (h - m) / sqrt(v + eps) + shift, with moments over the owned rows of a silo, or of all silos.

    The variance is computed from centred squares, after the mean: differences of large squares would cancel in
    float32. Evaluation uses running moments (the variance unbiased, momentum 0.1), as torch's BatchNorm does.
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
        """The rows normalised by the moments of this pass, or in evaluation by the running moments: [n, width]."""
        mean, scale = self.moments(h, rows, this_pass)
        return (h - per_row(mean, rows)) * per_row(scale, rows) + per_row(self.shift, rows)

    def moments(self, h: Tensor, rows: Rows, this_pass: Pass) -> tuple[Tensor, Tensor]:
        """The mean to subtract from the rows, and the factor to multiply them by: [silos or 1, d] each."""
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
        """Move the running moments towards those of this pass, except those of a silo without rows."""
        pace = self.momentum * (count > 0).to(mean.dtype)
        self.mean += pace * (mean - self.mean)
        self.var += pace * (var * count / (count - 1).clamp(min=1) - self.var)


def _mean(h: Tensor, owned: Tensor, rows: Rows, total: Callable[[Tensor], Tensor] | None) -> tuple[Tensor, Tensor]:
    """The number of owned rows [silos or 1, 1] and their mean [silos or 1, d], from a single sum."""
    sums = _total(row_sums(torch.cat((owned * h, owned), 1), rows), total)
    count = sums[:, -1:].detach()
    return count, sums[:, :-1] / count.clamp(min=1)


def _total(sums: Tensor, total: Callable[[Tensor], Tensor] | None) -> Tensor:
    """The sums of each silo, or with ``total`` the one sum over all silos: [silos or 1, d]."""
    return sums if total is None else total(sums)[None]


NORMS: dict[str, type[Norm]] = {"none": Identity, "layer": LayerNorm, "batch": BatchNorm}


def norm_relu_dropout(norm: Norm, h: Tensor, rows: Rows, p: float, layer: int, this_pass: Pass) -> Tensor:
    """The rows after normalisation, ReLU and dropout; where a kernel exists, in one pass once moments are known."""
    found = compiled(h.device, h.dtype)
    if found is None or not isinstance(norm, BatchNorm):
        return dropout(norm(h, rows, this_pass).relu(), rows, p, layer, this_pass)
    mean, scale = norm.moments(h, rows, this_pass)
    drops = round(p * 65536) if this_pass.training else 0
    key = stream(this_pass.seed, "dropout", this_pass.step, layer)
    by = Activation(mean, scale, norm.shift, rows.silo, rows.keys, key, 65536 - drops)
    return fused_activate(h, by, rows, found)


def dropout(h: Tensor, rows: Rows, p: float, layer: int, this_pass: Pass) -> Tensor:
    """The rows with each entry zeroed with probability p and the others scaled; masks follow from public keys."""
    if not this_pass.training or p == 0:
        return h
    key = stream(this_pass.seed, "dropout", this_pass.step, layer)
    kept = 1 - rounded(p)
    return h * (keep_mask(key, rows.keys, h.shape[1], p).to(h.dtype) / kept)


def rounded(p: float) -> float:
    """The probability nearest to p that a mask of 16 bits can have."""
    return round(p * 65536) / 65536
