"""The input of a layer: source rows, target rows, and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError


@dataclass(frozen=True)
class Rows:
    """Rows of several silos, one silo after the other; silo i holds the rows ``ptr[i]`` to ``ptr[i + 1]``.

    Where each silo has a parameter set of its own, the pointers say which set a row uses. With two ``sides`` (see
    :func:`isthmus.nn.directed.both_sides`) all silos occur twice, and each side has parameter sets of its own.
    """

    ptr: tuple[int, ...]
    keys: Tensor  # [n] public keys, for dropout
    owned: Tensor | None = None  # [n] bool: rows of owned nodes (None: all); placeholders are not counted in moments
    sides: int = 1

    def __len__(self) -> int:
        return self.ptr[-1]

    def by_sets(self, sets: int) -> Rows:
        """These rows with one pointer for each of ``sets`` parameter sets; raises if silos and sets do not match."""
        parts = len(self.ptr) - 1
        if sets == parts:
            return self
        if sets == self.sides:
            return self._by_sides
        raise IsthmusError(f"{sets} parameter sets but rows of {parts} silos; stack the model for these silos.")

    @cached_property
    def _by_sides(self) -> Rows:
        return Rows(self.ptr[:: (len(self.ptr) - 1) // self.sides], self.keys, self.owned, self.sides)

    @cached_property
    def sizes(self) -> list[int]:
        """Number of rows of each silo."""
        return [end - begin for begin, end in zip(self.ptr, self.ptr[1:], strict=False)]

    @cached_property
    def silo(self) -> Tensor:
        """The silo of each row, as its place among the silos of this host: [n]."""
        counts = torch.tensor(self.sizes, device=self.keys.device)
        each = torch.arange(len(counts), device=counts.device)
        return torch.repeat_interleave(each, counts, output_size=len(self))

    @cached_property
    def padding(self) -> Padding | None:
        """The layout of these rows as [silos, most, ...]; None where silos are too unequal for padding to pay."""
        most = max(self.sizes)
        if len(self.sizes) * most > 4 * len(self):
            return None
        if len(self.sizes) * most == len(self):
            return Padding(len(self.sizes), most, None)
        gap = torch.tensor([most * i - begin for i, begin in enumerate(self.ptr[:-1])], device=self.keys.device)
        at = torch.arange(len(self), device=self.keys.device) + gap[self.silo]
        return Padding(len(self.sizes), most, at)


@dataclass(frozen=True)
class Padding:
    """A layout of the rows of several silos as [silos, most, ...], shorter silos filled up with zeros."""

    silos: int
    most: int
    at: Tensor | None  # [n] place of each row in [silos * most]; None: all silos have equally many rows

    def pad(self, x: Tensor) -> Tensor:
        """Rows [..., n, d] in the padded layout [..., silos, most, d]."""
        if self.at is None:
            return x.reshape(*x.shape[:-2], self.silos, self.most, x.shape[-1])
        shape = *x.shape[:-2], self.silos * self.most, x.shape[-1]
        out = x.new_zeros(shape).index_copy_(-2, self.at, x)
        return out.view(*x.shape[:-2], self.silos, self.most, x.shape[-1])

    def unpad(self, x: Tensor) -> Tensor:
        """Rows [..., n, d] from the padded layout [..., silos, most, d]."""
        wide = x.flatten(-3, -2)
        return wide if self.at is None else wide.index_select(-2, self.at)


@dataclass
class Block:
    """Edges into the rows that one layer computes, sorted by target.

    There are E edges; ``src`` holds places in ``sources``, ``dst`` places in ``targets``. ``own`` is the place of each
    target among the sources (None: targets and sources are the same rows). Degrees are those of the whole graph as the
    owner of a node knows it, not of the sample.
    """

    src: Tensor  # [E] int64
    dst: Tensor  # [E] int64, ascending
    sources: Rows
    targets: Rows
    own: Tensor | None = None  # [targets] int64
    attr: Tensor | None = None  # [E, edge features]
    ports: Tensor | None = None  # [E, 2] int64: port at the target's end, port at the source's end
    src_degree: Tensor | None = None  # [sources]
    dst_degree: Tensor | None = None  # [targets]
    reverse: Block | None = None  # the block of this layer's outgoing edges, for directed models
    kept: Tensor | None = (
        None  # [edges of the layer before] bool: which of them this block keeps, in their order (None: all)
    )
    cache: dict[str, Any] = field(default_factory=dict, repr=False)  # whatever is computed from the edges alone

    def of_targets(self, h: Tensor) -> Tensor:
        """The targets' own rows, taken from the source rows: [targets, d]."""
        return h if self.own is None else h.index_select(0, self.own)

    @property
    def dst_ptr(self) -> Tensor:
        """Where each target's edges begin: [targets + 1]."""
        if "dst_ptr" not in self.cache:
            grid = torch.arange(len(self.targets) + 1, device=self.dst.device)
            self.cache["dst_ptr"] = torch.searchsorted(self.dst, grid)
        ptr: Tensor = self.cache["dst_ptr"]
        return ptr

    @cached_property
    def edges(self) -> Rows:
        """The edges as rows: an edge belongs to the silo of its target."""
        ends = self.targets.ptr
        at = (0, len(self.dst)) if len(ends) == 2 else tuple(self.dst_ptr[list(ends)].tolist())
        return Rows(at, self.dst, sides=self.targets.sides)

    @property
    def count(self) -> Tensor:
        """Number of edges of each target: [targets] int64."""
        return self.dst_ptr.diff()


def side_by_side(rows: Rows, attr: Tensor | None, ports: Tensor | None) -> Block:
    """A block in which each edge has a source row and a target row of its own; ``rows`` are the edges."""
    each = torch.arange(len(rows), device=rows.keys.device)
    block = Block(each, each, rows, rows, attr=attr, ports=ports)
    block.edges = rows
    return block
