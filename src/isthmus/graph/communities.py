"""Communities of an undirected simple graph, and how they are packed into silos of similar size."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Adjacency = Any  # a SciPy CSR array, symmetric, without self-loops
RAISES = 24  # doublings of Louvain's resolution before a community is cut blindly


def simple_adjacency(edges: np.ndarray, nodes: int) -> Adjacency:
    """Drop directions, parallel edges and self-loops: a symmetric SciPy CSR array."""
    from scipy import sparse

    source, target = edges[:, edges[0] != edges[1]]
    one_way = sparse.csr_array((np.ones(len(source), dtype=bool), (source, target)), shape=(nodes, nodes))
    return sparse.csr_array(one_way + one_way.T)  # booleans saturate, so parallel edges collapse


def metis(adjacency: Adjacency, parts: int, seed: int) -> np.ndarray:
    """METIS's balanced cut into exactly ``parts`` parts."""
    import pymetis

    csr = pymetis.CSRAdjacency(adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64))
    # The C library's generator does not tell seed 0 from seed 1, so count from 1.
    found = pymetis.part_graph(parts, csr, options=pymetis.Options(seed=seed + 1))
    # METIS leaves parts empty when there are few nodes for each.
    return fill_empty(np.asarray(found.vertex_part, dtype=np.int64), parts)


def louvain(adjacency: Adjacency, share: float, resolution: float, seed: int) -> np.ndarray:
    """Louvain's communities; those of more than ``share`` nodes are clustered again on their own.

    Without that, a community larger than an equal share would make a silo far larger than the others, or
    leave too few communities for the silos.
    """
    community = _louvain_once(adjacency, resolution, seed)
    large = [int(number) for number in np.flatnonzero(np.bincount(community) > share)]
    while large:
        rows = np.flatnonzero(community == large.pop())
        pieces = _pieces(adjacency[rows][:, rows], resolution, seed)
        first = int(community.max()) + 1
        community[rows] = first + pieces
        large += [first + int(number) for number in np.flatnonzero(np.bincount(pieces) > share)]
    return np.unique(community, return_inverse=True)[1]


def _pieces(adjacency: Adjacency, resolution: float, seed: int) -> np.ndarray:
    """At least two communities: the resolution rises until Louvain finds them."""
    for doublings in range(RAISES):
        found = _louvain_once(adjacency, resolution * 2**doublings, seed)
        if found.max() > 0:
            return found
    return np.arange(adjacency.shape[0]) % 2  # nothing tells the nodes apart: any two halves will do


def _louvain_once(adjacency: Adjacency, resolution: float, seed: int) -> np.ndarray:
    import igraph
    from scipy import sparse

    upper = sparse.triu(adjacency, k=1).tocoo()
    graph = igraph.Graph(adjacency.shape[0], np.stack([upper.row, upper.col], axis=1))
    with _igraph_seed(seed):
        return np.asarray(graph.community_multilevel(resolution=resolution).membership, dtype=np.int64)


@contextmanager
def _igraph_seed(seed: int) -> Iterator[None]:
    """Let igraph draw from a generator of its own, then give it Python's back: nobody's state is touched."""
    import igraph

    igraph.set_random_number_generator(random.Random(seed))
    try:
        yield
    finally:
        igraph.set_random_number_generator(random)


def pack(community: np.ndarray, silos: int) -> np.ndarray:
    """Whole communities into silos: the largest first, each into the silo that is smallest so far."""
    size = np.bincount(community)
    silo_of = np.empty(len(size), dtype=np.int64)
    smallest = [(0, silo) for silo in range(silos)]
    for number in np.argsort(-size, kind="stable"):
        filled, silo = smallest[0]
        silo_of[number] = silo
        heapq.heapreplace(smallest, (filled + int(size[number]), silo))
    owner: np.ndarray = silo_of[community]
    return owner


def fill_empty(owner: np.ndarray, silos: int) -> np.ndarray:
    """Give each empty silo one node of the largest."""
    owner, size = owner.copy(), np.bincount(owner, minlength=silos)
    for silo in np.flatnonzero(size == 0):
        largest = int(size.argmax())
        owner[np.flatnonzero(owner == largest)[-1]] = silo
        size[largest] -= 1
        size[silo] += 1
    return owner
