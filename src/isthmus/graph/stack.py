"""The silos of one host as one block-diagonal graph, so that one kernel call serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from isthmus.graph.features import Features, SparseRows, concat
from isthmus.graph.graph import UNUSED, Schema
from isthmus.graph.silo import BY_SOURCE, Silo, nobody


@dataclass(frozen=True)
class Adjacency:
    """The neighbours of each row in CSR form: row v has the neighbours ``near[ptr[v]:ptr[v + 1]]``."""

    ptr: Tensor  # [rows + 1]
    near: Tensor  # [m] the row at the other end
    edge: Tensor  # [m] edge number

    @staticmethod
    def build(at: Tensor, near: Tensor, expanded: Tensor | None, rows: int) -> Adjacency:
        """Edges from rows ``at`` to rows ``near``, grouped by ``at``; neighbours keep the order of the edge list.

        Only rows marked in ``expanded`` get neighbours (None: all rows).
        """
        edges = torch.arange(len(at)) if expanded is None else expanded[at].nonzero().flatten()
        order = edges[torch.argsort(at[edges], stable=True)]
        ptr = torch.zeros(rows + 1, dtype=torch.int64)
        torch.cumsum(torch.bincount(at[edges], minlength=rows), 0, out=ptr[1:])
        return Adjacency(ptr, near[order], order)

    @cached_property
    def degree(self) -> Tensor:
        """Number of edges of each row: [rows]."""
        return self.ptr.diff()

    def only(self, kept: Tensor) -> Adjacency:
        """The adjacency of some edges alone; ``kept`` [edges] bool marks them."""
        here = kept[self.edge]
        before = torch.cat((here.new_zeros(1, dtype=torch.int64), here.cumsum(0)))
        return Adjacency(before[self.ptr], self.near[here], self.edge[here])

    def to(self, device: torch.device) -> Adjacency:
        """The adjacency on another device."""
        return Adjacency(self.ptr.to(device), self.near.to(device), self.edge.to(device))


@dataclass(frozen=True)
class Stack:
    """The rows of a host's silos, one silo below the other, and their edges.

    Each silo has its owned rows and then, in views that keep them, its halo rows. ``feature_row`` maps a row to its row
    of ``x``: all placeholders of a silo share one row, the mean of the silo's own features.
    """

    silos: tuple[int, ...]
    ptr: tuple[int, ...]  # [silos + 1] first row of each silo
    keys: Tensor  # [rows]
    owned: Tensor  # [rows] bool
    x: Features
    x_ptr: tuple[int, ...]  # first row of x of each silo
    feature_row: Tensor | None  # [rows], None: row i of x
    y: Tensor  # [rows] or [rows, T]
    split: Tensor  # [rows] int8
    ends: Tensor  # [2, m]
    incoming: Adjacency
    outgoing: Adjacency
    edge_keys: Tensor  # [m]
    edge_attr: Tensor | None
    edge_y: Tensor | None
    edge_split: Tensor | None
    edge_teacher: Tensor | None  # [m] int8, who has the label of an edge (see graph/silo.py); None: both of its silos
    in_degree: Tensor  # [rows] of the whole graph for owned rows; for halo rows as far as known
    out_degree: Tensor
    ports: Tensor | None  # [m, 2] in-port at the target, out-port at the source; None where no model reads them
    halo: bool = False  # the rows of far ends come from their owners, so that x holds owned rows alone

    @property
    def rows(self) -> int:
        """Number of rows of this host."""
        return self.ptr[-1]

    def seed_end(self, edges: Tensor) -> Tensor:
        """The end of each of some edges whose owner teaches it: the target, unless the source's owner alone can."""
        source, target = self.ends[0, edges], self.ends[1, edges]
        if self.edge_teacher is None:
            return target
        return torch.where(self.edge_teacher[edges] == BY_SOURCE, source, target)

    def until(self, split: int) -> Stack:
        """The stack with neighbours along edges of ``split`` and of earlier splits alone.

        Splits follow each other as training, validation, test; edges without a split are always kept. Rows and edge
        numbers do not change.
        """
        assert self.edge_split is not None
        return self.along(self.edge_split <= split)

    def inner(self) -> Stack:
        """The stack with neighbours along edges between owned rows alone; rows and edge numbers do not change."""
        return self.along(self.owned[self.ends].all(0))

    def without(self, gone: Tensor) -> Stack:
        """The stack without neighbours along edges to or from some rows ([rows] bool), mostly those of absent silos.

        Degrees of far ends stay as they were told.
        """
        left = self.along(~gone[self.ends].any(0))
        degrees = [
            torch.where(self.owned, now, told)
            for now, told in ((left.in_degree, self.in_degree), (left.out_degree, self.out_degree))
        ]
        return replace(left, in_degree=degrees[0], out_degree=degrees[1])

    def bare(self) -> Stack:
        """The stack without neighbours, whose rows still know how many they have."""
        none = self.along(torch.zeros_like(self.edge_keys, dtype=torch.bool))
        return replace(none, in_degree=self.in_degree, out_degree=self.out_degree)

    def along(self, kept: Tensor) -> Stack:
        """The stack with neighbours along the edges marked in ``kept``; degrees count only these."""
        incoming, outgoing = (side.only(kept) for side in (self.incoming, self.outgoing))
        adjacency = replace(self, incoming=incoming, outgoing=outgoing)
        return replace(adjacency, in_degree=incoming.degree, out_degree=outgoing.degree)

    @cached_property
    def own_line(self) -> Tensor:
        """The place of each owned row among all owned rows, which is its row in tables of owned rows alone: [rows]."""
        return self.owned.cumsum(0) - 1

    def silo_of(self, rows: Tensor) -> Tensor:
        """The silo of each of some rows, as its place among this host's silos."""
        return torch.searchsorted(torch.tensor(self.ptr[1:], device=rows.device), rows, right=True)

    def segments(self, rows: Tensor) -> tuple[int, ...]:
        """Where each silo's rows begin among ascending ``rows``: [silos + 1]."""
        edges = torch.tensor(self.ptr, device=rows.device)
        return tuple(torch.searchsorted(rows, edges).tolist())

    def to(self, device: torch.device) -> Stack:
        """The stack on another device."""
        mine = {each.name: getattr(self, each.name) for each in fields(self)}
        moved = {name: x.to(device) for name, x in mine.items() if isinstance(x, Tensor | Adjacency | SparseRows)}
        return Stack(**{**mine, **moved})


def build_stack(silos: Sequence[Silo], halo: str, dtype: torch.dtype, schema: Schema, ports: bool = False) -> Stack:
    """The stack of a host's silos, in one of three views of the ``halo``.

    ``drop``: owned rows and inner edges alone. ``placeholder``: far ends too, whose rows this host computes from the
    edges that the silo knows. ``halo``: far ends too, whose rows come from their owners, so that only owned rows have
    neighbours here. With ``ports`` edges have port numbers.
    A host without silos has a stack of one part without rows, which nobody owns.
    """
    if not silos:
        return replace(build_stack([nobody(schema)], halo, dtype, schema, ports), silos=())
    keep = halo != "drop"
    sizes = [silo.n + (silo.h if keep else 0) for silo in silos]
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    kept = [torch.ones(silo.edge_index.shape[1], dtype=torch.bool) if keep else ~silo.crosses for silo in silos]
    ends = torch.cat([s.edge_index[:, k] + ptr[i] for i, (s, k) in enumerate(zip(silos, kept, strict=True))], 1)
    x, x_ptr, feature_row = _features(silos, halo == "placeholder", dtype)
    owned = torch.cat([torch.arange(size) < s.n for s, size in zip(silos, sizes, strict=True)])
    sides = [Adjacency.build(ends[to], ends[1 - to], owned if halo == "halo" else None, int(ptr[-1])) for to in (1, 0)]
    return Stack(
        silos=tuple(silo.number for silo in silos),
        ptr=tuple(ptr.tolist()),
        keys=torch.cat([silo.keys[:size] for silo, size in zip(silos, sizes, strict=True)]),
        owned=owned,
        x=x,
        x_ptr=x_ptr,
        feature_row=feature_row,
        y=torch.cat([_padded(s.y, size, -1) for s, size in zip(silos, sizes, strict=True)]),
        split=torch.cat([_padded(s.split, size, UNUSED) for s, size in zip(silos, sizes, strict=True)]),
        ends=ends,
        incoming=sides[0],
        outgoing=sides[1],
        edge_keys=torch.cat([s.edge_keys[k] for s, k in zip(silos, kept, strict=True)]),
        edge_attr=_edges(silos, kept, "edge_attr", dtype),
        edge_y=_edges(silos, kept, "edge_y", torch.int64),
        edge_split=_edges(silos, kept, "edge_split", torch.int8),
        edge_teacher=_edges(silos, kept, "edge_teacher", torch.int8),
        in_degree=sides[0].degree,
        out_degree=sides[1].degree,
        ports=torch.cat([s.ports[k] for s, k in zip(silos, kept, strict=True)]) if ports else None,
        halo=halo == "halo",
    )


def _padded(values: Tensor, size: int, fill: int) -> Tensor:
    """Values of owned rows, followed by ``fill`` for the halo rows: [size, ...]."""
    pad = torch.full((size - len(values), *values.shape[1:]), fill, dtype=values.dtype)
    return torch.cat([values, pad])


def _edges(silos: Sequence[Silo], kept: list[Tensor], field: str, dtype: torch.dtype) -> Tensor | None:
    """One field of the kept edges of all silos; None if a silo does not have it."""
    parts = [getattr(silo, field) for silo in silos]
    if any(part is None for part in parts):
        return None
    return torch.cat([part[k] for part, k in zip(parts, kept, strict=True)]).to(dtype)


def _features(silos: Sequence[Silo], keep: bool, dtype: torch.dtype) -> tuple[Features, tuple[int, ...], Tensor | None]:
    """Feature rows of all silos, where each silo's begin, and the feature row of each stack row (None: its own).

    With ``keep`` the placeholders of a silo have the mean of its owned nodes' features.
    """
    own = [silo.x.to(dtype) for silo in silos]
    if not keep or not any(silo.h for silo in silos):
        return concat(own), tuple(torch.tensor([0, *map(len, own)]).cumsum(0).tolist()), None
    parts: list[Features] = []
    row, start, ptr = [], 0, [0]
    for silo, x in zip(silos, own, strict=True):
        parts += [x, _mean_row(x)]
        row += [torch.arange(silo.n) + start, torch.full((silo.h,), start + silo.n)]
        start += silo.n + 1
        ptr.append(start)
    return concat(parts), tuple(ptr), torch.cat(row)


def _mean_row(x: Features) -> Features:
    """The mean of all rows, as one row."""
    count = max(len(x), 1)
    if isinstance(x, SparseRows):
        mean = torch.zeros(x.width, dtype=x.dtype).index_add_(0, x.index, x.value) / count
        return SparseRows.from_dense(mean[None])
    return x.sum(0, keepdim=True) / count
