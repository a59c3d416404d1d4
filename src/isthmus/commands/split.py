"""What ``isthmus split`` does: statistics of a split, and parts on disk."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from isthmus import data
from isthmus.core.coerce import fill
from isthmus.core.errors import IsthmusError
from isthmus.data.members import is_parts
from isthmus.data.write_parts import write_parts
from isthmus.graph.partition import partition
from isthmus.graph.silo import split_graph
from isthmus.graph.stats import split_statistics
from isthmus.runs.config import DataConfig, split_options
from isthmus.runs.recipe import parse_set


def split_command(
    name: str, silos: int, how: str, sets: tuple[str, ...], out: Path | None, overwrite: bool
) -> dict[str, Any]:
    """Split a graph; write its parts where asked; return the statistics."""
    if is_parts(name):
        raise IsthmusError(f"'{name}' holds parts already; give a data set or a folder with nodes and edges.")
    table = parse_set(sets)
    unknown_tables = set(table) - {"data"}
    if unknown_tables:
        raise IsthmusError(f"'isthmus split' reads data.… keys only, not '{sorted(unknown_tables)[0]}'.")
    own, options = split_options(table.get("data", {}))
    config = fill(DataConfig(name=name, silos=silos, split=how), own, "data")
    graph = data.load(name, seed=config.seed, folder=config.folder or None, **options)
    owner = partition(graph, how, config.silos, config.seed, config.resolution or None, config.communities or None)
    if out is not None:
        write_parts(split_graph(graph, owner, config.silos), out, overwrite)
    return asdict(split_statistics(graph, owner, config.silos))


def stats_table(stats: dict[str, Any]) -> Table:
    """The statistics of a split as a table for people."""
    cut = stats["cross_pairs"] / max(stats["pairs"], 1)
    title = f"{stats['nodes']} nodes, {stats['edges']} directed edges; {cut:.1%} of connected pairs cross silos"
    table = Table(title=title, title_justify="left")
    for column in (
        "silo",
        "nodes",
        "train",
        "inner edges",
        "cross edges",
        "inner pairs",
        "cross pairs",
        "label distance",
    ):
        table.add_column(column, justify="left" if column == "silo" else "right")
    keys = ("nodes", "training", "inner", "cross", "inner_pairs", "cross_pairs")
    for silo in stats["silos"]:
        table.add_row(f"silo-{silo['silo']}", *(str(silo[key]) for key in keys), f"{silo['label_distance']:.3f}")
    return table
