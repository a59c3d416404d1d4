"""Random directed multigraphs whose nodes are labelled by the patterns (cycles, fans, ...) that they take part in.

The source of an edge is uniform over all nodes, its target lies near the source on a ring, its time is uniform. Three
independent graphs serve training, validation and test.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from isthmus.core.errors import IsthmusError, unknown
from isthmus.graph.graph import TEST, TRAIN, VALID, Graph, Schema

TASKS = ("deg-in", "deg-out", "fan-in", "fan-out", "C2", "C3", "C4", "C5", "C6", "S-G", "B-C")
STRUCTURAL = TASKS[4:]
SPREAD = 11.1  # standard deviation of the distance along the ring
MANY = 3  # a degree or fan above this is labelled
LONGEST = 6  # nodes of the longest labelled cycle
PATHS = 2_000_000  # paths held at once while cycles are sought: bounds memory, not results


def patterns(nodes: int = 8192, degree: float = 3.0, seed: int = 0, tasks: tuple[str, ...] | None = None) -> Graph:
    """Three pattern graphs of ``nodes`` nodes each, with ``degree`` edges into a node on average.

    ``tasks`` chooses the labels (default: the seven structural ones); the graphs do not depend on it.
    """
    names = STRUCTURAL if tasks is None else (tasks,) if isinstance(tasks, str) else tuple(tasks)
    for name in set(names) - set(TASKS):
        raise unknown("pattern task", name, TASKS)
    if not names or nodes < 2 or not degree > 0:
        raise IsthmusError(
            f"Pattern graphs need at least 2 nodes, a positive degree and one task; got nodes={nodes}, "
            f"degree={degree}, {len(names)} tasks."
        )
    drawn = [_draw(nodes, degree, np.random.default_rng([seed, part])) for part in range(3)]
    labels = np.concatenate([pattern_labels(source, target, nodes, names) for source, target, _ in drawn])
    edges = np.concatenate([np.stack([s, t]) + part * nodes for part, (s, t, _) in enumerate(drawn)], axis=1)
    component = torch.arange(3).repeat_interleave(nodes)
    return Graph(
        ids=np.arange(3 * nodes),
        x=torch.ones(3 * nodes, 1),
        edge_index=torch.from_numpy(edges),
        schema=Schema(1, names, task="tasks", timed=True, feature_names=("one",)),
        y=torch.from_numpy(labels),
        split=torch.tensor([TRAIN, VALID, TEST], dtype=torch.int8)[component],
        edge_time=torch.from_numpy(np.concatenate([time for _, _, time in drawn])),
        component=component,
        name="patterns",
    ).check()


def _draw(nodes: int, degree: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random sources, targets and times of one graph's edges; self-loops are dropped, parallel edges kept."""
    wanted = round(nodes * degree)
    source = target = np.empty(0, dtype=np.int64)
    while len(source) < wanted:
        start = rng.integers(nodes, size=wanted)
        end = np.rint(rng.normal(start, SPREAD)).astype(np.int64) % nodes
        source = np.concatenate([source, start[start != end]])
        target = np.concatenate([target, end[start != end]])
    return source[:wanted], target[:wanted], rng.integers(nodes, size=wanted)


def pattern_labels(source: np.ndarray, target: np.ndarray, nodes: int, names: tuple[str, ...]) -> np.ndarray:
    """Labels of a directed multigraph without self-loops: [nodes, tasks] int8.

    deg-in and deg-out count parallel edges; fan-in and fan-out count distinct neighbours; Ck: the node lies
    on a simple directed cycle of exactly k nodes; S-G: some other node reaches it through two or more
    middle nodes; B-C: some other node shares two or more in-neighbours with it.
    """
    code = np.unique(source * nodes + target)  # parallel edges collapse
    simple = code // nodes, code % nodes
    found = {
        "deg-in": np.bincount(target, minlength=nodes) > MANY,
        "deg-out": np.bincount(source, minlength=nodes) > MANY,
        "fan-in": np.bincount(simple[1], minlength=nodes) > MANY,
        "fan-out": np.bincount(simple[0], minlength=nodes) > MANY,
        "S-G": _meets(simple[1], simple[0], simple, nodes),
        "B-C": _meets(simple[0], simple[1], simple, nodes),
    }
    if any(name.startswith("C") for name in names):
        found |= _cycles(code, simple, nodes)
    return np.stack([found[name] for name in names], axis=1).astype(np.int8)


def _meets(middle: np.ndarray, far: np.ndarray, onward: tuple[np.ndarray, np.ndarray], nodes: int) -> np.ndarray:
    """Which nodes some other node reaches through two or more middle nodes: [nodes] bool.

    ``far[k]`` and ``middle[k]`` are joined by an edge, in either direction; ``onward`` holds the edges that leave the
    middle nodes.
    """
    step, end = _expand(middle, onward[0], onward[1], nodes)
    start = far[step]
    pair, count = np.unique((start * nodes + end)[start != end], return_counts=True)
    met = np.zeros(nodes, dtype=bool)
    met[pair[count >= 2] % nodes] = True
    return met


def _expand(last: np.ndarray, source: np.ndarray, target: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Every edge that leaves a node of ``last``: the place of that node in ``last``, and the edge's target.

    ``source`` is sorted.
    """
    begin = np.searchsorted(source, np.arange(nodes + 1))
    count = np.diff(begin)[last]
    position = np.repeat(np.arange(len(last)), count)
    offset = np.arange(len(position)) - np.repeat(np.cumsum(count) - count, count)
    return position, target[begin[last][position] + offset]


def _cycles(code: np.ndarray, simple: tuple[np.ndarray, np.ndarray], nodes: int) -> dict[str, np.ndarray]:
    """For each length, which nodes lie on a simple directed cycle of it; a cycle is found from its smallest node."""
    found = {f"C{length}": np.zeros(nodes, dtype=bool) for length in range(2, LONGEST + 1)}
    fan = max(len(code) / nodes, 1.0)
    chunk = max(1, int(PATHS / fan ** (LONGEST - 1)))
    for first in range(0, nodes, chunk):
        for path in _paths(np.arange(first, min(first + chunk, nodes)), simple, nodes):
            closing = path[-1] * nodes + path[0]
            at = np.minimum(np.searchsorted(code, closing), len(code) - 1)
            found[f"C{len(path)}"][path[:, code[at] == closing]] = True
    return found


def _paths(start: np.ndarray, simple: tuple[np.ndarray, np.ndarray], nodes: int) -> Iterator[np.ndarray]:
    """Yield simple paths of 2 to LONGEST nodes whose smallest node comes first: [length, paths] each."""
    path = start[None]
    step = partial(_expand, source=simple[0], target=simple[1], nodes=nodes)
    for _ in range(LONGEST - 1):
        position, following = step(path[-1])
        fresh = (following > path[0, position]) & (path[:, position] != following).all(axis=0)
        path = np.concatenate([path[:, position[fresh]], following[None, fresh]])
        yield path
