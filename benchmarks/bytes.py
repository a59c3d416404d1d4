"""Bytes of ten methods beside the formulas of the paper on layer-wise exchange (Ceydeli 2026, Table 8.1).

    python benchmarks/bytes.py --json docs/results/bytes.json

The training graph of the patterns (8192 nodes) over 15 silos; Multi-PNA with 6 layers, hidden 64, batch 32, fanout
10/10/10/10/5/5. Local batches are the paper's protocol (far ends are placeholders), for a whole epoch; joint batches
run for the first steps of one, scaled up. Evaluation is in neither count.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from measure import SEED, WORDS, record
from rich.console import Console
from rich.table import Table
from volume import METHODS, Counted, Epoch, formula, one_epoch

from isthmus.data.patterns import patterns
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.features import take
from isthmus.graph.graph import TRAIN, Graph
from isthmus.graph.partition import partition
from isthmus.methods.catalogue import get
from isthmus.methods.compose import compose
from isthmus.nn.model import MODELS
from isthmus.wire.local import LocalWire

SILOS = 15
SPLITS: dict[str, dict[str, Any]] = {"louvain": {"resolution": 3.0}, "metis": {"communities": 256}}
SETTINGS = TrainConfig(epochs=1, batch=32, fanout=(10, 10, 10, 10, 5, 5), lr=1e-3, weight_decay=1e-4)
ITEM = 4  # bytes of a number
BESIDE = ("ids", "order", "statistics")  # what the formulas do not count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8192)
    parser.add_argument("--local-steps", type=int, default=0, help="steps with local batches (0: the whole epoch)")
    parser.add_argument("--joint-steps", type=int, default=16, help="steps with joint batches (0: the whole epoch)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph = training_graph(options.nodes)
    rows = []
    for split, how in SPLITS.items():
        owner = partition(graph, split, SILOS, SEED, **how)
        for batches, steps in (("local", options.local_steps), ("joint", options.joint_steps)):
            found = [measure(method, graph, owner, batches, steps) for method in METHODS]
            show(f"{split}, {SILOS} silos, {batches} batches", found)
            rows += [{"split": split, "batches": batches, **each} for each in found]
    record(options.json, WORDS[options.threads], silos=SILOS, splits=SPLITS, rows=rows)


def training_graph(nodes: int) -> Graph:
    """The first of the three pattern graphs by itself."""
    whole = patterns(nodes, seed=SEED)
    assert whole.y is not None and whole.split is not None and whole.edge_time is not None
    mine = whole.split == TRAIN
    edges = mine[whole.edge_index[0]]
    return replace(
        whole,
        ids=whole.ids[mine.numpy()],
        x=take(whole.x, mine.nonzero().flatten()),
        edge_index=whole.edge_index[:, edges],
        y=whole.y[mine],
        split=whole.split[mine],
        edge_time=whole.edge_time[edges],
        component=None,
    ).check()


def measure(name: str, graph: Graph, owner: torch.Tensor, batches: str, steps: int) -> dict[str, Any]:
    """One epoch of a method: the formula's bytes and the ledger's."""
    alone = "+" not in name and name != "optimes"
    method = compose(get(name), {"exchange": {"halo": "placeholder"}} if alone else {})
    federation = open_federation(LocalWire(SILOS, method.chain), split_graph(graph, owner, SILOS), SEED)
    training = Counted(federation, method, MODELS["multi-pna"], replace(SETTINGS, batches=batches), SEED)
    return compare(name, one_epoch(training, steps))


def compare(name: str, epoch: Epoch) -> dict[str, Any]:
    """Both counts by term; the ledger's parameters are those of FedAvg or the gradients of Sync-SGD, up and down."""
    terms = asdict(formula(name, epoch.sizes))
    wide = asdict(formula(name, replace(epoch.sizes, sampled=epoch.at_every_layer)))
    ledger = {kind: epoch.bytes.get(kind, 0.0) for kind in (*terms, *BESIDE)}
    ledger["parameters"] += epoch.bytes.get("gradients", 0.0)
    expected = ITEM * (terms["embeddings"] + terms["adjoints"])
    sent = ledger["embeddings"] + ledger["adjoints"]
    return {
        "method": name,
        "sizes": asdict(epoch.sizes),
        "formula_bytes": {term: ITEM * value for term, value in terms.items()},
        "formula_bytes_every_layer": {term: ITEM * value for term, value in wide.items()},
        "ledger_bytes": ledger,
        "ratio": sent / expected if expected else None,
        "ratio_every_layer": sent / (ITEM * (wide["embeddings"] + wide["adjoints"])) if expected else None,
        "rows_per_edge": epoch.rows_per_edge,
    }


def show(title: str, found: list[dict[str, Any]]) -> None:
    table = Table(title=f"{title}: MB in an epoch, formula | ledger", title_justify="left")
    terms = ("parameters", "embeddings", "adjoints")
    for column in ("method", "edges a silo", *terms, "ratio", "at every layer", "rows an edge", *BESIDE):
        table.add_column(column, justify="left" if column == "method" else "right")
    for each in found:
        pairs = [f"{each['formula_bytes'][t] / 1e6:.1f} | {each['ledger_bytes'][t] / 1e6:.1f}" for t in terms]
        beside = [f"{each['ledger_bytes'][kind] / 1e6:.2f}" for kind in BESIDE]
        sizes = each["sizes"]
        edges = f"{sizes['cut' if each['method'] == 'optimes' else 'sampled'] / sizes['clients']:.0f}"
        ratios = [f"{each[key] or 0:.3f}" for key in ("ratio", "ratio_every_layer", "rows_per_edge")]
        none = each["ratio"] is None
        table.add_row(each["method"], "–" if none else edges, *pairs, *(["–"] * 3 if none else ratios), *beside)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
