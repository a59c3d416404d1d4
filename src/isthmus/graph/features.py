"""Feature rows, dense or sparse, and the few operations that training needs on both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class SparseRows:
    """Rows of a sparse matrix in CSR form; bag-of-words features are about 1 % dense.

    Row i holds ``value[ptr[i]:ptr[i + 1]]`` in the columns ``index[ptr[i]:ptr[i + 1]]``.
    """

    ptr: Tensor  # [n + 1] int64
    index: Tensor  # [nnz] int64
    value: Tensor  # [nnz]
    width: int
    cache: dict[object, Tensor] = field(
        default_factory=dict, repr=False, compare=False
    )  # matrices for products, made once

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return len(self), self.width

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the values."""
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.value.device

    @cached_property
    def row(self) -> Tensor:
        """Row number of each stored value."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.device), self.ptr.diff())

    def take(self, rows: Tensor) -> SparseRows:
        """The given rows, in the given order."""
        length = self.ptr.diff()[rows]
        ptr = torch.zeros(len(rows) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(length, 0, out=ptr[1:])
        at = torch.arange(int(ptr[-1]), device=self.device) + torch.repeat_interleave(self.ptr[rows] - ptr[:-1], length)
        return SparseRows(ptr, self.index[at], self.value[at], self.width)

    def to(self, target: torch.device | torch.dtype) -> SparseRows:
        """These rows on another device, or in another number format."""
        if isinstance(target, torch.dtype):
            return SparseRows(self.ptr, self.index, self.value.to(target), self.width)
        return SparseRows(self.ptr.to(target), self.index.to(target), self.value.to(target), self.width)

    def dense(self) -> Tensor:
        """These rows as an ordinary matrix: [n, width]."""
        out = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        return out.index_put_((self.row, self.index), self.value, accumulate=True)

    @staticmethod
    def from_dense(x: Tensor) -> SparseRows:
        """Sparse rows with the non-zero entries of a matrix."""
        row, index = x.nonzero(as_tuple=True)
        ptr = torch.zeros(len(x) + 1, dtype=torch.int64, device=x.device)
        torch.cumsum(torch.bincount(row, minlength=len(x)), 0, out=ptr[1:])
        return SparseRows(ptr, index, x[row, index], x.shape[1])


Features = Tensor | SparseRows


def take(x: Features, rows: Tensor) -> Features:
    """The given rows of dense or sparse features."""
    return x.take(rows) if isinstance(x, SparseRows) else x[rows]


def stored_values(x: Features) -> Tensor:
    """All stored numbers of dense or sparse features, for checks."""
    return x.value if isinstance(x, SparseRows) else x


def dense_blocks(x: Features, entries: int = 2**22) -> Iterator[Tensor]:
    """All rows in order, as dense float64 blocks of about so many ``entries``; a whole copy may not fit in memory."""
    rows = max(1, entries // max(x.shape[1], 1))
    for first in range(0, len(x), rows):
        block = take(x, torch.arange(first, min(first + rows, len(x)), device=x.device))
        yield (block.dense() if isinstance(block, SparseRows) else block).double()


def rows_to_one(x: Features, power: int = 1) -> Features:
    """Rows divided by their sums (``power`` 1) or lengths (2), sparse where ``x`` is; rows of zeros stay zeros."""
    if isinstance(x, Tensor):
        total = (x**power).sum(1, keepdim=True) ** (1 / power)
        return x / total.where(total != 0, 1)
    total = torch.zeros(len(x), dtype=x.dtype, device=x.device).index_add_(0, x.row, x.value**power) ** (1 / power)
    return SparseRows(x.ptr, x.index, x.value / total.where(total != 0, 1)[x.row], x.width)


def weighted_sums(x: Features, source: Tensor, target: Tensor, weight: Tensor, rows: int) -> Features:
    """Weighted sums of rows: row t of ``rows`` is the sum of weight_e x[source_e] over all e with target_e = t.

    The result is sparse where ``x`` is.
    """
    matrix = torch.sparse_coo_tensor(torch.stack((target, source)), weight, (rows, len(x))).coalesce()
    if isinstance(x, Tensor):
        total: Tensor = torch.sparse.mm(matrix, x)
        return total
    entries = torch.sparse_coo_tensor(torch.stack((x.row, x.index)), x.value, x.shape)
    found = torch.sparse.mm(matrix, entries).coalesce()
    row, index = found.indices()
    ptr = torch.searchsorted(row, torch.arange(rows + 1, device=row.device))
    return SparseRows(ptr, index, found.values(), x.width)


def concat(parts: list[Features]) -> Features:
    """The rows of several parts, one part below the other; sparse if any part is."""
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    sparse = [part if isinstance(part, SparseRows) else SparseRows.from_dense(part) for part in parts]
    shift, ptr = 0, [sparse[0].ptr[:1]]
    for part in sparse:
        ptr.append(part.ptr[1:] + shift)
        shift += int(part.ptr[-1])
    return SparseRows(
        torch.cat(ptr),
        torch.cat([part.index for part in sparse]),
        torch.cat([part.value for part in sparse]),
        sparse[0].width,
    )
