"""Link inference: whether two nodes of a silo are neighbours, from how alike the rows are that it released for them."""

from __future__ import annotations

import torch
from torch import Tensor

MOST = 2000  # pairs of neighbours, and as many of others
_TRIES = 20  # random pairs that are looked at for each that is wanted


def area(positive: Tensor, negative: Tensor) -> float:
    """The area under the ROC curve: how often a positive scores higher than a negative; ties count half."""
    order = torch.sort(torch.cat([negative, positive])).values
    below = torch.searchsorted(order, positive, right=False).double()
    upto = torch.searchsorted(order, positive, right=True).double()
    own = torch.sort(positive).values
    mine = torch.searchsorted(own, positive, right=False) + torch.searchsorted(own, positive, right=True)
    wins = (below + upto - mine.double()) / 2  # negatives below, and half of those that are equal
    return float(wins.mean() / len(negative))


def likeness(rows: Tensor, pairs: Tensor, centre: Tensor) -> Tensor:
    """The cosine between the rows of each pair [2, p], seen from the ``centre`` of all rows: [p]."""
    return torch.cosine_similarity(rows[pairs[0]] - centre, rows[pairs[1]] - centre, dim=1)


def pairs_of(ends: Tensor, owner: Tensor, known: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Pairs of neighbours and as many pairs that are none, each within one silo and of ``known`` nodes: [2, p] each.

    ``ends`` [2, m] are all edges, ``owner`` [n] the silo of each node, ``known`` [n] whose rows were released.
    """
    random, nodes = torch.Generator().manual_seed(seed), len(owner)
    inside = (owner[ends[0]] == owner[ends[1]]) & known[ends].all(0) & (ends[0] != ends[1])
    codes = _codes(ends[:, inside], nodes).unique()
    joined = codes[torch.randperm(len(codes), generator=random)[:MOST]]
    apart = torch.cat([_apart(joined, codes, owner, known, silo, random) for silo in owner.unique().tolist()])
    kept = _balanced(joined, apart, owner)
    return torch.stack([kept[0] // nodes, kept[0] % nodes]), torch.stack([kept[1] // nodes, kept[1] % nodes])


def _codes(pairs: Tensor, nodes: int) -> Tensor:
    """Each pair as one number, whichever end comes first."""
    return pairs.amin(0) * nodes + pairs.amax(0)


def _apart(joined: Tensor, codes: Tensor, owner: Tensor, known: Tensor, silo: int, random: torch.Generator) -> Tensor:
    """Pairs of a silo's nodes that are not neighbours: as many as ``joined`` has of this silo, or as were found."""
    wanted = int((owner[joined % len(owner)] == silo).sum())
    mine = ((owner == silo) & known).nonzero().flatten()
    if not wanted or len(mine) < 2:
        return codes[:0]
    drawn = mine[torch.randint(len(mine), (2, _TRIES * wanted), generator=random)]
    found = _codes(drawn[:, drawn[0] != drawn[1]], len(owner)).unique()
    found = found[~torch.isin(found, codes)]
    chosen: Tensor = found[torch.randperm(len(found), generator=random)[:wanted]]
    return chosen


def _balanced(joined: Tensor, apart: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of neighbours and other pairs, cut to equal numbers of both in every silo."""
    kept: list[tuple[Tensor, Tensor]] = []
    for silo in owner.unique().tolist():
        a, b = (codes[owner[codes % len(owner)] == silo] for codes in (joined, apart))
        count = min(len(a), len(b))
        kept.append((a[:count], b[:count]))
    return torch.cat([a for a, _ in kept]), torch.cat([b for _, b in kept])
