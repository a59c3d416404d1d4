"""What ``isthmus split`` does: statistics of a split, and parts on disk."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from isthmus.core.coerce import fill
from isthmus.core.errors import IsthmusError
from isthmus.data.members import is_parts
from isthmus.data.write_parts import write_parts
from isthmus.graph.cut import split_graph
from isthmus.graph.partition import note_on_names, partition, silo_names, values_of
from isthmus.graph.stats import split_statistics
from isthmus.launch.silos import load_graph
from isthmus.runs.data_config import DataConfig, check_silos, split_options
from isthmus.runs.recipe import parse_set


def split_command(
    name: str, silos: int | None, how: str, sets: tuple[str, ...], out: Path | None, overwrite: bool
) -> dict[str, Any]:
    """Split a graph; write its parts where asked; return the statistics."""
    if is_parts(name):
        raise IsthmusError(f"'{name}' holds parts already; give a data set or a folder with nodes and edges.")
    table = parse_set(sets)
    unknown_tables = set(table) - {"data"}
    if unknown_tables:
        raise IsthmusError(f"'isthmus split' reads data.… keys only, not '{sorted(unknown_tables)[0]}'.")
    own, options = split_options(table.get("data", {}))
    config = replace(fill(DataConfig(name=name, split=how), own, "data"), options=options)
    asked = config.silos if silos is None and "silos" in own else silos
    if asked is not None:
        check_silos(asked)
    graph = load_graph(config)
    count = asked or len(values_of(graph, how)) or config.silos
    owner = partition(graph, how, count, config.seed, config.resolution or None, config.communities or None)
    names = silo_names(graph, how, count)
    graph = replace(graph, notes=(*graph.notes, *note_on_names(graph, how, names)))
    if out is not None:
        write_parts(split_graph(graph, owner, count, names), out, overwrite)
    found = asdict(split_statistics(graph, owner, count))
    return {**found, "silos": [{"name": name, **silo} for name, silo in zip(names, found["silos"], strict=True)]}


def stats_table(stats: dict[str, Any]) -> Table:
    """The statistics of a split as a table for people."""
    cut = stats["cross_pairs"] / max(stats["pairs"], 1)
    title = f"{stats['nodes']:,} nodes, {stats['edges']:,} directed edges; {cut:.1%} of connected pairs cross silos"
    shared = sum(silo["training"] for silo in stats["silos"]) > stats["training"]
    caption = "Labels lie on edges: both silos of a cross edge count it under train." if shared else None
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
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
        table.add_row(silo["name"], *(f"{silo[key]:,}" for key in keys), f"{silo['label_distance']:.3f}")
    return table
