"""Bytes on the sockets beside bytes in the books: three hosts on the loopback interface.

Three numbers for each run: the ledger (what silos and server sent each other), the transport counters (what one host's
process handed to its sockets for another), and the loopback interface of the kernel, less what it carries when nothing
runs. With one silo on each host, a message between silo 0 and the server stays inside host 0: it is in the ledger, but
on no socket. The interface also counts packet headers, acknowledgements, the rendezvous and signs of life.

    python benchmarks/sockets.py --json docs/results/sockets.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from measure import SEED, record
from rich.console import Console
from rich.table import Table

METHODS = ("fedavg", "sync-sgd")
HOSTS = 3
SERVED = ("server", "silo-0")  # the parties of host 0; each other host carries one silo
SETTINGS = ("data.nodes=20000", "model.hidden=256", "train.checkpoint_every=1000")
HEADERS = 66  # bytes that Ethernet, IP and TCP (with time stamps) put before every packet, acknowledgements included


def main() -> None:
    """Run each method on several hosts and compare the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    found = {method: measure(method, options.epochs) for method in METHODS}
    _show(found)
    record(options.json, f"{HOSTS} hosts of one thread", hosts=HOSTS, settings=[*SETTINGS], runs=found)


def measure(method: str, epochs: int) -> dict[str, Any]:
    """One run, and an idle stretch of the same length after it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "isthmus", "run", "--data", "blocks", "--method", method]
        command += ["--silos", str(HOSTS), "--hosts", str(HOSTS), "--epochs", str(epochs), "--seed", str(SEED)]
        command += [word for setting in SETTINGS for word in ("--set", setting)]
        command += ["--out", f"{folder}/run", "--json"]
        began, before = time.perf_counter(), loopback()
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=_one_thread())
        after, seconds = loopback(), time.perf_counter() - began
        metrics = json.loads(done.stdout.splitlines()[-1])
        between = _between_hosts(Path(folder, "run", "ledger.parquet"))
    quiet = loopback()
    time.sleep(seconds)
    idle = [b - a for a, b in zip(quiet, loopback(), strict=True)]
    carried, packets = (b - a - i for a, b, i in zip(before, after, idle, strict=True))
    transport = sum(metrics["transport"].values())
    return {
        "seconds": seconds,
        "ledger_bytes": metrics["bytes"]["total"],
        "ledger_bytes_between_hosts": between,
        "transport_bytes": transport,
        "transport_by_kind": metrics["transport"],
        "socket_bytes": carried,
        "socket_packets": packets,
        "socket_bytes_without_headers": carried - HEADERS * packets,
        "idle_bytes": idle[0],
        "sockets_per_transport": carried / transport,
        "sockets_without_headers_per_transport": (carried - HEADERS * packets) / transport,
    }


def loopback() -> tuple[int, int]:
    """Bytes and packets that the loopback interface has received since the machine started."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    line = next(line for line in lines if line.strip().startswith("lo:"))
    received, packets = line.partition(":")[2].split()[:2]
    return int(received), int(packets)


def _between_hosts(ledger: Path) -> int:
    """Ledger bytes of messages whose two ends live on different hosts."""
    table = pq.read_table(ledger)
    here = [pc.is_in(table[end], value_set=pa.array(SERVED)) for end in ("sender", "receiver")]
    return int(pc.sum(table.filter(pc.invert(pc.and_(*here)))["bytes"]).as_py())


def _one_thread() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def _show(found: dict[str, dict[str, Any]]) -> None:
    table = Table(title=f"{HOSTS} hosts, one silo each, on loopback (MB)", title_justify="left")
    shown = {
        "ledger": "ledger_bytes",
        "ledger between hosts": "ledger_bytes_between_hosts",
        "transport": "transport_bytes",
        "sockets": "socket_bytes",
        "idle": "idle_bytes",
    }
    for column in ("method", *shown, "sockets / transport", "without headers"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, run in found.items():
        ratios = run["sockets_per_transport"], run["sockets_without_headers_per_transport"]
        table.add_row(method, *(f"{run[key] / 1e6:.3f}" for key in shown.values()), *(f"{r:.4f}" for r in ratios))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
