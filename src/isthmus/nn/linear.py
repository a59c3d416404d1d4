"""Linear maps of rows: one product for all silos where possible, else one for each parameter set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isthmus.graph.features import Features, SparseRows
from isthmus.nn.block import Padding, Rows
from isthmus.nn.maps import csr, linear_map, transpose
from isthmus.nn.sets import Stackable, per_row


class Linear(Stackable):
    """y_i = x_i W_s + b_s, where s is the parameter set of row i."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.weight = self.fresh("weight", inputs, outputs)  # [sets, inputs, outputs]
        self.bias = self.fresh("bias", outputs) if bias else None  # [sets, outputs]

    def forward(self, x: Features, rows: Rows) -> Tensor:
        """The mapped rows: [n, inputs] to [n, outputs]."""
        return product(x, self.weight, self.bias, rows)

    def extra_repr(self) -> str:
        """What print(model) shows."""
        return f"{self.inputs}, {self.outputs}, bias={self.bias is not None}, sets={len(self.weight)}"


def product(x: Features, weight: Tensor, bias: Tensor | None, rows: Rows) -> Tensor:
    """Rows [n, in] times the weight [sets, in, out] of their set, plus its bias [sets, out]: [n, out]."""
    if len(weight) > 1:
        rows = rows.by_sets(len(weight))
    if isinstance(x, SparseRows):
        out = _sparse_product(x, weight, rows)
        return out if bias is None else out + per_row(bias, rows)
    if len(weight) > 1:
        return _padded(x, weight, bias, rows.padding) if _pads(x, rows) else _grouped(x, weight, bias, rows)
    if bias is None:
        return x @ weight.squeeze(0)
    return torch.addmm(bias.squeeze(0), x, weight.squeeze(0))


def _sparse_product(x: SparseRows, weight: Tensor, rows: Rows) -> Tensor:
    """Sparse rows times weight [sets, in, out], as one product in which the columns of set s begin at s * width.

    On a GPU the gradient of a long column is added up in changing order, so that such runs repeat only up to rounding.
    """
    key = rows.ptr if len(weight) > 1 else None
    columns = len(weight) * x.width

    def index() -> Tensor:
        return x.index if key is None else x.index + rows.silo[x.row] * x.width

    def there(w: Tensor) -> Tensor:
        return _cached(x, ("rows", key), lambda: csr(x.ptr, index(), x.value, columns)) @ w

    def back(g: Tensor) -> Tensor:
        return _cached(x, ("columns", key), lambda: _transposed(x, index(), columns)) @ g

    return linear_map(weight.reshape(columns, -1), there, back)


def _transposed(x: SparseRows, index: Tensor, columns: int) -> Tensor:
    """The transpose of sparse rows as a CSR matrix: [columns, n]."""
    ptr, order = transpose(index, columns)
    return csr(ptr, x.row[order], x.value[order], len(x))


def _cached(x: SparseRows, key: object, make: Callable[[], Tensor]) -> Tensor:
    """The sparse matrix under ``key``, made once: full-batch features are multiplied at every step."""
    if key not in x.cache:
        x.cache[key] = make()
    return x.cache[key]


class _GroupedProduct(torch.autograd.Function):
    """One small product for each set, in a single autograd node: a node for each would cost more than the products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, parts: list[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.parts = parts
        out = x.new_empty(len(x), weight.shape[2])
        for a, w, o in zip(torch.split(x, parts), weight, torch.split(out, parts), strict=True):
            torch.mm(a, w, out=o)
        if bias is not None:
            for b, o in zip(bias, torch.split(out, parts), strict=True):
                o.add_(b)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        to_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        to_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        to_bias = weight.new_empty(len(weight), weight.shape[2]) if ctx.needs_input_grad[2] else None
        begin = 0
        for s, (a, g) in enumerate(zip(torch.split(x, ctx.parts), torch.split(grad, ctx.parts), strict=True)):
            if to_x is not None:
                torch.mm(g, weight[s].T, out=to_x[begin : begin + len(a)])
            if to_weight is not None:
                torch.mm(a.T, g, out=to_weight[s])
            if to_bias is not None:
                torch.sum(g, 0, out=to_bias[s])
            begin += len(a)
        return to_x, to_weight, to_bias, None


def _grouped(x: Tensor, weight: Tensor, bias: Tensor | None, rows: Rows) -> Tensor:
    out: Tensor = _GroupedProduct.apply(x, weight, bias, rows.sizes)  # type: ignore[no-untyped-call]
    return out


def _pads(x: Tensor, rows: Rows) -> bool:
    """Whether to multiply all sets in one padded product: where no row moves, and on a GPU, if silos are alike."""
    return rows.padding is not None and (x.is_cuda or rows.padding.at is None)


def _padded(x: Tensor, weight: Tensor, bias: Tensor | None, padding: Padding | None) -> Tensor:
    """Rows times the weight of their set, for all sets in one batched product: [n, out]."""
    assert padding is not None
    wide = _moved(x, padding)
    out = wide @ weight if bias is None else torch.baddbmm(bias[:, None], wide, weight)
    return _back(out, padding)


def _moved(x: Tensor, padding: Padding) -> Tensor:
    return padding.pad(x) if padding.at is None else linear_map(x, padding.pad, padding.unpad)


def _back(x: Tensor, padding: Padding) -> Tensor:
    return padding.unpad(x) if padding.at is None else linear_map(x, padding.unpad, padding.pad)


def tower_product(x: Tensor, weight: Tensor, rows: Rows) -> Tensor:
    """Rows of each tower [towers, n, in] times the tower's weight [sets, towers, in, out]: [towers, n, out]."""
    if len(weight) == 1:
        return torch.bmm(x, weight[0])
    rows = rows.by_sets(len(weight))
    if rows.padding is not None and _pads(x, rows):
        return _back(_moved(x, rows.padding) @ weight.transpose(0, 1), rows.padding)
    return torch.stack([product(tower, w, None, rows) for tower, w in zip(x, weight.unbind(1), strict=True)])
