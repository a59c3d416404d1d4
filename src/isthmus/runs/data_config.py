"""The data of a run: which graph it learns from, how that is split between silos, and what a recipe says of both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

from isthmus.core.coerce import as_default, fill, whole_number
from isthmus.core.errors import IsthmusError, unknown
from isthmus.core.files import there
from isthmus.core.kinds import LEVELS
from isthmus.federation.cross_edges import EDGES, MUTUAL
from isthmus.federation.federation import CROSS
from isthmus.federation.scaling import SCALES
from isthmus.graph.partition import attribute_of

GIVEN = "given to isthmus.fit"  # the name of data that lies in no file
AS_MANY = 0  # silos: as many as the column has values that the graph is split by
MOST_SILOS = 1_000_000


@dataclass(frozen=True)
class DataConfig:
    """Which graph, and how it is split; ``options`` are the data set's own (``data.nodes``, ...).

    ``edges``: cross edges take part that both silos list (``mutual``), or also those that one silo claims (``claimed``:
    a silo then gets the rows of any node of another by claiming an edge to it). ``cross``: whether silos know of edges
    between them (``known``) or nobody does (``unknown``: they are cut off before silos meet); empty: as the method has
    it. ``level``: nodes belong to their ``silo``, or each to a ``device`` of its own below it; empty: likewise.
    """

    name: str = "blocks"
    folder: str = ""
    silos: int = 5
    split: str = "louvain"
    resolution: float = 0.0
    communities: int = 0
    scale: str = "auto"
    edges: str = MUTUAL
    cross: str = ""
    level: str = ""
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)


def read_data(table: dict[str, Any]) -> DataConfig:
    """The data settings of a recipe's ``[data]``."""
    own, options = split_options(table)
    data = fill(DataConfig(), own, "data")
    if "silos" not in own and attribute_of(data.split):
        data = replace(data, silos=AS_MANY)
    if "silos" in own:
        check_silos(data.silos)
    if data.scale not in SCALES:
        raise unknown("data.scale", data.scale, SCALES)
    if data.cross and data.cross not in CROSS:
        raise unknown("data.cross", data.cross, CROSS)
    if data.level and data.level not in LEVELS:
        raise unknown("data.level", data.level, LEVELS)
    if data.edges not in EDGES:
        raise unknown("data.edges", data.edges, EDGES)
    whole_number("data.seed", data.seed)
    data = replace(data, name=_from_anywhere(data.name), folder=_from_anywhere(data.folder))
    options = _loader_options(data.name, options)
    return replace(data, options={key: _from_anywhere(v) if key == "path" else v for key, v in options.items()})


def check_silos(silos: int) -> None:
    """Refuse a number of silos that no federation has."""
    if silos > MOST_SILOS:
        raise IsthmusError(f"--silos is {silos}; a federation has at most {MOST_SILOS:,} silos.")
    if silos < 1:
        raise IsthmusError(f"--silos is {silos}; a federation has at least one silo.")


def _from_anywhere(name: str) -> str:
    """The whole path of a file or folder, so that a run can be replayed from elsewhere; any other name as it is."""
    from isthmus.data import DATASETS

    return os.path.abspath(name) if name and name not in DATASETS and there(Path(name)) else name


def _loader_options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """A data set's own options, converted to the types of its loader's arguments.

    Unknown options stay as they are; the loader refuses them.
    """
    from isthmus.data import DATASETS, load_folder

    takes = signature(DATASETS[name].load if name in DATASETS else load_folder).parameters
    return {k: as_default(f"data.{k}", v, takes.get(k)) for k, v in options.items()}


def split_options(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of a table that belong to :class:`DataConfig`, and those that are the data set's own."""
    known = {f.name for f in fields(DataConfig)} - {"options"}
    return {k: v for k, v in table.items() if k in known}, {k: v for k, v in table.items() if k not in known}
