"""On how many labelled nodes or edges each method would train and be scored, and which methods refuse such data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from isthmus.core.errors import IsthmusError
from isthmus.engine.layout import lay_out
from isthmus.federation.federation import Federation
from isthmus.graph.graph import SPLIT_NAMES, TEST, TRAIN, VALID
from isthmus.graph.merged import merge
from isthmus.launch.host import open_run
from isthmus.launch.trial import stand_in
from isthmus.methods import catalogue
from isthmus.methods.method import Method
from isthmus.runs.config import resolve
from isthmus.sample.order import rule_of
from isthmus.wire.local import LocalWire

_SPLITS = (TRAIN, VALID, TEST)
Counts = dict[str, int]  # by split


@dataclass
class SeedsByMethod:
    """Counts of seeds for views of the data, each computed once."""

    federation: Federation
    _known: dict[tuple[str, bool], Counts] = field(default_factory=dict)

    def of(self, method: Method) -> Counts:
        """Labelled seeds that a method trains on, and is scored on, by split."""
        exchange = method.last.exchange
        if method.merged:
            return self._all()
        trained = self._laid_out(exchange.view, exchange.doubles)
        how = method.scores[0]
        scored = trained if how == "trained" else self._laid_out("drop", False) if how == "own" else self._all()
        return {**scored, SPLIT_NAMES[TRAIN]: trained[SPLIT_NAMES[TRAIN]]}

    def _all(self) -> Counts:
        """All labelled nodes or edges, each once."""
        return self._laid_out("halo", False)

    def _laid_out(self, view: str, doubles: bool) -> Counts:
        key = view, doubles
        if key not in self._known:
            order, cpu = rule_of("joint"), torch.device("cpu")
            layout = lay_out(self.federation, view, order, doubles, cpu, torch.float32)
            pools = {SPLIT_NAMES[split]: layout.pools[split] for split in _SPLITS}
            self._known[key] = {name: len(pool.keys.unique()) for name, pool in pools.items()}
        return self._known[key]


def seeds_by_method(federation: Federation) -> list[dict[str, Any]]:
    """Every method of the catalogue with the seeds that it has, or why it refuses such data."""
    seeds, rows = SeedsByMethod(federation), list[dict[str, Any]]()
    names = [name for name in catalogue.names() if len(federation.silos) > 1 or catalogue.get(name).merged]
    for name in names or ["centralised"]:
        method = catalogue.get(name)
        why = _refusal(name, method, federation)
        rows.append({"method": name, "refused": why} if why else {"method": name, "seeds": seeds.of(method)})
    return rows


def _refusal(name: str, method: Method, federation: Federation) -> str:
    """Why a method refuses data of such a schema, found out on a few made-up nodes; empty where it takes it."""
    try:
        config = resolve({"method": name, "data": {"scale": "none"}})
        silos = stand_in(federation.schema)
        if config.method.merged:
            silos = [replace(merge(silos))]
        open_run(config, LocalWire(len(silos), config.method.chain), silos)
    except IsthmusError as error:
        return str(error)
    return ""
