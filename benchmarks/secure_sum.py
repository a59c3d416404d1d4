"""Secure sums of vectors of 100,000 numbers: seconds and bytes a client, with and without drop-outs.

    python benchmarks/secure_sum.py --json docs/results/secure_sum.json

All clients and the server are in one process of one thread, in groups of 64 (the last has up to 127). Seconds are those
of all parties together, divided by clients: with a processor of its own each, all clients work at the same time. Who
drops out does so after its shares, which costs the server most: it makes all masks of that client anew. Every sum is
compared with the plain one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from measure import SEED, WORDS, Job, as_child, in_child, now, record
from rich.console import Console
from rich.table import Table

CLIENTS, DROPPED = (100, 300, 1000), (0.0, 0.1)
WIDTH = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--width", type=int, default=WIDTH, help="numbers of a vector")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    jobs = [{"clients": n, "dropped": part, "width": options.width} for n in options.clients for part in DROPPED]
    runs = [{**job, **in_child(__file__, job)} for job in jobs]
    _show(runs)
    record(options.json, WORDS[1], width=options.width, runs=runs)


def measure(job: Job) -> Job:
    """One secure sum: seconds on the clock and of the processor, bytes by kind, and whether it is exact."""
    import torch

    from isthmus.protect.masked_sums import groups
    from isthmus.wire.local import LocalWire
    from isthmus.wire.secure_sum import Turn, secure_sum

    n, width = job["clients"], job["width"]
    long = torch.randint(-(2**40), 2**40, (n + width,), generator=torch.Generator().manual_seed(SEED))
    vectors = {client: long[client : client + width] for client in range(n)}  # windows of one row: each differs
    last = {client: Turn.SHARES for run in groups(n).runs for client in run[: round(job["dropped"] * len(run))]}
    wire = LocalWire(n)
    began = now()
    sums = secure_sum(wire, vectors, width, last=last) or []
    clock, processor = (b - a for a, b in zip(began, now(), strict=True))
    for each in sums:
        plain = torch.zeros(width, dtype=torch.int64)
        for client in each.clients:
            plain += vectors[client]
        assert torch.equal(each.total, plain), "a sum is not that of the vectors"
    assert sum(len(each.clients) for each in sums) == n - len(last)
    return {"seconds": clock, "processor_seconds": processor, "bytes": wire.ledger.by_kind(), "groups": len(sums)}


def _show(runs: list[Job]) -> None:
    table = Table(title=f"Vectors of {runs[0]['width']:,} numbers, for each client", title_justify="left")
    for column in ("clients", "dropped", "seconds", "processor s", "keys kB", "key-shares kB", "masked kB", "peak GB"):
        table.add_column(column, justify="right")
    for run in runs:
        n = run["clients"]
        seconds = (f"{run[each] / n:.3f}" for each in ("seconds", "processor_seconds"))
        sizes = (f"{run['bytes'][kind] / n / 1e3:.1f}" for kind in ("keys", "key-shares", "masked"))
        table.add_row(f"{n:,}", f"{run['dropped']:.0%}", *seconds, *sizes, f"{run['peak_mb'] / 1024:.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    if not as_child(measure):
        main()
