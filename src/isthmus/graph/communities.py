"""Communities of an undirected simple graph (METIS, Louvain), and packing them into silos of similar size."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

SparseAdjacency = Any  # a SciPy CSR array, symmetric, without self-loops
RAISES = 24  # how often Louvain's resolution is doubled before a community is cut into two arbitrary halves


def simple_adjacency(edges: np.ndarray, nodes: int) -> SparseAdjacency:
    """The graph without directions, parallel edges and self-loops, as a symmetric SciPy CSR array."""
    from scipy import sparse

    source, target = edges[:, edges[0] != edges[1]]
    one_way = sparse.csr_array((np.ones(len(source), dtype=bool), (source, target)), shape=(nodes, nodes))
    return sparse.csr_array(one_way + one_way.T)  # booleans saturate, so parallel edges collapse


def metis(adjacency: SparseAdjacency, parts: int, seed: int) -> np.ndarray:
    """The part of each node in METIS's balanced cut into exactly ``parts`` parts: [n]."""
    import pymetis

    csr = pymetis.CSRAdjacency(adjacency.indptr.astype(np.int64), adjacency.indices.astype(np.int64))
    # The C library's generator does not tell seed 0 from seed 1, so count from 1.
    found = pymetis.part_graph(parts, csr, options=pymetis.Options(seed=seed + 1))
    # METIS leaves parts empty when there are few nodes for each.
    return fill_empty(np.asarray(found.vertex_part, dtype=np.int64), parts)


def louvain(adjacency: SparseAdjacency, share: float, resolution: float, seed: int) -> np.ndarray:
    """The Louvain community of each node: [n]; communities of more than ``share`` nodes are split further.

    Otherwise a community larger than an equal share would make one silo far larger than the others, or leave too few
    communities for the silos.
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


def _pieces(adjacency: SparseAdjacency, resolution: float, seed: int) -> np.ndarray:
    """The community of each node, of at least two; the resolution is doubled until Louvain finds several."""
    for doublings in range(RAISES):
        found = _louvain_once(adjacency, resolution * 2**doublings, seed)
        if found.max() > 0:
            return found
    return np.arange(adjacency.shape[0]) % 2  # no resolution separates the nodes: any two halves will do


def _louvain_once(adjacency: SparseAdjacency, resolution: float, seed: int) -> np.ndarray:
    """The Louvain community of each node at one resolution: [n]."""
    import igraph
    from scipy import sparse

    upper = sparse.triu(adjacency, k=1).tocoo()
    graph = igraph.Graph(adjacency.shape[0], np.stack([upper.row, upper.col], axis=1))
    with _igraph_seed(seed):
        return np.asarray(graph.community_multilevel(resolution=resolution).membership, dtype=np.int64)


@contextmanager
def _igraph_seed(seed: int) -> Iterator[None]:
    """Give igraph a random generator of its own inside the block; Python's global generator is not touched."""
    import igraph

    igraph.set_random_number_generator(random.Random(seed))
    try:
        yield
    finally:
        igraph.set_random_number_generator(random)


def pack_into_silos(community: np.ndarray, silos: int) -> np.ndarray:
    """The silo of each node: whole communities, the largest first, each go to the silo that is smallest so far."""
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
    """The owner of each node after every empty silo got one node of the largest silo."""
    owner, size = owner.copy(), np.bincount(owner, minlength=silos)
    for silo in np.flatnonzero(size == 0):
        largest = int(size.argmax())
        owner[np.flatnonzero(owner == largest)[-1]] = silo
        size[largest] -= 1
        size[silo] += 1
    return owner
