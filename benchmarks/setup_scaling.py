"""How set-up grows with the graph: processor seconds to cut it, shake hands and lay out the run, at several sizes.

Block models of 16 directed edges a node over ten silos by a random split, which cuts nine edges of ten. Beside them
stands what one random read for every end of an edge takes from a table of the nodes: where that grows by more than
the graph, it is the processor's cache that no longer holds the table.

    python benchmarks/setup_scaling.py --json docs/results/setup.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measure import WORDS, Job, as_child, in_child, record
from million import Stages, set_up
from rich.console import Console
from rich.table import Table

STAGES = {"split_graph": "cut into silos", "handshake": "handshake", "lay out the run": "lay out"}
READ = "one random read for every end of an edge"


def main() -> None:
    """Measure every size, and print seconds beside how many times as long they are as at the first size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100_000, 400_000, 800_000])
    parser.add_argument("--repeats", type=int, default=3, help="the quickest counts, stage by stage")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    tries = [
        [in_child(__file__, {"nodes": nodes, "split": "random"}) for nodes in options.nodes]
        for _ in range(options.repeats)
    ]
    found = [{name: min(run[name] for run in runs) for name in runs[0]} for runs in zip(*tries, strict=True)]
    for nodes, run in zip(options.nodes, found, strict=True):
        run["nodes"], run["set-up"] = nodes, sum(run[name] for name in STAGES.values())
    _show(found)
    record(options.json, WORDS[1], runs=found)


def _show(found: list[Job]) -> None:
    first = found[0]
    table = Table("processor seconds", title="set-up, one thread", title_justify="left")
    for run in found:
        table.add_column(f"{run['nodes']:,} nodes (x {run['nodes'] / first['nodes']:.0f})", justify="right")
    for name in (*STAGES.values(), "set-up", READ):
        table.add_row(name, *(f"{run[name]:.2f} (x {run[name] / first[name]:.1f})" for run in found))
    Console(width=140).print(table)


def work(job: Job) -> Job:
    """Processor seconds of every stage of set-up, and of the random reads."""
    stages = Stages()
    graph, _ = set_up(job, stages)
    import torch

    table, ends = torch.arange(graph.n), graph.edge_index.flatten()
    out = table.index_select(0, ends)  # whose pages are fetched before reads are timed
    stages.run(READ, lambda: torch.index_select(table, 0, ends, out=out))
    return {name: stages.seen[key]["processor"] for key, name in {**STAGES, READ: READ}.items()}


if __name__ == "__main__" and not as_child(work):
    main()
