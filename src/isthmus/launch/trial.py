"""A trial of a run on a small stand-in for its data: in which ways its method lets something leave a silo.

Every phase is entered, trained for a few steps and ended, and the run is brought to its end, all in this process. The
kinds of messages, their receivers and their protection follow from method, model and settings; how many rows leave
follows from the data, and is not seen here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER_NAME, Kind
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TEST, TRAIN, VALID, Graph, Schema
from isthmus.graph.silo import Silo
from isthmus.launch.privacy import take_account
from isthmus.launch.silo_tables import silo_figures, silo_sizes
from isthmus.policy.foreseen import Demand, DemandRecorder
from isthmus.policy.guard import Way
from isthmus.runs.config import RunConfig
from isthmus.train.loop import train_phase
from isthmus.train.result import finish
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire

Opened = Callable[[RunConfig, Wire, list[Silo]], Training]  # runs the handshake; the training before its first step
_CLASSES = ("0", "1", "2")
_SILOS, _NODES, _STEPS, _WIDTH = 3, 16, 4, 4  # nodes: of each silo
_GROUP = 64  # silos whose vectors are masked together


@dataclass(frozen=True)
class Foreseen:
    """In which ways a run would let something leave a silo; ``unknown`` says why that could not be found out."""

    demands: list[Demand] = field(default_factory=list)
    unknown: str = ""


def foresee(config: RunConfig, schema: Schema, opened: Opened) -> Foreseen:
    """In which ways a run over data of a schema would let something leave a silo."""
    of_totals = config.method.chain.of_totals  # then the number of silos is part of what protects
    silos = stand_in(schema, min(max(config.data.silos, _SILOS), _GROUP) if of_totals else _SILOS)
    wire = LocalWire(len(silos), config.method.chain)
    linked = [(silo.number, owner) for silo in silos for owner in silo.halo_owner.unique().tolist()]
    wire.policy = recorder = DemandRecorder(len(silos), linked)
    data = replace(config.data, silos=len(silos), folder="")
    train = replace(config.train, patience=0, metric="")
    try:
        training = opened(replace(config, data=data, train=train), wire, silos)
        for number in range(len(training.phases)):
            if number:
                training.go_on(number)
            training.stop_after(min(_STEPS, max(1, training.stage.last_step - training.stage.first_step)))
            train_phase(training, Watcher())
        finish(training)
        silo_sizes(training)  # called for what the end of a run sends
        silo_figures(training)
        training.stage.exchange.notes()
        take_account(training)
    except IsthmusError as error:
        return Foreseen(unknown=str(error))
    ledgers = [Demand(Kind.LEDGER, SERVER_NAME, Way((), (), 0, False))] if config.system.hosts > 1 else []
    return Foreseen([*recorder.found(), *ledgers])  # hosts hand in their ledgers, which one process has no need to


def stand_in(schema: Schema, silos: int = _SILOS) -> list[Silo]:
    """Silos of a small random graph with a schema's task; those whose numbers differ by more than 1 have no edges."""
    rng, nodes = np.random.default_rng(0), _NODES * silos
    owner = np.arange(nodes) % silos
    known = replace(schema, features=_WIDTH, feature_names=(), edge_feature_names=(), labels=schema.labels or _CLASSES)
    ends = _ends(rng, silos)
    count, edges = len(known.labels), ends.shape[1]
    classes = rng.integers(0, count, nodes)
    tasks = rng.integers(0, 2, (nodes, count)).astype(np.float32)
    split = torch.from_numpy(np.resize([TRAIN, TRAIN, VALID, TEST], max(edges, nodes))).to(torch.int8)
    at_edges = schema.target == "edge"
    graph = Graph(
        ids=np.arange(nodes),
        x=torch.from_numpy(rng.normal(size=(nodes, _WIDTH))).float(),
        edge_index=ends,
        schema=known,
        y=torch.from_numpy(tasks if schema.task == "tasks" else classes),
        split=split[:nodes],
        edge_attr=torch.from_numpy(rng.normal(size=(edges, schema.edge_features))).float()
        if known.edge_features
        else None,
        edge_time=torch.from_numpy(rng.integers(0, 9, edges)) if schema.timed else None,
        edge_y=torch.from_numpy(rng.integers(0, count, edges)) if at_edges else None,
        edge_split=split[:edges] if at_edges else None,
    ).check()
    return split_graph(graph, torch.from_numpy(owner), silos)


def _ends(rng: np.random.Generator, silos: int) -> Tensor:
    """Random edges within silos and between a silo and the next, in both directions: [2, m]."""
    count = 4 * _NODES * silos
    first = rng.integers(0, silos, count)
    second = np.clip(first + rng.integers(-1, 2, count), 0, silos - 1)
    source, target = (silo + silos * rng.integers(0, _NODES, count) for silo in (first, second))
    half = np.stack([source, target])[:, source != target]
    return torch.from_numpy(np.concatenate([half, half[::-1]], 1))
