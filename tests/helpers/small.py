"""Small graphs and short runs that the tests share."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.graph import TEST, TRAIN, VALID, Graph, Schema
from isthmus.graph.silo import Silo, merge, split_graph
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.method import Method
from isthmus.nn.model import MODELS
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.train.loop import Result, train
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire


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


def without_edges(silo: Silo, keep: Tensor) -> Silo:
    """The silo with those edges alone that ``keep`` [edges] marks."""
    fields = {name: getattr(silo, name)[keep] for name in ("edge_attr", "edge_time")}
    return replace(silo, edge_index=silo.edge_index[:, keep], **fields)


def open_method(name: str, graph: Graph, owner: Tensor, silos: int, *given: Any, **options: Any) -> Training:
    """Split the graph and open a run; ``given`` and ``options`` are those of ``open_parts``."""
    return open_parts(name, split_graph(graph, owner, silos), *given, **options)


def run_method(name: str, graph: Graph, owner: Tensor, silos: int, *given: Any, **options: Any) -> Result:
    """Split the graph and train; ``given`` and ``options`` are those of ``run_parts``."""
    return run_parts(name, split_graph(graph, owner, silos), *given, **options)


def run_parts(name: str, parts: list[Silo], *given: Any, **options: Any) -> Result:
    """Train for a few steps; ``given`` and ``options`` are those of ``open_parts``."""
    return train(open_parts(name, parts, *given, **options))


def open_parts(
    name: str,
    parts: list[Silo],
    model: str = "sage",
    options: dict[str, dict[str, object]] | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 3,
    wire: Wire | None = None,
    model_options: dict[str, object] | None = None,
    device: str = "cpu",
    **training: object,
) -> Training:
    """A run of a few steps, dropout on, with every silo of the wire's host."""
    return open_of(
        compose(catalogue.get(name), options or {}), parts, model, dtype, seed, wire, model_options, device, **training
    )


def open_of(
    method: Method,
    parts: list[Silo],
    model: str = "sage",
    dtype: torch.dtype = torch.float64,
    seed: int = 3,
    wire: Wire | None = None,
    model_options: dict[str, object] | None = None,
    device: str = "cpu",
    **training: object,
) -> Training:
    """A run of a method that is in no catalogue."""
    parts = [merge(parts)] if method.merged else parts
    wire = wire or LocalWire(len(parts))
    wire.protect, wire.noise = method.chain, Noise(secrets_from_seed(seed, wire.mine))
    federation = open_federation(wire, [parts[i] for i in wire.mine], seed)
    config = replace(MODELS[model], hidden=8, dropout=0.4, **{"layers": 2, **(model_options or {})})  # type: ignore[arg-type]
    settings = TrainConfig(**{"epochs": 3, "lr": 0.05, **training})  # type: ignore[arg-type]
    return Training(federation, method, config, settings, seed, device, dtype)


def losses(result: Result) -> list[float]:
    """The loss of every step."""
    return [line["loss"] for line in result.history if "valid" not in line]


def numbers(values: Sequence[float]) -> Tensor:
    """Losses as float64, the precision they were computed in."""
    return torch.tensor(values, dtype=torch.float64)


def parameters(result: Result) -> dict[str, Tensor]:
    """The final parameters by name."""
    return {name: tensor.clone() for name, tensor in result.training.learner.everything().items()}


def assert_same(a: Result, b: Result, tolerance: float = 1e-10, sets: Sequence[int] = (0,)) -> None:
    """Equal losses at every step and equal first parameter sets."""
    torch.testing.assert_close(numbers(losses(a)), numbers(losses(b)), rtol=tolerance, atol=0)
    ours, theirs = parameters(a), parameters(b)
    for name in ours:
        for i in sets:
            torch.testing.assert_close(ours[name][i], theirs[name][i], rtol=1e-8, atol=1e-10)
