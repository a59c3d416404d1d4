"""Short runs of the catalogue's methods that the tests share; graphs and runs of any method are in isthmus.testing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.graph.silo import Silo
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.testing.runs import losses, open_of, owners, small_graph
from isthmus.train.loop import train
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.wire.wire import Wire

__all__ = [
    "assert_same", "losses", "numbers", "open_method", "open_of", "open_parts", "owners", "parameters", "run_method",
    "run_parts", "small_graph", "without_edges",
]  # fmt: skip


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
    """A run of a few steps, dropout on, with every silo of the wire's host.

    Where ``options`` do not say how long phases last, all but the last take one epoch. ``model`` is for methods that do
    not prescribe one.
    """
    method = catalogue.get(name)
    short = {"phase": {phase.name: {"epochs": 1} for phase in method.phases[:-1]}} if len(method.phases) > 1 else {}
    method = compose(method, {**short, **(options or {})})
    return open_of(method, parts, method.model or model, dtype, seed, wire, model_options, device, **training)


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
