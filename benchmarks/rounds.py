"""Seconds per round and peak memory of full-batch training, beside PyTorch Geometric on the same work.

The model is two GCN layers, hidden 64, dropout 0.5, Adam, in float32 on one thread; nodes are split 60/20/20. A round
ends with a score on the validation nodes: it is one epoch, or ``LOCAL_EPOCHS`` epochs and an average of parameters.
Each configuration runs in a process of its own; of several repeats the quickest counts, because a busy machine only
ever adds time.

    python benchmarks/rounds.py --data FOLDER --json docs/results/rounds.json
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from measure import SEED, Job, as_child, hot_spots, in_child, now, peak_mb, record
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from isthmus.graph.silo import Silo
    from isthmus.train.progress import Progress

LOCAL_EPOCHS = 3
SILOS = 10
DATA = {"cora": 150, "pubmed": 60}  # rounds that are timed
WARM = 10  # rounds before
ROWS = {
    "pyg": "PyG, centralised",
    "pyg-sparse": "PyG, centralised, sparse matrices",
    "centralised": "isthmus, centralised",
    "sync-sgd-10": "isthmus, sync-sgd, 10 silos",
    "sync-sgd-100": "isthmus, sync-sgd, 100 silos",
    "naive": f"PyG models in a loop, {SILOS} silos, {LOCAL_EPOCHS} local epochs",
    "naive-sparse": "the same with sparse matrices",
    "fedavg-10": f"isthmus, fedavg, 10 silos, {LOCAL_EPOCHS} local epochs",
    "fedavg-100": f"isthmus, fedavg, 100 silos, {LOCAL_EPOCHS} local epochs",
}
RATIOS = {
    "PyG / isthmus, centralised": ("pyg", "centralised", 1),
    "PyG with sparse matrices / isthmus, centralised": ("pyg-sparse", "centralised", 1),
    "sync-sgd 10 silos / centralised": ("sync-sgd-10", "centralised", 1),
    "sync-sgd 100 silos / centralised": ("sync-sgd-100", "centralised", 1),
    "fedavg 10 silos / centralised, by epoch": ("fedavg-10", "centralised", LOCAL_EPOCHS),
    "fedavg 100 silos / centralised, by epoch": ("fedavg-100", "centralised", LOCAL_EPOCHS),
    "naive loop / fedavg 10 silos, by round": ("naive", "fedavg-10", 1),
    "naive loop with sparse matrices / fedavg 10 silos, by round": ("naive-sparse", "fedavg-10", 1),
}


def main() -> None:
    """Time every configuration, print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", help="folder of the public data sets (default: ISTHMUS_DATA)")
    parser.add_argument("--only", choices=tuple(DATA), help="one data set alone")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--profile", choices=tuple(ROWS), help="print the hot spots of one configuration instead")
    options = parser.parse_args()
    if options.data:
        os.environ["ISTHMUS_DATA"] = options.data
    names = [options.only] if options.only else list(DATA)
    if options.profile:
        for name in names:
            print("\n".join(in_child(__file__, {"data": name, "who": options.profile, "profile": True})["profile"]))
        return
    found = {name: _best(name, options.repeats) for name in names}
    ratios = {name: _ratios(rows) for name, rows in found.items()}
    _show(found, ratios)
    record(options.json, "one thread", seconds_and_peak_mb=found, ratios=ratios)


def _best(data: str, repeats: int) -> dict[str, Job]:
    """Every configuration in turn, several times; the lowest median of seconds per round."""
    tries = [{who: in_child(__file__, {"data": data, "who": who}) for who in ROWS} for _ in range(repeats)]
    rows = {}
    for who in ROWS:
        seconds = [run[who]["seconds"] for run in tries]
        rows[who] = {
            "seconds": min(seconds),
            "cpu_seconds": min(run[who]["cpu_seconds"] for run in tries),
            "seconds_of_repeats": seconds,
            "peak_mb": median(run[who]["peak_mb"] for run in tries),
            "ready_mb": median(run[who]["ready_mb"] for run in tries),
        }
    return rows


def _ratios(rows: dict[str, Job]) -> dict[str, dict[str, float]]:
    return {
        name: {kind: rows[a][kind] / rows[b][kind] / epochs for kind in ("seconds", "cpu_seconds")}
        for name, (a, b, epochs) in RATIOS.items()
    }


def _show(found: dict[str, dict[str, Job]], ratios: dict[str, dict[str, dict[str, float]]]) -> None:
    title = "One round, one thread: clock, processor time, peak memory (and what is held before training)"
    columns = [f"{name}: {what}" for name in found for what in ("ms", "CPU ms", "MB")]
    table = _table("configuration", columns, title)
    for who, text in ROWS.items():
        cells: list[str] = []
        for row in (rows[who] for rows in found.values()):
            cells += [f"{row['seconds'] * 1e3:.2f}", f"{row['cpu_seconds'] * 1e3:.2f}"]
            cells += [f"{row['peak_mb']:.0f} ({row['ready_mb']:.0f})"]
        table.add_row(text, *cells)
    factors = _table("ratio", [f"{name}: {what}" for name in found for what in ("clock", "CPU")])
    for name in RATIOS:
        factors.add_row(name, *(f"{number:.2f}" for each in ratios.values() for number in each[name].values()))
    console = Console(width=140)
    console.print(table)
    console.print(factors)


def _table(first: str, columns: list[str], title: str | None = None) -> Table:
    table = Table(first, title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def work(job: Job) -> Job:
    """One configuration, in this process: the median of seconds per round after the warm-up."""
    from isthmus.api import split
    from isthmus.data import load

    who, number = job["who"], job["who"].rpartition("-")[2]
    graph = load(job["data"], seed=SEED, masks="random")
    silos = split(graph, "louvain", int(number) if number.isdigit() else SILOS, SEED)
    ready = peak_mb()
    rounds = WARM + DATA[job["data"]]
    if job.get("profile"):
        return {"profile": hot_spots(lambda: _run(who, silos, rounds))}
    ends = _run(who, silos, rounds)
    clock, processor = (median(b - a for a, b in pairwise(kind)) for kind in zip(*ends[WARM - 1 :], strict=True))
    return {"seconds": clock, "cpu_seconds": processor, "ready_mb": ready}


def _run(who: str, silos: list[Silo], rounds: int) -> list[tuple[float, float]]:
    """The time (see ``now``) at the end of each round."""
    if who.startswith(("pyg", "naive")):
        from rounds_pyg import centralised, naive

        sparse = who.endswith("sparse")
        return naive(silos, LOCAL_EPOCHS, rounds, sparse) if "naive" in who else centralised(silos, rounds, sparse)
    from isthmus.api import fit
    from isthmus.train.watcher import Watcher

    class Clock(Watcher):
        """Notes when an epoch ends."""

        def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
            """Once an epoch."""
            ends.append(now())

    ends: list[tuple[float, float]] = []
    method = who.rstrip("-0123456789")
    local = LOCAL_EPOCHS if method == "fedavg" else 1
    model = {"layers": 2, "hidden": 64, "dropout": 0.5, "embed": False, "head": False}
    settings = {"model": model, "train": {"epochs": rounds * local}}
    settings |= {"sync.local_epochs": local} if method == "fedavg" else {}
    fit(silos, method, "gcn", SEED, settings=settings, watcher=Clock())
    return ends[local - 1 :: local]


if __name__ == "__main__" and not as_child(work):
    main()
