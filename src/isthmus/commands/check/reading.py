"""Reading data as a run does, with problems kept instead of raised: parts of silos, or a folder that is split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from isthmus.commands.trained_model import part_number
from isthmus.core.attempts import attempt, keeping_problems
from isthmus.core.coerce import fill
from isthmus.core.errors import IsthmusError
from isthmus.data.members import is_parts, member_names
from isthmus.federation.federation import Federation, open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.differing_edges import with_notes_on_edges
from isthmus.graph.partition import partition, silo_names, values_of
from isthmus.graph.silo import Silo
from isthmus.launch.silos import categories_of, load_graph, load_silos
from isthmus.runs.data_config import DataConfig, check_silos, split_options
from isthmus.runs.recipe import parse_set
from isthmus.wire.local import LocalWire


@dataclass(frozen=True)
class Read:
    """Silos as they were read, the federation that they make (None: they do not fit, or one alone was read)."""

    silos: list[Silo]
    federation: Federation | None
    errors: list[IsthmusError]


@dataclass(frozen=True)
class CheckRequest:
    """Which data is to be checked: parts (of one silo alone, if it is named), or a folder and how to split it."""

    data: str
    silo: str | None = None
    silos: int | None = None
    split: str = ""
    sets: tuple[str, ...] = ()


def configured(request: CheckRequest) -> DataConfig:
    """The settings of the data; raises for options that mean nothing here."""
    table = parse_set(request.sets)
    strange = sorted(set(table) - {"data"})
    if strange:
        raise IsthmusError(f"'isthmus check' reads data.… keys only, not '{strange[0]}'.")
    own, options = split_options(table.get("data", {}))
    config = fill(DataConfig(name=request.data), own, "data")
    parts = is_parts(request.data)
    if request.silos is not None:
        check_silos(request.silos)
    if parts and (request.silos is not None or request.split):
        raise IsthmusError(f"'{request.data}' holds parts, split already; leave out --silos and --split.")
    if request.silo and not parts:
        raise IsthmusError(f"'{request.data}' holds no parts; --silo names one of a folder of parts.")
    return replace(config, options=options, split=request.split or "random")


def read_all(request: CheckRequest, config: DataConfig) -> Read:
    """Read everything that there is, then let silos agree as before a run; problems are kept."""
    with keeping_problems() as errors:
        silos = _parts(request, config) if is_parts(request.data) else _split(request, config)
        federation = None
        if not errors and not (request.silo and len(silos) == 1):
            federation = attempt(partial(_agree, silos, config), None)
        elif len(silos) > 1:
            attempt(partial(_agree, silos, config), None)  # what differs between those that could be read
        return Read(silos, federation, list(errors))


def _parts(request: CheckRequest, config: DataConfig) -> list[Silo]:
    """The parts that can be read."""
    names = attempt(partial(member_names, Path(request.data)), list[str]())
    numbers: Sequence[int] = range(len(names))
    if request.silo and names:
        numbers = [part_number(names, request.silo)]
    nobody: list[Silo] = []
    each = [attempt(partial(load_silos, config, False, [number]), nobody) for number in numbers]
    return with_notes_on_edges([silo for found in each for silo in found])


def _split(request: CheckRequest, config: DataConfig) -> list[Silo]:
    """The silos of a whole graph; one of all nodes where nobody says how to split it."""
    graph = attempt(partial(load_graph, config), None)
    if graph is None:
        return []

    def cut() -> list[Silo]:
        count = request.silos or len(values_of(graph, config.split)) or (5 if request.split else 1)
        owner = partition(graph, config.split, count, config.seed, config.resolution or None)
        return split_graph(graph, owner, count, silo_names(graph, config.split, count))

    return attempt(cut, list[Silo]())


def _agree(silos: list[Silo], config: DataConfig) -> Federation:
    """The handshake of a run, in this process."""
    given: dict[str, Any] = {"scale": config.scale, "edges": config.edges, "categories": categories_of(config)}
    return open_federation(LocalWire(len(silos)), silos, config.seed, **given)
