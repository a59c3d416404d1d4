"""Two checkouts beside each other: what three benchmarks print in this one and in an older one, as ratios new / old.

    python benchmarks/versus.py --other ../older --data FOLDER --pairs 10

A pair runs a case in both checkouts, one right after the other, each with its own sources and on one thread. Every
second pair runs the other way round, so that a machine that gets busier favours neither. Printed are the median of the
pairs' ratios, the smallest and the largest. What PyTorch Geometric takes changes with no checkout of ours: its ratios
tell how far ratios stray by themselves. Under ``processor seconds`` stands all that a case took, with its start.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from measure import Job, record
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parents[1]
# Of each benchmark cases of the smallest size that says something, in words that old checkouts know too. A job is one
# configuration of a benchmark, in a process of its own; others go by the options of the command line.
CASES: dict[str, dict[str, Job | tuple[str, ...]]] = {
    "rounds": {
        who: {"data": "cora", "who": who} for who in ("pyg", "centralised", "sync-sgd-10", "sync-sgd-100", "fedavg-10")
    },
    "layerwise": {"": ("--nodes", "1024", "--steps", "5")},
    "pna": {
        f"sample {who}": {"device": "cpu", "graph": "sample", "steps": 6, "variant": who}
        for who in ("pyg", "plain", "ours")
    },
}
NAMES = ("split", "silos", "host")  # what tells the rows of a list apart
SETTINGS = ("seed", "steps")  # numbers that are no figures
WHOLE = "processor seconds"

Figures = dict[str, float]
Rows = dict[str, dict[str, float]]


def main() -> None:
    """Run the pairs, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="checkout of an older version")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), metavar="BENCHMARK")
    parser.add_argument("--data", help="folder of the public data sets (default: ISTHMUS_DATA)")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    other = options.other.resolve()
    if not Path(other, "src", "isthmus").is_dir():
        parser.error(f"{other} is no checkout: it has no src/isthmus.")
    if options.pairs < 1:
        parser.error("--pairs must be at least 1.")
    if options.data:
        os.environ["ISTHMUS_DATA"] = str(Path(options.data).resolve())
    cases = [(benchmark, case) for benchmark in options.only for case in CASES[benchmark]]
    runs: dict[tuple[str, str], list[tuple[Figures, Figures]]] = {each: [] for each in cases}
    for number in range(options.pairs):
        for (benchmark, case), pairs in runs.items():
            pairs.append(run_pair(benchmark, case, other, old_first=number % 2 == 0))
            old, new = (figures[WHOLE] for figures in pairs[-1])
            done = f"pair {number + 1} of {options.pairs}, {benchmark} {case}"
            print(f"{done}: {old:.1f} s of processor time, now {new:.1f} s", file=sys.stderr)
    found = {name: _rows(name, runs) for name in options.only}
    for name, rows in found.items():
        show(name, rows, options.pairs)
    record(options.json, "one thread", pairs=options.pairs, cases={name: CASES[name] for name in found}, figures=found)


def run_pair(benchmark: str, case: str, other: Path, old_first: bool) -> tuple[Figures, Figures]:
    """The figures of one case in the other checkout and in this one."""
    if old_first:
        old = measure(benchmark, case, other)
        return old, measure(benchmark, case, HERE)
    new = measure(benchmark, case, HERE)
    return measure(benchmark, case, other), new


def measure(benchmark: str, case: str, checkout: Path) -> Figures:
    """Every figure of one case, in processes of its own."""
    how, before = CASES[benchmark][case], _spent()
    script = str(checkout / "benchmarks" / f"{benchmark}.py")
    if isinstance(how, dict):
        told = json.loads(_run(checkout, [script, "--job", json.dumps(how)]).splitlines()[-1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "figures.json")
            _run(checkout, [script, *how, "--json", str(file)])
            told = json.loads(file.read_text())
    return {**dict(_figures(told)), WHOLE: _spent() - before}


def _run(checkout: Path, words: list[str]) -> str:
    """What a script prints with the sources of a checkout."""
    paths = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=checkout, env=os.environ | paths, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def _spent() -> float:
    """Processor seconds of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _figures(told: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a record, each with a name made of the keys that lead to it."""
    if isinstance(told, dict):
        for key, value in told.items():
            if key not in (*NAMES, *SETTINGS):
                yield from _figures(value, f"{name} {key}".strip())
    elif isinstance(told, list):
        for each in (each for each in told if isinstance(each, dict)):
            yield from _figures(each, " ".join(f"{key} {each[key]}" for key in NAMES if key in each))
    elif isinstance(told, int | float):
        yield name, float(told)


def _rows(benchmark: str, runs: dict[tuple[str, str], list[tuple[Figures, Figures]]]) -> Rows:
    """All figures of a benchmark, by case."""
    return {
        f"{case}, {figure}" if case else figure: row
        for (name, case), pairs in runs.items()
        if name == benchmark
        for figure, row in compare(pairs).items()
    }


def compare(pairs: list[tuple[Figures, Figures]]) -> Rows:
    """For each figure that both sides have: medians of both, and of the ratios of pairs, with their range."""
    rows = {}
    for name in (name for name in pairs[0][0] if all(name in side for pair in pairs for side in pair)):
        both = [(old[name], new[name]) for old, new in pairs]
        old, new = (median(side) for side in zip(*both, strict=True))
        ratios = [_ratio(*pair) for pair in both]
        told = {"old": old, "new": new, "ratio": median(ratios)}
        rows[name] = {**told, "smallest": min(ratios), "largest": max(ratios)}
    return rows


def _ratio(old: float, new: float) -> float:
    if old == new:
        return 1.0
    return new / old if old else math.inf


def show(benchmark: str, rows: Rows, pairs: int) -> None:
    table = Table(benchmark, title=f"{benchmark}: medians of {pairs} pairs", title_justify="left")
    for column in ("old", "new", "new / old", "range"):
        table.add_column(column, justify="right")
    for figure, row in rows.items():
        span = f"{row['smallest']:.2f} – {row['largest']:.2f}"
        table.add_row(figure, f"{row['old']:.3g}", f"{row['new']:.3g}", f"{row['ratio']:.2f}", span)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
