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

from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import TEST, TRAIN, VALID, Graph, Schema
from isthmus.graph.silo import Silo, split_graph
from isthmus.launch.privacy import take_account
from isthmus.launch.silo_tables import silo_figures, silo_sizes
from isthmus.policy.foreseen import Demand, Recorder
from isthmus.runs.config import RunConfig
from isthmus.train.loop import Watcher, finish, train_phase
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire

Opened = Callable[[RunConfig, Wire, list[Silo]], Training]  # runs the handshake; the training before its first step
_SILOS, _NODES, _STEPS, _WIDTH, _CLASSES = 3, 48, 4, 4, 3


@dataclass(frozen=True)
class Foreseen:
    """In which ways a run would let something leave a silo; ``unknown`` says why that could not be found out."""

    demands: list[Demand] = field(default_factory=list)
    unknown: str = ""


def foresee(config: RunConfig, schema: Schema, opened: Opened) -> Foreseen:
    """In which ways a run over data of a schema would let something leave a silo."""
    silos = stand_in(schema)
    wire = LocalWire(len(silos), config.method.chain)
    linked = [(silo.number, owner) for silo in silos for owner in silo.halo_owner.unique().tolist()]
    wire.policy = recorder = Recorder(len(silos), linked)
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
    return Foreseen(recorder.found())


def stand_in(schema: Schema) -> list[Silo]:
    """Three silos of a small random graph with a schema's task; the first and the last have no common edges."""
    rng = np.random.default_rng(0)
    owner = np.arange(_NODES) % _SILOS
    near = [(a, b) for a in range(_NODES) for b in range(_NODES) if a != b and abs(owner[a] - owner[b]) < _SILOS - 1]
    chosen = rng.choice(len(near), 4 * _NODES, replace=False)
    half = np.array([near[each] for each in chosen]).T
    ends = torch.from_numpy(np.concatenate([half, half[::-1]], 1))
    count, edges = len(schema.labels) or _CLASSES, ends.shape[1]
    split = np.resize([TRAIN, TRAIN, VALID, TEST], edges)
    at_edges, tasks = schema.target == "edge", schema.task == "tasks"
    known = Schema(
        _WIDTH,
        schema.labels or tuple(map(str, range(_CLASSES))),
        schema.task,
        schema.target,
        edge_features=schema.edge_features,
        timed=schema.timed,
    )
    graph = Graph(
        ids=np.arange(_NODES),
        x=torch.from_numpy(rng.normal(size=(_NODES, _WIDTH))).float(),
        edge_index=ends,
        schema=known,
        y=torch.from_numpy(
            rng.integers(0, 2, (_NODES, count)).astype(np.float32)
            if tasks
            else owner * 0 + rng.integers(0, count, _NODES)
        ),
        split=torch.from_numpy(split[:_NODES]).to(torch.int8),
        edge_attr=torch.from_numpy(rng.normal(size=(edges, schema.edge_features))).float()
        if schema.edge_features
        else None,
        edge_time=torch.from_numpy(rng.integers(0, 9, edges)) if schema.timed else None,
        edge_y=torch.from_numpy(rng.integers(0, count, edges)) if at_edges else None,
        edge_split=torch.from_numpy(split).to(torch.int8) if at_edges else None,
    ).check()
    return split_graph(graph, torch.from_numpy(owner), _SILOS)
