"""The silos that a host trains: parts read from disk, or a whole graph that is split, or merged, here and now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from isthmus import data
from isthmus.core.errors import IsthmusError
from isthmus.data.members import is_parts, member_names
from isthmus.federation.cross_edges import agree_edges
from isthmus.federation.handshake import check_single_owner
from isthmus.federation.schema_agreement import agree_on_data
from isthmus.graph.cut import split_graph
from isthmus.graph.differing_edges import with_notes_on_edges
from isthmus.graph.graph import Graph
from isthmus.graph.merged import merge
from isthmus.graph.partition import attribute_of, note_on_names, partition, silo_names
from isthmus.graph.silo import Silo, changed
from isthmus.runs.data_config import GIVEN, DataConfig
from isthmus.wire.local import LocalWire

READING = ("categories", "missing", "words", "rarest")  # options of how tables are read, which parts have too


def load_silos(config: DataConfig, merged: bool, mine: Sequence[int] | None = None) -> list[Silo]:
    """The silos of this host (None: all): parts from disk, or a whole graph that is split here and now."""
    if config.name == GIVEN:
        raise IsthmusError(
            "The silos of this run were given to isthmus.fit as Python objects and are not kept, so that it cannot be "
            "replayed; train again with fit(..., out=..., keep_data=True)."
        )
    silos = _read_parts(config, mine) if is_parts(config.name) else _split(config, mine)
    return [merge(agree_before_merge(silos, config))] if merged else silos


def _read_parts(config: DataConfig, mine: Sequence[int] | None) -> list[Silo]:
    """Silos whose parts are on disk; options of a data set mean nothing there, but for those of how tables are read."""
    from isthmus.data.feature_columns import Reading
    from isthmus.data.parts import read_part

    for option in config.options:
        if option not in READING:
            raise IsthmusError(f"Parts have no options, so that data.{option} means nothing here; leave it out.")
    given = {**config.options, "words": tuple(config.options.get("words", ()))}
    reading, names = Reading(**given).check(), member_names(Path(config.name))
    numbers = mine if mine is not None else range(len(names))
    return with_notes_on_edges([read_part(Path(config.name), names, number, reading) for number in numbers])


def _split(config: DataConfig, mine: Sequence[int] | None) -> list[Silo]:
    """Silos of a whole graph, which is split as the configuration says."""
    graph = load_graph(config)
    resolution, communities = config.resolution or None, config.communities or None
    owner = partition(graph, config.split, config.silos, config.seed, resolution, communities)
    names = silo_names(graph, config.split, config.silos)
    graph = replace(graph, notes=(*graph.notes, *note_on_names(graph, config.split, names)))
    silos = split_graph(graph, owner, config.silos, names)
    return silos if mine is None else [silos[i] for i in mine]


def load_graph(config: DataConfig) -> Graph:
    """The whole graph of a configuration; the column that it is split by is no feature."""
    column, options = attribute_of(config.split), dict(config.options)
    if column and data.is_own(config.name):
        options["attributes"] = tuple(dict.fromkeys((*options.get("attributes", ()), column)))
    return data.load(config.name, seed=config.seed, folder=config.folder or None, **options)


def categories_of(config: DataConfig) -> int:
    """How many words a column may have of which each becomes a feature."""
    return int(config.options.get("categories", 20))


def agree_before_merge(silos: list[Silo], config: DataConfig) -> list[Silo]:
    """The part of the handshake that must come before a merge: one schema, one owner for each node, common edges."""
    wire = LocalWire(len(silos))
    silos = agree_on_data(wire, silos, categories_of(config)).silos
    check_single_owner(wire, silos, config.seed)
    silos, _, notes = agree_edges(wire, silos, config.edges)
    return [changed(silo, notes=(*silo.notes, *notes)) for silo in silos]
