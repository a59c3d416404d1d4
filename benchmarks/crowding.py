"""How many other seeds of its batch a seed can see: why 32 seeds crowd a silo of 546 nodes and 8 do not.

    python benchmarks/crowding.py

The training graph of the patterns (8192 nodes), 15 silos, six hops along and against edges, every neighbour taken; far
ends are seen but not passed. The last line is a batch of all silos together.
"""

import numpy as np
import scipy.sparse as sp

from isthmus.data.patterns import patterns
from isthmus.graph.graph import Graph
from isthmus.graph.partition import partition

SILOS, HOPS, BATCHES = 15, 6, (8, 32)
SPLITS = {"louvain": {"resolution": 3.0}, "metis": {"communities": 256}}


def reached(graph: Graph, seeds: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Which of the seeds each seed sees, itself included: [seeds, seeds]."""
    source, target = graph.edge_index.numpy()[:, edges]
    step = sp.csr_matrix((np.ones(len(source)), (source, target)), shape=(graph.n, graph.n))
    step = ((step + step.T + sp.identity(graph.n)) > 0).astype(np.float32)
    seen = sp.identity(graph.n, dtype=np.float32, format="csr")[seeds]
    for _ in range(HOPS):
        seen = ((seen @ step) > 0).astype(np.float32)
    return np.asarray(seen[:, seeds].toarray() > 0)


def others(seen: np.ndarray, batch: int, rng: np.random.Generator) -> float:
    """Other seeds in sight of a seed, for one batch drawn from all nodes."""
    drawn = rng.choice(len(seen), batch, replace=False)
    return float(seen[np.ix_(drawn, drawn)].sum(1).mean() - 1)


def main() -> None:
    graph, rng = patterns(8192), np.random.default_rng(0)
    assert graph.component is not None
    train = graph.component.numpy() == 0
    source, target = graph.edge_index.numpy()
    for how, options in SPLITS.items():
        owner = partition(graph, how, SILOS, **options).numpy()
        silos = []
        for silo in range(SILOS):
            mine = train[source] & ((owner[source] == silo) | (owner[target] == silo))
            silos.append(reached(graph, np.flatnonzero((owner == silo) & train), mine))
        share = 100 * np.mean([seen.mean() for seen in silos])
        sight = [np.mean([others(seen, batch, rng) for seen in silos for _ in range(20)]) for batch in BATCHES]
        words = ", ".join(f"{count:.1f} others of {batch}" for batch, count in zip(BATCHES, sight, strict=True))
        print(f"{how:8} a seed sees {share:.0f} % of its silo: {words}")
    drawn = [rng.choice(np.flatnonzero(train), 32, replace=False) for _ in range(20)]
    together = [float(reached(graph, each, train[source]).sum(1).mean() - 1) for each in drawn]
    print(f"{'joint':8} {np.mean(together):.1f} others of 32")


if __name__ == "__main__":
    main()
