"""Runs killed at random moments and resumed: what was lost, what differed, what was released and not counted.

``python benchmarks/kills.py --processes 40 --hosts 15 --json docs/results/kills.json``
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

BLOCKS = "data.nodes=400 data.degree=6 data.features=8 data.classes=3 model.hidden=16".split()
NOISE = "protect.sigma=0.5 protect.clip=1 protect.secrets=seed".split()
BASE = ["run", "--data", "blocks", "--silos", "3", "--dtype", "float64"]
METHODS = {  # what is trained, with how many epochs
    "optimes, noise": ("optimes", 60, NOISE),
    "ce-fedgnn, noise, batches": ("ce-fedgnn", 12, [*NOISE, "train.batch=32", "sync.local_steps=5"]),
    "swift-fedgnn": ("swift-fedgnn", 25, ["train.batch=64"]),
}
SAME = ("loss", "valid", "silo_loss", "silo_valid")


def command(name: str, hosts: int, out: Path) -> list[str]:
    """The command of a run."""
    method, epochs, settings = METHODS[name]
    sets = [word for each in (*BLOCKS, *settings) for word in ("--set", each)]
    length = ["--method", method, "--epochs", str(epochs), "--hosts", str(hosts), "--out", str(out)]
    return [sys.executable, "-m", "isthmus", *BASE, *sets, *length]


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def whole(name: str, hosts: int, root: Path) -> Path:
    """The run that nobody disturbs, made once."""
    out = root / f"whole-{hosts}-{name.split(',')[0]}"
    if not out.exists():
        process = start(command(name, hosts, out))
        _, said = process.communicate()
        if process.returncode:
            raise SystemExit(f"The undisturbed run failed: {said.decode()[-500:]}")
    return out


def seconds_of_training(run: Path) -> float:
    return float(json.loads((run / "metrics.json").read_text())["seconds"])


def victim_of(process: subprocess.Popen[bytes], hosts: int, which: int) -> psutil.Process | None:
    """The process to kill: the only one, or host ``which``; None while that is not there yet, or not any more."""
    try:
        parent = psutil.Process(process.pid)
        if hosts == 1:
            return parent
        mine = [child for child in parent.children() if "isthmus.launch.processes" in child.cmdline()]
        return next((child for child in mine if child.environ().get("RANK") == str(which)), None)
    except psutil.Error:
        return None


def kill(arguments: list[str], hosts: int, out: Path, draw: random.Random, lasts: float) -> str:
    """Start a run and kill it at a random moment of its training; returns how it went."""
    process, which = start(arguments), draw.randrange(hosts)
    while process.poll() is None and not (out / "status-host-0.json").exists():
        time.sleep(0.01)
    time.sleep(draw.uniform(0, 1.1 * lasts))
    victim = victim_of(process, hosts, which)
    if victim is not None and process.poll() is None:
        victim.send_signal(signal.SIGKILL)
    try:
        process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        return "hung"
    return "killed" if process.returncode else "over before"


def trial(name: str, hosts: int, root: Path, seed: int) -> dict[str, Any]:
    """One run, killed up to three times, resumed to its end, and compared with the one that nobody disturbed."""
    draw, out, reference = random.Random(seed), root / f"run-{hosts}-{seed}", whole(name, hosts, root)
    lasts = seconds_of_training(reference)
    arguments = command(name, hosts, out)
    ways = [kill(arguments, hosts, out, draw, lasts / 2)]
    for _ in range(draw.randrange(3)):
        if ways[-1] == "killed":
            ways.append(kill([*arguments, "--resume"], hosts, out, draw, lasts / 3))
    last = start([*arguments, "--resume"])
    said = last.communicate()[1].decode()
    told = {"name": name, "hosts": hosts, "seed": seed, "kills": ways.count("killed"), "hung": ways.count("hung")}
    if last.returncode:
        return {**told, "lost": True, "why": said.strip().splitlines()[-1:]}
    found = {
        "different": curve(out) != curve(reference) or model(out) != model(reference),
        "uncounted": releases(out) != releases(reference),
        "other_bytes": ledger(out) != ledger(reference),
        "left_over": len([path for path in out.rglob(".*") if path.is_file()]),
    }
    shutil.rmtree(out)
    return {**told, "lost": False, **found}


def curve(run: Path) -> list[dict[str, Any]]:
    """Every loss and score of a run, to the last bit."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("step", *SAME) if key in line} for line in lines]


def model(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def releases(run: Path) -> list[Any]:
    """How often each row left, by every host's book, and what is promised of it."""
    metrics = json.loads((run / "metrics.json").read_text())
    tables = [pq.read_table(path).to_pylist() for path in sorted(run.glob("releases*.parquet"))]
    return [tables, metrics["epsilon"]]


def ledger(run: Path) -> Any:
    return pq.read_table(run / "ledger.parquet").to_pydict()


def row(title: str, trials: list[dict[str, Any]]) -> dict[str, Any]:
    """One line of the table."""
    finished = [each for each in trials if not each["lost"]]
    count: Callable[[str], int] = lambda key: sum(bool(each[key]) for each in finished)  # noqa: E731
    return {
        "setting": title,
        "runs": len(trials),
        "kills": sum(each["kills"] for each in trials),
        "hung": sum(each["hung"] for each in trials),
        "lost runs": sum(each["lost"] for each in trials),
        "different curves": count("different"),
        "uncounted releases": count("uncounted"),
        "other ledgers": count("other_bytes"),
        "leftovers": count("left_over"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=120, help="runs in one process")
    parser.add_argument("--hosts", type=int, default=60, help="runs on hosts over gloo")
    parser.add_argument("--count", type=int, default=2, help="hosts of such a run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write every trial")
    asked = parser.parse_args()
    began = time.monotonic()
    told: dict[str, list[dict[str, Any]]] = {}
    rows: list[dict[str, Any]] = []
    settings = (("in process", asked.processes, 1), ("over gloo", asked.hosts, asked.count))
    with tempfile.TemporaryDirectory() as folder:
        for title, count, hosts in settings:
            told[title], names = [], list(METHODS)
            for i in range(count):
                told[title].append(trial(names[i % len(names)], hosts, Path(folder), asked.seed + i))
                print(json.dumps(told[title][-1]), file=sys.stderr, flush=True)
                about = {"seconds": round(time.monotonic() - began), "machine": f"{os.cpu_count()} cores"}
                rows = [row(each, told[each]) for each, _, _ in settings if each in told]
                if asked.json:
                    asked.json.write_text(json.dumps({"table": rows, **about, **told}, indent=1) + "\n")
    for line in rows:
        print(", ".join(f"{key}: {value}" for key, value in line.items()))


if __name__ == "__main__":
    main()
