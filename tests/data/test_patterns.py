import sys
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import IsthmusError
from isthmus.data.patterns import STRUCTURAL, TASKS, pattern_labels, patterns

PAPER = (35.0, 35.3, 32.4, 32.5, 19.3, 33.7, 52.0, 67.1, 77.7, 31.4, 31.5)


def on_cycle(node: int, length: int, out: dict[int, set[int]]) -> bool:
    """Depth-first search for a simple directed cycle of exactly ``length`` nodes."""

    def search(path: list[int]) -> bool:
        if len(path) == length:
            return node in out[path[-1]]
        return any(search([*path, step]) for step in out[path[-1]] if step not in path)

    return search([node])


def slow_labels(edges: list[tuple[int, int]], nodes: int) -> list[list[bool]]:
    out: dict[int, set[int]] = {v: {t for s, t in edges if s == v} for v in range(nodes)}
    into: dict[int, set[int]] = {v: {s for s, t in edges if t == v} for v in range(nodes)}
    rows = []
    for v in range(nodes):
        others = [u for u in range(nodes) if u != v]
        row = [sum(t == v for _, t in edges) > 3, sum(s == v for s, _ in edges) > 3]
        row += [len(into[v]) > 3, len(out[v]) > 3]
        row += [on_cycle(v, length, out) for length in range(2, 7)]
        row += [any(len(out[u] & into[v]) >= 2 for u in others)]
        row += [any(len(into[u] & into[v]) >= 2 for u in others)]
        rows.append(row)
    return rows


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 9), st.integers(0, 30), st.integers(0, 1000))
def test_labels_are_what_brute_force_finds(nodes: int, count: int, seed: int):
    drawn = np.random.default_rng(seed).integers(nodes, size=(2, count))
    source, target = drawn[:, drawn[0] != drawn[1]]
    edges = list(zip(source.tolist(), target.tolist(), strict=True))
    assert pattern_labels(source, target, nodes, TASKS).tolist() == slow_labels(edges, nodes)


@pytest.mark.parametrize("length", range(2, 7))
def test_a_ring_is_a_cycle_of_its_own_length_alone(length: int):
    ring = np.arange(length)
    found = pattern_labels(ring, (ring + 1) % length, length, TASKS)
    assert {TASKS[i] for i in found.any(axis=0).nonzero()[0]} == {f"C{length}"}
    assert found[:, TASKS.index(f"C{length}")].all()


def test_many_paths_at_once_or_few_find_the_same_cycles(monkeypatch: pytest.MonkeyPatch):
    source, target = np.array(list(permutations(range(6), 2)) + [(6, 0), (1, 7), (7, 8), (8, 6)]).T
    whole = pattern_labels(source, target, 9, TASKS)
    monkeypatch.setattr(sys.modules[patterns.__module__], "PATHS", 1)
    assert np.array_equal(whole, pattern_labels(source, target, 9, TASKS))


def test_rates_agree_with_the_published_ones():
    # The rates of one graph have standard deviations of up to 0.8 points; the mean of nine graphs is nearer.
    drawn = [patterns(seed=seed, tasks=TASKS).y.double() for seed in range(3)]
    assert (100 * torch.cat(drawn).mean(0)).tolist() == pytest.approx(PAPER, abs=1.0)


def test_three_independent_graphs_in_one():
    graph = patterns(nodes=500, degree=2.5, seed=4)
    assert (graph.n, graph.m, graph.schema.labels) == (1500, 3 * 1250, STRUCTURAL)
    assert torch.equal(graph.split.long() - 1, graph.component)
    ends = graph.component[graph.edge_index]
    assert torch.equal(ends[0], ends[1])
    assert torch.bincount(ends[0]).tolist() == [1250] * 3
    assert (graph.edge_index[0] != graph.edge_index[1]).all()
    assert 0 <= int(graph.edge_time.min()) and int(graph.edge_time.max()) < 500
    parts = [graph.edge_index[:, ends[0] == part] - 500 * part for part in range(3)]
    assert not torch.equal(parts[0], parts[1])
    assert graph.y.dtype == torch.int8 and graph.y.shape == (1500, 7)


def test_seed_and_tasks():
    base = patterns(nodes=300, seed=1)
    assert torch.equal(base.edge_index, patterns(nodes=300, seed=1).edge_index)
    assert not torch.equal(base.edge_index, patterns(nodes=300, seed=2).edge_index)
    some = patterns(nodes=300, seed=1, tasks=("B-C", "C3"))
    assert torch.equal(some.edge_index, base.edge_index)
    assert torch.equal(some.y, base.y[:, [STRUCTURAL.index("B-C"), STRUCTURAL.index("C3")]])


def test_errors_say_what_to_do():
    with pytest.raises(IsthmusError, match="Unknown pattern task 'C7'.*Choose from: B-C, C2"):
        patterns(nodes=20, tasks=("C7",))
    for wrong in ({"nodes": 1}, {"degree": 0.0}, {"tasks": ()}):
        with pytest.raises(IsthmusError, match="at least 2 nodes"):
            patterns(**wrong)
