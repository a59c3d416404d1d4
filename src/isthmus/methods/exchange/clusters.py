"""Groups of a silo's nodes whose means may leave: k-means, with groups that are too small merged into their nearest."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """The mean of each group, how many nodes it has, the group of each node; how many groups were merged away."""

    means: Tensor  # [groups, width]
    sizes: Tensor  # [groups]
    of: Tensor  # [nodes]
    merged: int = 0


def group(rows: Tensor, clusters: int, smallest: int, seed: int) -> Groups:
    """At most ``clusters`` groups of rows [n, width] that lie close to each other, each of ``smallest`` rows or more.

    Where there are no more rows than clusters, every row begins as a group of its own. A silo with fewer than
    ``smallest`` rows has no group at all.
    """
    if len(rows) < smallest or not len(rows):
        return Groups(rows[:0], torch.zeros(0, dtype=torch.int64), torch.full((len(rows),), -1))
    return _without_small(rows, _nearest(rows, clusters, seed), smallest)


def _nearest(rows: Tensor, clusters: int, seed: int) -> Tensor:
    """The group of each row, by k-means."""
    if len(rows) <= clusters:
        return torch.arange(len(rows))
    from sklearn.cluster import KMeans

    found = KMeans(clusters, n_init=4, random_state=seed % 2**31).fit(rows.double().cpu().numpy())
    return torch.from_numpy(found.labels_).long()


def _without_small(rows: Tensor, of: Tensor, smallest: int) -> Groups:
    """Groups of at least ``smallest`` rows: while one is smaller, the smallest is merged into its nearest."""
    began = len(of.unique())
    while True:
        names, of, sizes = of.unique(return_inverse=True, return_counts=True)
        totals = rows.new_zeros(len(names), rows.shape[1]).index_add_(0, of.to(rows.device), rows)
        means = totals / sizes.to(rows)[:, None]
        least = int(sizes.argmin())
        if int(sizes[least]) >= smallest or len(names) == 1:
            return Groups(means, sizes, of, began - len(names))
        away = (means - means[least]).square().sum(1)
        away[least] = torch.inf
        of = torch.where(of == least, int(away.argmin()), of)
