"""Nearest neighbours of nodes among released rows of all layers together, found by exact search in blocks.

A node v whose row h_l(v) left R_l(v) times at layer l is told apart from a node w by

    sum over layers l of R_l(v) |h_l(v) - h_l(w)|^2

so that its nearest neighbours are the nodes w with the smallest sums; they do not differ from layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.core.random import mix

_PAIRS = 2**24  # distances held at a time: 128 MiB
_STRIDE = -7046029254386353131  # tells columns and layers apart before they are hashed


@dataclass(frozen=True)
class Nearest:
    """Distance, difference and number of the k nearest neighbours of each node that was asked for.

    Another node counts only if it was released at every layer at which this one was. With fewer than k such nodes, the
    farthest of them stands for the k-th.
    """

    squared: Tensor  # [q] the sum above for the k-th nearest; infinite without any other node
    distinct: Tensor  # [q] different rows among the node's own and those of its k nearest
    others: Tensor  # [q] how many other nodes there are


def nearest(rows: Sequence[Tensor], counts: Tensor, k: int, asked: Tensor) -> Nearest:
    """The k nearest neighbours of the nodes ``asked`` [q] among all n.

    ``rows`` are [n, width] for each layer, as released but before noise; ``counts`` [layers, n] how often each left. A
    row that is not finite (of a diverged model) has an infinite distance to all others.
    """
    released = counts > 0
    finite = torch.stack([each.isfinite().all(1) for each in rows])
    known = _Known.of([_centred(each, here) for each, here in zip(rows, released & finite, strict=True)], ~finite)
    found = [known.around(counts[:, chunk], chunk, k, ~released) for chunk in _blocks(asked, counts.shape[1])]
    empty = torch.zeros(0, dtype=torch.int64)
    squared = torch.cat([each.squared for each in found] or [empty.double()])
    lost = (released & ~finite).any(0)[asked]
    return Nearest(
        torch.where(lost, math.inf, squared),
        torch.cat([each.distinct for each in found] or [empty]),
        torch.cat([each.others for each in found] or [empty]),
    )


@dataclass(frozen=True)
class _Known:
    """Centred rows of all layers, their squared norms, and a 64-bit hash of each row by which equal rows are found."""

    rows: tuple[Tensor, ...]  # [n, width] of each layer
    squares: Tensor  # [layers, n]
    codes: Tensor  # [layers, n]
    broken: Tensor  # [layers, n] rows that are not finite

    @staticmethod
    def of(rows: Sequence[Tensor], broken: Tensor) -> _Known:
        squares = torch.stack([each.square().sum(1) for each in rows])
        return _Known(tuple(rows), squares, torch.stack([_coded(each, i) for i, each in enumerate(rows)]), broken)

    def around(self, counts: Tensor, chunk: Tensor, k: int, absent: Tensor) -> Nearest:
        """The k nearest of the nodes ``chunk``, which left ``counts`` [layers, chunk] times."""
        weights = counts.T.double()
        distances = self._distances(weights, chunk, absent | self.broken)
        others = distances.isfinite().sum(1)
        rank = min(k, distances.shape[1] - 1)
        if not rank:
            return Nearest(weights.new_full((len(chunk),), math.inf), torch.ones_like(chunk), others)
        near = distances.topk(rank, largest=False)
        last = (others.clamp(max=rank) - 1).clamp(min=0)
        kth = near.indices.gather(1, last[:, None]).flatten()
        # Products choose the neighbour, differences measure it: exactly 0 for equal rows, where products round.
        apart = torch.stack([(each[chunk] - each[kth]).square().sum(1) for each in self.rows], 1)
        squared = torch.where(others > 0, (weights * apart).sum(1), math.inf)
        return Nearest(squared, self._distinct(weights > 0, chunk, near.indices, near.values.isfinite()), others)

    def _distances(self, weights: Tensor, chunk: Tensor, absent: Tensor) -> Tensor:
        """Squared distances of ``chunk`` to all nodes, less a constant for each row: [chunk, n].

        Infinite to the node itself and to nodes that were not released at all of its layers.
        """
        distances = weights @ self.squares
        for layer, each in enumerate(self.rows):
            distances.addmm_(weights[:, layer, None] * each[chunk], each.T, alpha=-2)
        missing = (weights > 0).double() @ absent.double()
        distances.masked_fill_(missing > 0, math.inf)
        distances[torch.arange(len(chunk)), chunk] = math.inf
        return distances

    def _distinct(self, layers: Tensor, chunk: Tensor, near: Tensor, real: Tensor) -> Tensor:
        """How many different rows a node and its nearest have at the ``layers`` [chunk, layers] of the node."""
        own, theirs = torch.zeros_like(chunk), torch.zeros_like(near)
        for layer, codes in enumerate(self.codes):
            own += layers[:, layer] * codes[chunk]
            theirs += layers[:, layer, None] * codes[near]
        every = torch.cat([own[:, None], torch.where(real, theirs, own[:, None])], 1).sort(1).values
        return 1 + (every.diff(dim=1) != 0).sum(1)


def _centred(rows: Tensor, here: Tensor) -> Tensor:
    """Rows ``here`` [n] minus their mean, and zeros for the others. Distances do not change, products round less."""
    points = torch.where(here[:, None], rows.detach().double(), 0.0)
    mean = points.sum(0) / here.sum().clamp(min=1)
    return torch.where(here[:, None], points - mean, 0.0)


def _coded(rows: Tensor, layer: int) -> Tensor:
    """A 64-bit hash of each row [n]; minus zero is zero."""
    bits = (rows + 0.0).contiguous().view(torch.int64)
    columns = _STRIDE * (torch.arange(rows.shape[1]) + 1 + 2**32 * layer)
    return mix(mix(bits) + columns).sum(1)


def _blocks(asked: Tensor, count: int) -> Iterator[Tensor]:
    """The nodes ``asked`` in blocks that are small enough to hold their distances to all ``count`` nodes."""
    return iter(asked.split(max(1, _PAIRS // max(count, 1)))) if len(asked) else iter(())
