"""Seconds of a training step over NVIDIA FLARE, sealing included, beside gloo: three banks and a server, one machine.

Both run the layer-wise exchange in float64 on a full batch, with the server on a host of its own. A step is an epoch:
two layers there and back, gradients and the loss, from one end to the next on the server's clock. The bar is a median
of at most three times that of gloo, which runs before and after: the faster of its runs counts, and two that differ
much tell of other work on the machine.

    OMP_NUM_THREADS=1 python benchmarks/flare_step.py --json docs/results/flare_step.json
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from measure import record
from rich.console import Console
from rich.table import Table

BAR = 3.0
GLOO = ("gloo", "gloo again")


def main() -> None:
    """Run over both wires, and print the ratio of median steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1_500, help="1500: 120 KB from silo to silo at a layer")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write the numbers here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = _measure(Path(folder), options)
    ratios = {what: found["FLARE"][what] / min(found[each][what] for each in GLOO) for what in ("step", "fast")}
    table = Table("wire", "median step, s", "fastest tenth", title=f"{options.nodes:,} nodes, {options.steps} steps")
    for wire, told in found.items():
        table.add_row(wire, f"{told['step']:.4f}", f"{told['fast']:.4f}")
    console = Console(width=100)
    console.print(table)
    told = f"FLARE's median step is {ratios['step']:.2f} times that of the faster gloo run (bar: {BAR:g})"
    console.print(f"{told}; of the fastest tenths {ratios['fast']:.2f}; losses alike: {found['FLARE']['alike']}")
    record(options.json, "1 thread", nodes=options.nodes, steps=options.steps, ratios=ratios, bar=BAR, wires=found)


def _measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    from isthmus.commands.flare.demo import BANKS, run_demo
    from isthmus.core.plugins import add_plugins

    train = {"epochs": options.steps, "evaluate_every": options.steps}
    sets = {"data": {"nodes": options.nodes, "degree": 10}, "model": {"hidden": 64}, "train": train}
    add_plugins([str(Path(__file__).parent / "step_clock.py")])
    found, where = {}, {}
    for wire in ("gloo", "FLARE", "gloo again"):
        os.environ["ISTHMUS_CLOCK"] = str(folder / f"{wire}.clock")
        if wire == "FLARE":
            where[wire] = run_demo(folder / "flare", sets).folders["localhost"]
        else:
            where[wire] = _gloo(folder / wire, sets, len(BANKS))
        found[wire] = _steps(folder / f"{wire}.clock", options.steps)
    found["FLARE"]["alike"] = len({tuple(_losses(folder)) for folder in where.values()}) == 1
    return found


def _gloo(out: Path, sets: dict[str, Any], banks: int) -> Path:
    """The run of the demonstration over gloo, with the server on a host of its own."""
    from isthmus.commands.flare.demo import RECIPE
    from isthmus.commands.run import run_one
    from isthmus.launch.start import Start
    from isthmus.runs.config import resolve
    from isthmus.runs.folder import RunFolder
    from isthmus.runs.recipe import merge_into

    config = resolve(merge_into(merge_into(merge_into({}, RECIPE), sets), {"system": {"hosts": banks + 1}}))
    run_one(Start(config, RunFolder.create(out, False, False)), page=False)
    return out


def _steps(clock: Path, steps: int) -> dict[str, Any]:
    ends = [float(line) for line in clock.read_text().split()][:steps]
    seconds = sorted(after - before for before, after in zip(ends, ends[1:], strict=False))
    return {"step": median(seconds), "fast": seconds[len(seconds) // 10], "slow": seconds[-len(seconds) // 10]}


def _losses(folder: Path) -> list[float]:
    from isthmus.runs.folder import RunFolder

    return [line["loss"] for line in RunFolder(folder).history if "valid" not in line]


if __name__ == "__main__":
    main()
