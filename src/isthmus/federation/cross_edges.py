"""Cross edges: which of them both silos list, and what becomes of those that only one side lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, PeerError, unknown
from isthmus.core.kinds import Kind
from isthmus.core.random import combine
from isthmus.core.tensors import by_value
from isthmus.graph.silo import CrossEdges, Silo, keep_edges
from isthmus.wire.wire import Wire

MUTUAL, CLAIMED = "mutual", "claimed"
EDGES = {
    MUTUAL: "cross edges that both silos list take part, and others do not",
    CLAIMED: "cross edges that one silo lists take part: a silo gets the rows of any node of another by claiming an "
    "edge to it, and learns which ids exist there",
}
_NONE = torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True)
class Compared:
    """For each of my silos which edges it lists alone ([edges] bool), and notes on how many there are."""

    alone: list[Tensor]
    notes: list[str]


def agree_edges(wire: Wire, silos: Sequence[Silo], which: str) -> tuple[list[Silo], Tensor, list[str]]:
    """Compare cross edges with their other ends, and drop those that only one side lists unless they are claimed.

    Returns my silos, which of their edges (end to end, bool) the other side does not list, and notes.
    """
    if which not in EDGES:
        raise unknown("data.edges", which, EDGES)
    compared = compare_edges(wire, silos)
    if which == CLAIMED:
        return list(silos), torch.cat([*compared.alone, _NONE.bool()]), compared.notes
    kept = [keep_edges(silo, ~alone) for silo, alone in zip(silos, compared.alone, strict=True)]
    edges = sum(silo.edge_index.shape[1] for silo in kept)
    left_out = [f"{note} They take no part." for note in compared.notes]
    return kept, torch.zeros(edges, dtype=torch.bool), left_out


def compare_edges(wire: Wire, silos: Sequence[Silo]) -> Compared:
    """Find cross edges that only one silo lists: both silos of such an edge send each other its key.

    A silo learns of each edge that it lists whether the other side lists it too, and of edges that it does not list how
    many there are and their keys, which are hashes: it can find out those whose ends it guesses. Of an edge that the
    other side does not list it does not learn why: whether its far end exists there or not.
    """
    for silo in silos:
        check_owners(silo, wire.silos)
    mine = {silo.number: silo.cross_by_peer for silo in silos}
    got = wire.post_together(Kind.IDS, {(s.number, j): each.keys for s in silos for j, each in mine[s.number].items()})
    heard: dict[int, dict[int, Tensor]] = {silo.number: {} for silo in silos}
    for (peer, number), keys in got.items():
        check_keys(keys, wire.party(peer))
        heard[number][peer] = keys
    alone, notes = [], list[str]()
    for silo in silos:
        mark, unheard = _compare(silo, mine[silo.number], heard[silo.number])
        alone.append(mark)
        notes += _notes_on_lone_edges(wire, silo, mine[silo.number], mark, unheard)
    return Compared(alone, notes)


def _compare(silo: Silo, mine: dict[int, CrossEdges], theirs: dict[int, Tensor]) -> tuple[Tensor, dict[int, int]]:
    """Which edges of a silo ([edges] bool) the peer does not list; and {peer: number of its edges not listed here}.

    A key counts only for the peer that sent it: nobody can confirm an edge between two other silos. Lists are in the
    order of keys, so that those of two silos that list the same edges are equal.
    """
    alike = {peer for peer, each in mine.items() if peer in theirs and torch.equal(theirs[peer], each.keys)}
    mine = {peer: each for peer, each in mine.items() if peer not in alike}
    theirs = {peer: keys for peer, keys in theirs.items() if peer not in alike}
    edges = torch.cat([*(each.edges for each in mine.values()), _NONE])
    here = _with_peer({peer: each.keys for peer, each in mine.items()})
    there = _with_peer(theirs)
    alone = torch.zeros(silo.edge_index.shape[1], dtype=torch.bool)
    alone[edges] = ~torch.isin(here, there)
    if len(there) == len(here) - int(alone.sum()):  # all that was told is listed here
        return alone, {}
    unheard = (~torch.isin(there, here)).split([len(keys) for keys in theirs.values()])
    return alone, {peer: int(each.sum()) for peer, each in zip(theirs, unheard, strict=True)}


def _with_peer(lists: dict[int, Tensor]) -> Tensor:
    """Keys of several peers' lists, end to end, each mixed with the number of its peer."""
    return torch.cat([*(combine(torch.full_like(keys, peer), keys) for peer, keys in lists.items()), _NONE])


def _notes_on_lone_edges(
    wire: Wire, silo: Silo, mine: dict[int, CrossEdges], alone: Tensor, unheard: dict[int, int]
) -> list[str]:
    """Notes on edges that only one side lists; where both silos live on this host, the one that lists them reports."""
    notes = []
    for peer, each in mine.items():
        only = each.edges[alone[each.edges]]
        if len(only):
            # Ids of an edge stay on the host that lists it: notes of several hosts are collected by the server's.
            example = f", e.g. {_edge(silo, int(only[0]))}" if wire.hosts == 1 else ""
            notes.append(f"{silo.name} lists {len(only)} edges that {wire.party(peer)} does not list{example}.")
    for peer, count in unheard.items():
        if count and not wire.houses(peer):
            notes.append(f"{wire.party(peer)} lists {count} edges that {silo.name} does not list.")
    return notes


def tell_other_ends(
    wire: Wire, kind: Kind, silos: Sequence[Silo], numbers: Sequence[Tensor], alone: Tensor
) -> list[tuple[int, Tensor, Tensor]]:
    """Both silos of a cross edge send each other a number for it; returns [(peer, edges, the peer's numbers)].

    ``numbers`` [edges] are what each of my silos says of its edges. Edges are counted end to end over my silos. Both
    list the edges of a pair of silos in the order of their public keys, so that numbers alone need to travel; edges
    that a silo lists ``alone`` are left out.
    """
    sent: dict[tuple[int, int], Tensor] = {}
    where: dict[tuple[int, int], Tensor] = {}
    first = 0
    for silo, mine in zip(silos, numbers, strict=True):
        for peer, each in silo.cross_by_peer.items():
            edges = each.edges[~alone[first + each.edges]]
            where[peer, silo.number] = first + edges
            if len(edges):  # else the other side may not know of any edge between the two
                sent[silo.number, peer] = mine[edges]
        first += silo.edge_index.shape[1]
    told = []
    for pair, theirs in wire.post(kind, sent).items():
        edges = where[pair]
        if theirs.shape != edges.shape or theirs.dtype != numbers[0].dtype:
            raise PeerError(f"{wire.party(pair[0])} sent {kind} of {len(theirs)} cross edges, and not of {len(edges)}.")
        told.append((pair[0], edges, theirs))
    return told


def grouped_by(owner: Tensor) -> dict[int, Tensor]:
    """{number: ascending places at which it stands in ``owner``}."""
    order, counts = by_value(owner, int(owner.max()) + 1 if len(owner) else 0)
    return {number: places for number, places in enumerate(order.split(counts)) if len(places)}


def check_owners(silo: Silo, silos: int) -> None:
    """Refuse far ends whose owner is no silo of the federation."""
    if len(silo.halo_owner) and not 0 <= int(silo.halo_owner.min()) <= int(silo.halo_owner.max()) < silos:
        raise IsthmusError(f"{silo.name} names an owner outside 0..{silos - 1} for a far end; there are {silos} silos.")


def check_keys(keys: Tensor, who: str) -> None:
    """Refuse a letter that is not a list of 64-bit keys."""
    if keys.dtype != torch.int64 or keys.dim() != 1:
        raise PeerError(f"{who} sent keys of nodes or edges that are {keys.dtype} {list(keys.shape)}.")


def _edge(silo: Silo, edge: int) -> str:
    ids = np.concatenate([silo.ids, silo.halo_ids])
    source, target = silo.edge_index[:, edge].tolist()
    return f"{ids[source]} -> {ids[target]}"
