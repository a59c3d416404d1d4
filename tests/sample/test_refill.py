"""Draws as edge-LDP assumes them: short lists with replacement, long ones without, and none below the floor."""

from collections import Counter
from dataclasses import replace
from math import comb
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.graph.stack import Stack, build_stack
from isthmus.protect.drawn_lists import DrawnLists
from isthmus.sample.neighbours import Draws, Sample, Sampler
from tests.helpers.small import assert_same, losses, numbers, run_method, small_graph

REFILL = {"batch": 4, "fanout": (3,), "draws": "refill"}


def stack_of(graph: Graph, owner: Tensor | None = None, silos: int = 1, halo: str = "drop") -> Stack:
    owner = torch.zeros(len(graph.ids), dtype=torch.int64) if owner is None else owner
    return build_stack(split_graph(graph, owner, silos), halo, torch.float64, graph.schema)


def sampler_of(stack: Stack, fanout: tuple[int, ...], seed: int = 0, floor: int = 0, directed: bool = False) -> Sampler:
    book = DrawnLists()
    book.open([last - first for first, last in zip(stack.ptr, stack.ptr[1:], strict=False)], floor)
    return Sampler(stack, fanout, Draws(seed, counted=book), directed)


def by_target(stack: Stack, sample: Sample) -> Tensor:
    """How many edges were drawn for each row, repeated ones as often as they are listed."""
    return torch.bincount(stack.ends[1][stack.incoming.edge[sample.incoming]], minlength=stack.rows)


def with_edges(graph: Graph, ends: Tensor) -> Graph:
    """The graph with other edges, all of them with the attributes of the first ones."""
    kept = torch.arange(ends.shape[1]) % max(graph.edge_index.shape[1], 1)
    fields = {name: getattr(graph, name)[kept] for name in ("edge_attr", "edge_time")}
    return replace(graph, edge_index=ends, **fields)


@pytest.mark.parametrize("fanout", [1, 3, 8, 40])
def test_every_list_is_drawn_from_fanout_times(fanout: int) -> None:
    stack = stack_of(small_graph(20, 120))
    sample = sampler_of(stack, (fanout,)).sample(torch.arange(20), 0)
    degree = stack.incoming.degree
    assert torch.equal(by_target(stack, sample), torch.where(degree > 0, fanout, 0))
    edges = Counter(sample.incoming.tolist())
    for row in range(20):
        drawn = [edges[at] for at in range(int(stack.incoming.ptr[row]), int(stack.incoming.ptr[row + 1]))]
        if len(drawn) > fanout:
            assert max(drawn) == 1  # without replacement


@given(seed=st.integers(0, 999), step=st.integers(0, 50), silos=st.integers(1, 6), fanout=st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_the_same_draws_for_any_placement(seed: int, step: int, silos: int, fanout: int) -> None:
    owner = torch.randint(0, silos, (20,), generator=torch.Generator().manual_seed(seed))
    graph = small_graph(20, 60, seed, inner=owner)
    shuffled = torch.randperm(graph.edge_index.shape[1], generator=torch.Generator().manual_seed(seed))
    fields = {name: getattr(graph, name)[shuffled] for name in ("edge_attr", "edge_time")}
    other = replace(graph, edge_index=graph.edge_index[:, shuffled], **fields)  # edges in another order
    found = []
    for stack in (stack_of(graph), stack_of(graph, owner, silos), stack_of(other, owner, silos)):
        roots = torch.isin(stack.keys, torch.from_numpy(graph.ids[:5])).nonzero().flatten()
        sample = sampler_of(stack, (fanout, fanout), seed, directed=True).sample(roots, step)
        sides = (stack.incoming.edge[sample.incoming], stack.outgoing.edge[sample.outgoing])
        found.append([Counter(stack.edge_keys[edges].tolist()) for edges in sides])
    assert found[0] == found[1] == found[2]


def test_draws_with_replacement_are_uniform_and_independent() -> None:
    """Of 4 draws from 2 entries, the first entry is drawn 0 to 4 times with binomial chances."""
    ends = torch.tensor([[1, 2], [0, 0]])
    stack = stack_of(with_edges(small_graph(5, 10), ends))
    sampler, times = sampler_of(stack, (4,)), torch.zeros(5)
    first = int(stack.incoming.ptr[0])
    for step in range(4000):
        times[int((sampler.sample(torch.tensor([0]), step).incoming == first).sum())] += 1
    expected = torch.tensor([comb(4, k) / 16 for k in range(5)]) * 4000
    assert chisquare(times.numpy(), expected.numpy()).pvalue > 1e-4


def test_long_lists_are_drawn_from_as_ever() -> None:
    """Where every list is longer than the fanout, refill changes nothing: bit for bit."""
    graph = small_graph(12, 300)
    long = bool((stack_of(graph).incoming.degree[:-1] > 2).all())
    assert long  # the last node has no list
    ways: list[dict[str, Any]] = [{"draws": how, "fanout": (f,)} for f in (2, 50) for how in ("distinct", "refill")]
    found = [losses(run_method("fedavg", graph, torch.zeros(12).long(), 1, batch=4, **way)) for way in ways]
    assert found[0] == found[1] and found[2] != found[3]


@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_a_list_of_one_entry_is_that_entry_however_often_it_is_drawn(model: str) -> None:
    """The limit in which draws are the whole list: a ring, on which refilled, distinct and full training are one."""
    ring = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
    graph = with_edges(small_graph(12, 40), ring)
    runs = [
        run_method("fedavg", graph, torch.zeros(12).long(), 1, model, **{"batch": 4, "fanout": (3,), **more})
        for more in ({}, {"draws": "refill"}, {"fanout": (-1,)})
    ]
    assert_same(runs[0], runs[1], 1e-12)
    assert_same(runs[0], runs[2], 1e-12)


def test_a_floor_above_all_lists_leaves_no_edges() -> None:
    graph = small_graph(12, 40)
    bare = with_edges(graph, graph.edge_index[:, :0])
    owner = torch.zeros(12, dtype=torch.int64)
    high, none = (run_method("fedavg", g, owner, 1, **more) for g, more in ((graph, FLOORED), (bare, REFILL)))
    assert_same(high, none, 1e-12)


FLOORED = {**REFILL, "floor": 1000}


def test_lists_below_the_floor_are_passed_over_and_counted() -> None:
    stack = stack_of(small_graph(20, 60))
    degree = stack.incoming.degree
    for floor in (2, 4, 6):
        sampler = sampler_of(stack, (4,), floor=floor)
        sample = sampler.sample(torch.arange(20), 0)
        assert torch.equal(by_target(stack, sample), torch.where(degree >= floor, 4, 0))
        state = sampler.draws.counted.state  # type: ignore[union-attr]
        assert torch.equal(state["skipped/0"], ((degree > 0) & (degree < floor)).long())
        drawn = state["draws/0/4/0"] + state["draws/0/4/1"]
        assert torch.equal(drawn, (degree >= floor).long())
        assert torch.equal(state["draws/0/4/1"] > 0, (degree >= floor) & (degree <= 4))


@pytest.mark.parametrize("how", [{}, {"draws": "refill"}, {"draws": "refill", "floor": 3}])
def test_refilled_training_across_the_boundary_is_centralised(how: dict[str, object]) -> None:
    graph, owner = small_graph(30, 140), torch.arange(30) % 3
    sampled = {"batch": 6, "fanout": (4,), "epochs": 2, **how}
    whole = run_method("centralised", graph, owner, 3, **sampled)
    across = run_method("sync-sgd+fwd-bwd-le", graph, owner, 3, **sampled)
    torch.testing.assert_close(numbers(losses(whole)), numbers(losses(across)), rtol=1e-10, atol=0)
    if how:
        plain = run_method("centralised", graph, owner, 3, **{**sampled, "draws": "distinct", "floor": 0})
        assert losses(whole) != losses(plain)


def test_what_cannot_be_drawn_so_is_refused() -> None:
    graph, owner = small_graph(12, 40), torch.arange(12) % 2

    def refused(method: str, model: str = "sage", graph: Graph = graph, **given: object) -> str:
        with pytest.raises(IsthmusError) as error:
            run_method(method, graph, owner, 2, model, **{**REFILL, **given})
        return str(error.value)

    assert "gin would add up" in refused("fedavg", "gin")
    assert "model.ports number" in refused("fedavg", "pna", model_options={"ports": 4})
    assert "add up each edge once" in refused("swift-fedgnn")
    assert "labels lie on edges" in refused("fedavg", graph=small_graph(12, 40, edge_task=True))
    assert "Unknown train.draws 'often'" in refused("fedavg", draws="often")
    for without in ({"draws": "distinct"}, {"batch": 0}, {"fanout": (-1,)}):
        assert "train.floor is 3" in refused("fedavg", floor=3, **without)
    assert "train.floor is -1; it must be at least 0" in refused("fedavg", floor=-1)
