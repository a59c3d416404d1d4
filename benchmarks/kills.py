"""Runs killed at random moments and resumed: what was lost, what differed, what was released and not counted.

``python benchmarks/kills.py --processes 120 --hosts 60 --fresh 4 --json docs/results/kills.json``
``python benchmarks/kills.py --processes 0 --hosts 0 --flare 20 --json docs/results/kills.json``

SIGKILL ends a process of its own each time. Most runs are forks of this process, which has all imports behind it
(``kill_starts.py``); ``--fresh`` runs are started by new interpreters, as users start them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Before PyTorch and Arrow are imported: a process that has threads cannot be forked.
os.environ |= {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}

import kill_starts
from measure import record

Said = dict[str, Any]
BLOCKS = "data.nodes=400 data.degree=6 data.features=8 data.classes=3 model.hidden=16".split()
NOISE = "protect.sigma=0.5 protect.clip=1 protect.secrets=seed".split()
BASE = ["run", "--data", "blocks", "--silos", "3", "--dtype", "float64"]
METHODS = {  # what is trained, with how many epochs
    "optimes, noise": ("optimes", 60, NOISE),
    "ce-fedgnn, noise, batches": ("ce-fedgnn", 12, [*NOISE, "train.batch=32", "sync.local_steps=5"]),
    "swift-fedgnn": ("swift-fedgnn", 25, ["train.batch=64"]),
}
SAME = ("loss", "valid", "silo_loss", "silo_valid")
_STUCK = 180.0  # seconds after which a run counts as hung


def command(name: str, hosts: int, out: Path) -> list[str]:
    """The arguments of a run."""
    method, epochs, settings = METHODS[name]
    sets = [word for each in (*BLOCKS, *settings) for word in ("--set", each)]
    length = ["--method", method, "--epochs", str(epochs), "--hosts", str(hosts), "--out", str(out)]
    return [*BASE, *sets, *length]


class Killer:
    """Starts runs of one setting, kills them, and compares what they leave with runs that nobody disturbed."""

    def __init__(self, hosts: int, fresh: bool, root: Path) -> None:
        self.hosts, self.root = hosts, root
        self.start = kill_starts.fresh if fresh else kill_starts.forked
        self.said = root / "said.txt"
        self._whole: dict[str, tuple[Path, float]] = {}

    def whole(self, name: str) -> tuple[Path, float]:
        """The run that nobody disturbs, made once, and the seconds from its start to its end."""
        if name not in self._whole:
            out, began = self.root / f"whole-{name.split(',')[0]}", time.monotonic()
            if self.start(command(name, self.hosts, out), self.said).wait():
                raise SystemExit(f"The undisturbed run failed: {self.said.read_text()[-500:]}")
            self._whole[name] = out, time.monotonic() - began
        return self._whole[name]

    def kill(self, arguments: Sequence[str], draw: random.Random, lasts: float) -> str:
        """Start a run, and at a random moment from its start on kill it or one of its hosts; returns how it went."""
        process, which = self.start(arguments, self.said), draw.randrange(self.hosts + 1)
        moment = time.monotonic() + draw.uniform(0.02, lasts)
        while process.poll() is None and time.monotonic() < moment:
            time.sleep(0.002)
        if process.poll() is None:
            everybody = [process, *kill_starts.hosts_of(process.pid)]  # hosts may not be there yet, or no more
            everybody[min(which, len(everybody) - 1)].kill()
        try:
            process.wait(_STUCK)
        except subprocess.TimeoutExpired:
            process.kill()
            return "hung"
        return "killed" if process.returncode else "over before"

    def trial(self, name: str, seed: int) -> Said:
        """One run, killed one to three times, resumed to its end, and compared with the one that nobody disturbed."""
        draw, out = random.Random(seed), self.root / f"run-{seed}"
        reference, lasts = self.whole(name)
        arguments = command(name, self.hosts, out)
        ways = [self.kill(arguments, draw, lasts)]
        while ways[-1] == "over before":
            shutil.rmtree(out)
            ways.append(self.kill(arguments, draw, lasts))
        for _ in range(draw.randrange(3)):
            ways.append(self.kill(self.resumed(arguments, out), draw, lasts / 2))
        self.said.unlink(missing_ok=True)
        last = self.start(self.resumed(arguments, out), self.said)
        told = {"name": name, "seed": seed, "kills": ways.count("killed"), "hung": ways.count("hung")}
        if last.wait():
            return {**told, "lost": True, "why": self.said.read_text().strip().splitlines()[-1:]}
        found = kill_starts.in_fork(lambda: compare(out, reference))
        shutil.rmtree(out)
        return {**told, "lost": False, **found}

    @staticmethod
    def resumed(arguments: Sequence[str], out: Path) -> list[str]:
        """The arguments that continue a run; one that was killed before it had a folder is started."""
        return [*arguments, "--resume"] if (out / "config.toml").exists() else [*arguments]


def compare(out: Path, reference: Path) -> Said:
    """In which ways a run differs from the one that nobody disturbed."""
    return {
        "different": curve(out) != curve(reference) or model(out) != model(reference),
        "uncounted": releases(out) != releases(reference),
        "other_ledger": ledger(out) != ledger(reference),
        "left_over": len([path for path in out.rglob(".*") if path.is_file()]),
    }


def curve(run: Path) -> list[Said]:
    """Every loss and score of a run, to the last bit."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("step", *SAME) if key in line} for line in lines]


def model(run: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(run.glob("model*.safetensors"))]


def releases(run: Path) -> list[Any]:
    """How often each row left, by every host's book, and what is promised of it."""
    import pyarrow.parquet as pq

    metrics = json.loads((run / "metrics.json").read_text())
    tables = [pq.read_table(path).to_pylist() for path in sorted(run.glob("releases*.parquet"))]
    return [tables, metrics["epsilon"]]


def ledger(run: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(run / "ledger.parquet").to_pydict()


def row(trials: Sequence[Said]) -> dict[str, int]:
    """One line of the table."""
    finished = [each for each in trials if not each["lost"]]
    count: Callable[[str], int] = lambda key: sum(bool(each[key]) for each in finished)  # noqa: E731
    return {
        "runs": len(trials),
        "kills": sum(each["kills"] for each in trials),
        "hung": sum(each["hung"] for each in trials),
        "lost runs": sum(each["lost"] for each in trials),
        "different curves": count("different"),
        "uncounted releases": count("uncounted"),
        "other ledgers": count("other_ledger"),
        "leftovers": count("left_over"),
    }


class Book:
    """The trials of all settings; what other calls of this script have written stays, setting by setting."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, Said] = {}
        if path is not None and path.is_file():
            self.found = json.loads(path.read_text())["settings"]

    def fill(self, title: str, count: int, names: Sequence[str], trial: Callable[[str, int], Said], seed: int) -> None:
        """Make ``count`` trials of a setting, and write the book after each."""
        trials: list[Said] = []
        began = time.monotonic()
        for number in range(count):
            trials.append(trial(names[number % len(names)], seed + number))
            print(json.dumps({"setting": title, **trials[-1]}), file=sys.stderr, flush=True)
            self.found[title] = {
                "command": " ".join(["python", "benchmarks/kills.py", *sys.argv[1:]]),
                "seconds": round(time.monotonic() - began),
                "table": row(trials),
                "trials": [json.dumps(each) for each in trials],  # a line each
            }
            record(self.path, "1 thread", settings=self.found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=120, help="runs in one process")
    parser.add_argument("--hosts", type=int, default=60, help="runs on two hosts over gloo")
    parser.add_argument("--fresh", type=int, default=0, help="further runs of both kinds, by new interpreters")
    parser.add_argument("--flare", type=int, default=0, help="jobs over NVIDIA FLARE: three banks and a server")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write every trial")
    asked = parser.parse_args()
    book, names = Book(asked.json), list(METHODS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        examples = [command(name, 1, root / f"example-{place}") for place, name in enumerate(names)]
        if asked.processes or asked.hosts:
            count = kill_starts.import_what_is_used(examples, ["isthmus.wire.distributed"])
            print(f"{count} modules are imported.", file=sys.stderr, flush=True)
        for title, count, hosts, fresh in (
            ("in one process", asked.processes, 1, False),
            ("two hosts over gloo", asked.hosts, 2, False),
            ("in one process, new interpreters", asked.fresh, 1, True),
            ("two hosts over gloo, new interpreters", asked.fresh, 2, True),
        ):
            place = root / title.replace(" ", "-")
            place.mkdir()
            book.fill(title, count, names, Killer(hosts, fresh, place).trial, asked.seed)
        if asked.flare:
            from kill_flare import NAME, killing

            with killing(root / "flare") as trial:
                book.fill("three banks and a server over FLARE", asked.flare, [NAME], trial, asked.seed)
    for title, told in book.found.items():
        print(title + ": " + ", ".join(f"{key} {value}" for key, value in told["table"].items()))


if __name__ == "__main__":
    main()
