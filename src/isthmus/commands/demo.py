"""The demonstration: one model, one graph over five silos, trained alone, averaged and centralised."""

from __future__ import annotations

from pathlib import Path

from isthmus.commands.run import run_one
from isthmus.launch.start import Start
from isthmus.report.compare import comparison_table, write_comparison
from isthmus.report.fitting import FittingTable
from isthmus.report.report import write_report
from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import merge_into, read_recipe

METHODS = ("local", "fedavg", "sync-sgd", "sync-sgd+fwd-bwd-le", "centralised")


def run_demo(out: Path) -> tuple[FittingTable, Path]:
    """Run the recipe ``demo`` with each method; ``report.html`` in ``out`` compares them."""
    root = RunFolder.create(out, resume=False, overwrite=True) if out.exists() else RunFolder.create(out, False, False)
    folders = []
    for method in METHODS:
        config = resolve(merge_into(read_recipe("demo"), {"method": method}))
        folder = RunFolder.create(root.path / method, resume=False, overwrite=False)
        run_one(Start(config, folder))
        folders.append(RunFolder.open(folder.path))
    for folder in folders[1:-1]:
        write_report(folder, alone=folders[0])
    page = write_comparison(folders, out)
    page = page.rename(out / "report.html")
    return comparison_table(folders), page
