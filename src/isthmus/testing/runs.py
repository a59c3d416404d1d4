"""Tiny random graphs and short runs, which contracts and tests train on: a few steps, float64, one process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.engine.absence import STOPPING, AbsenceConfig
from isthmus.engine.learner import CLASSIFIER, ModelSpec
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TEST, TRAIN, VALID, Graph, Schema
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo
from isthmus.methods.method import Method
from isthmus.methods.phase import one_phase
from isthmus.nn.model import MODELS
from isthmus.protect.base import Mechanism
from isthmus.protect.secrets import Noise, common_from_seed, secrets_from_seed
from isthmus.sample.batches import Seeds
from isthmus.train.checkpoint import Checkpoints
from isthmus.train.loop import begin_round, end_round, step, train
from isthmus.train.progress import Progress
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.train.watcher import Watcher
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire

# ---- graphs


def small_graph(
    nodes: int = 12, edges: int = 40, seed: int = 0, inner: Tensor | None = None, edge_task: bool = False
) -> Graph:
    """A random directed multigraph with parallel edges, self-loops and an isolated last node.

    With ``inner`` (an owner vector) only edges between nodes of one owner are kept.
    """
    rng = np.random.default_rng(seed)
    ends = torch.from_numpy(rng.integers(0, max(nodes - 1, 1), (2, edges)))
    ends = torch.cat([ends, ends[:, : edges // 5]], 1)  # parallel edges
    if inner is not None:
        ends = ends[:, inner[ends[0]] == inner[ends[1]]]
    m = ends.shape[1]
    split = torch.from_numpy(rng.permutation(np.resize([TRAIN, TRAIN, VALID, TEST], nodes)))
    return Graph(
        ids=rng.permutation(nodes * 7)[:nodes].astype(np.int64),
        x=torch.from_numpy(rng.normal(size=(nodes, 5))).float(),
        edge_index=ends,
        schema=Schema(5, ("a", "b", "c"), target="edge" if edge_task else "node", edge_features=2, timed=True),
        y=torch.from_numpy(rng.integers(0, 3, nodes)),
        split=split.to(torch.int8),
        edge_attr=torch.from_numpy(rng.normal(size=(m, 2))).float(),
        edge_time=torch.from_numpy(rng.integers(0, 5, m)),
        edge_y=torch.from_numpy(rng.integers(0, 3, m)) if edge_task else None,
        edge_split=torch.from_numpy(np.resize([TRAIN, TRAIN, VALID, TEST], m)).to(torch.int8) if edge_task else None,
    ).check()


def owners(silos: int, nodes: int = 30) -> Tensor:
    """A random owner for each node."""
    return torch.randint(0, silos, (nodes,), generator=torch.Generator().manual_seed(silos))


def small_silos(silos: int = 3, nodes: int = 18, inner: bool = False, edge_task: bool = False) -> list[Silo]:
    """A small graph dealt to silos in turn; with ``inner`` no edge crosses."""
    owner = torch.arange(nodes) % silos
    graph = small_graph(nodes, 4 * nodes, inner=owner if inner else None, edge_task=edge_task)
    return split_graph(graph, owner, silos)


def uneven_silos() -> list[Silo]:
    """Four silos: two ordinary ones, between them one without edges, and a last one without nodes."""
    graph, owner = small_graph(24, 96), torch.arange(24) % 3
    kept = (owner[graph.edge_index] != 1).all(0)
    fields = {name: getattr(graph, name)[kept] for name in ("edge_attr", "edge_time")}
    return split_graph(replace(graph, edge_index=graph.edge_index[:, kept], **fields), owner, 4)


# ---- runs


def method_of(
    protect: tuple[Mechanism, ...] = (), models: Mapping[str, ModelSpec] | None = None, **parts: Any
) -> Method:
    """A method of one phase with the given parts, which is in no catalogue: ``method_of(sync=Mine())``.

    ``models`` are those that it has beside an ordinary classifier, or instead of it.
    """
    made = {CLASSIFIER: ModelSpec(), **(models or {})}
    [phase] = one_phase(learns=tuple(made), **parts)
    level = phase.exchange.levels[0]
    return Method("contract", "a part under test", phases=(phase,), models=made, protect=protect, level=level)


def open_of(
    method: Method,
    parts: list[Silo],
    model: str = "sage",
    dtype: torch.dtype = torch.float64,
    seed: int = 3,
    wire: Wire | None = None,
    model_options: dict[str, Any] | None = None,
    device: str = "cpu",
    absence: AbsenceConfig = STOPPING,
    **training: Any,
) -> Training:
    """A run of a few steps of a method, dropout on, with every silo of the wire's host."""
    parts = [merge(parts)] if method.merged else parts
    wire = wire or LocalWire(len(parts))
    wire.protect, wire.noise = method.chain, Noise(secrets_from_seed(seed, wire.mine), common_from_seed(seed))
    federation = open_federation(wire, [parts[i] for i in wire.mine], seed, cross=method.cross, level=method.level)
    config = replace(MODELS[model], hidden=8, dropout=0.4, **{"layers": 2, **(model_options or {})})
    settings = TrainConfig(**{"epochs": 3, "lr": 0.05, **training})
    return Training(federation, method, config, settings, seed, device, dtype, absence)


def walk(training: Training, rounds: bool = True) -> Iterator[Seeds]:
    """Take the steps of a run of one phase one at a time, without scoring; yields the seeds of the step just taken.

    Without ``rounds`` the first one never ends, so that silos stay where their own steps lead them.
    """
    stage, progress = training.stage, training.progress
    while progress.epoch < stage.last_epoch:
        for seeds in stage.epoch_seeds(progress):
            if progress.round_starts:
                begin_round(stage)
            step(stage, progress, seeds)
            progress.round_starts = rounds and stage.round_over(progress.step, progress.epoch + 1)
            if progress.round_starts:
                end_round(stage)
            yield seeds
        progress.epoch += 1


def step_losses(training: Training) -> list[float]:
    """Take all steps of a run of one phase; the loss of each."""
    return [training.progress.last_loss for _ in walk(training)]


def losses(result: Result) -> list[float]:
    """The loss of every step of a run that has ended."""
    return [line["loss"] for line in result.history if "valid" not in line]


def resumed(opened: Callable[[], Training], after: Sequence[int]) -> tuple[Result, dict[int, Result]]:
    """A whole run, and for each of some epochs one that goes on from the checkpoint that the first wrote after it."""
    with tempfile.TemporaryDirectory() as folder:
        written = {epoch: Checkpoints(Path(folder, str(epoch)), "digest", 0, logs=False) for epoch in after}
        first = opened()

        class Writing(Watcher):
            def on_epoch(self, progress: Progress, lines: list[dict[str, Any]]) -> None:
                if progress.epoch in written:
                    written[progress.epoch].commit(first)

        whole, again = train(first, Writing()), {}
        for epoch, checkpoints in written.items():
            training = opened()
            assert checkpoints.resume(training) == epoch, f"no checkpoint was found of epoch {epoch}"
            again[epoch] = train(training)
        return whole, again
