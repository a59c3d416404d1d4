"""Louvain splits of citation and co-author graphs beside the statistics published with FedDEP (its Table 1).

python benchmarks/partitions.py --data DIR --out docs/results/partitions.csv
"""

import argparse
import csv
import os
from pathlib import Path

from isthmus.data import load
from isthmus.graph.partition import partition
from isthmus.graph.stats import split_statistics

# (data set, silos): nodes a silo, edges a silo, missing links; undirected edges
PAPER = {
    ("cora", 3): (903, 1594, 496), ("cora", 5): (542, 945, 552), ("cora", 10): (271, 437, 912),
    ("citeseer", 3): (1109, 1458, 178), ("citeseer", 5): (665, 866, 224), ("citeseer", 10): (333, 431, 247),
    ("pubmed", 3): (6572, 13251, 4570), ("pubmed", 5): (3943, 7901, 4818), ("pubmed", 10): (1972, 3500, 9323),
    ("coauthor-cs", 3): (6111, 24300, 8995), ("coauthor-cs", 5): (3667, 13949, 12149),
    ("coauthor-cs", 10): (1833, 5492, 26973),
}  # fmt: skip
COLUMNS = (
    "data", "silos", "nodes_paper", "nodes_ours", "edges_paper", "edges_ours", "missing_paper",
    "missing_ours", "difference",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("ISTHMUS_DATA"), help="folder of the public data sets")
    parser.add_argument("--out", default="docs/results/partitions.csv")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = []
    for (name, silos), (nodes, edges, missing) in PAPER.items():
        graph = load(name, folder=options.data)
        stats = split_statistics(graph, partition(graph, "louvain", silos, options.seed), silos)
        inner = sum(silo.inner_pairs for silo in stats.silos)
        ours = round(graph.n / silos), round(inner / silos), stats.cross_pairs
        rows.append((name, silos, nodes, ours[0], edges, ours[1], missing, ours[2], ours[2] - missing))
        print(*rows[-1], sep="\t")
    with open(Path(options.out), "w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
