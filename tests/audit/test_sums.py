"""Sums taken apart: exactly where they tell nodes apart, to the guess under noise; partials, and sums of features."""

import pytest
import torch
from torch import Tensor

from isthmus.audit.attributes import Prior
from isthmus.audit.journal import Journal
from isthmus.audit.recording import Overheard, choose, linear_messages, overheard, scaled_prior
from isthmus.audit.sums import SumSolver, features_of
from isthmus.core.kinds import Kind
from isthmus.graph.cut import split_graph
from isthmus.graph.stack import Stack
from isthmus.methods import catalogue
from isthmus.methods.exchange.swift_partials import Reduction, crossing_parts
from isthmus.testing.runs import open_of, owners, small_graph
from isthmus.train.loop import train
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire

NODES, FEATURES = 24, 5
EXACT = 1e-12


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def people() -> tuple[Tensor, Prior]:
    known = drawn(300, FEATURES, seed=1) @ drawn(FEATURES, FEATURES, seed=2) + drawn(FEATURES, seed=3)
    return known[:NODES], scaled_prior(known[NODES:], None)


def sums_of(x: Tensor, steps: int, width: int, sigma: float = 0.0, size: int = 3) -> tuple[SumSolver, Tensor]:
    """A solver that has heard sums over random sets of nodes, made by other parameters at every step."""
    solver = SumSolver(NODES, people()[1])
    random = torch.Generator().manual_seed(4)
    for step in range(steps):
        sets = torch.stack([torch.randperm(NODES, generator=random)[:size] for _ in range(10)])
        slope, offset = drawn(width, FEATURES, seed=100 + step), drawn(width, seed=200 + step)
        rows = (x[sets] @ slope.T + offset).sum(1) + sigma * drawn(10, width, seed=300 + step)
        solver.add(sets.flatten(), torch.arange(10).repeat_interleave(size), rows, slope, offset)
    return solver, solver.solve(sigma, 1e-12)


def error(found: Tensor, true: Tensor) -> float:
    return float((found - true).square().mean())


def test_sums_over_different_draws_give_every_node() -> None:
    """Ten sums of three nodes each: after eight steps no two nodes have been drawn alike."""
    x, _ = people()
    solver, found = sums_of(x, steps=8, width=7)
    assert error(found, x) < EXACT
    assert solver.sums == 80 and int(solver.times.sum()) == 240


def test_one_step_is_not_enough_and_nobody_comes_out_worse_than_the_guess() -> None:
    x, prior = people()
    _, few = sums_of(x, steps=1, width=7)
    guess = error(prior.mean.expand_as(x), x)
    assert EXACT < 0.05 * guess < error(few, x) < guess


def test_nodes_that_are_always_together_share_their_sum() -> None:
    x, prior = people()
    solver = SumSolver(2, Prior(prior.mean, torch.eye(FEATURES, dtype=torch.float64)))
    slope = drawn(6, FEATURES)
    solver.add(torch.tensor([0, 1]), torch.tensor([0, 0]), (x[0] + x[1])[None] @ slope.T, slope)
    found = solver.solve(0.0, 1e-12)
    assert torch.allclose(found[0], (x[0] + x[1]) / 2) and torch.allclose(found[0], found[1])


def test_parallel_edges_count_twice() -> None:
    x, _ = people()
    solver, slope = SumSolver(2, people()[1]), drawn(6, FEATURES)
    rows = torch.stack([2 * x[0] + x[1], x[0] + x[1]]) @ slope.T
    solver.add(torch.tensor([0, 0, 1, 0, 1]), torch.tensor([0, 0, 0, 1, 1]), rows, slope)
    assert error(solver.solve(0.0, 1e-12), x[:2]) < EXACT


def test_noise_leads_back_to_the_guess() -> None:
    x, prior = people()
    found = [error(sums_of(x, 8, 7, sigma)[1], x) for sigma in (0.0, 1.0, 10.0, 10000.0)]
    assert found == sorted(found) and found[0] < EXACT
    assert found[-1] == pytest.approx(error(prior.mean.expand_as(x), x), rel=0.01)


def test_under_noise_more_sums_give_more() -> None:
    x, _ = people()
    assert error(sums_of(x, 64, 7, 3.0)[1], x) < 0.5 * error(sums_of(x, 8, 7, 3.0)[1], x)


@pytest.mark.parametrize("width", [3, 7])
def test_with_one_set_of_parameters_it_is_the_posterior_mean(width: int) -> None:
    """Written out: all nodes' features as one long vector, and every sum as rows of one matrix."""
    x, prior = people()
    slope, sigma = drawn(width, FEATURES), 0.8
    sets = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(i))[:2] for i in range(8)])
    rows = x[sets].sum(1) @ slope.T + sigma * drawn(8, width, seed=8)
    solver = SumSolver(6, prior)
    solver.add(sets.flatten(), torch.arange(8).repeat_interleave(2), rows, slope)
    member = torch.zeros(8, 6, dtype=torch.float64).scatter_(1, sets, 1.0)
    whole, covariance = torch.kron(member, slope), torch.kron(torch.eye(6), prior.root @ prior.root.T)
    mean = prior.mean.repeat(6)
    gain = covariance @ whole.T @ torch.linalg.inv(whole @ covariance @ whole.T + sigma**2 * torch.eye(8 * width))
    exact = mean + gain @ (rows.flatten() - whole @ mean)
    assert error(solver.solve(sigma, 0.0), exact.reshape(6, FEATURES)) < EXACT


def test_wide_rows_are_solved_alike_without_noise_and_not_much_worse_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    x, prior = people()
    exact, narrow = sums_of(x, 8, 7)[1], error(sums_of(x, 8, 7, 3.0)[1], x)
    monkeypatch.setattr("isthmus.audit.sums.WIDE", 2)
    assert error(sums_of(x, 8, 7)[1], exact) < EXACT
    assert narrow <= error(sums_of(x, 8, 7, 3.0)[1], x) < 0.5 * error(prior.mean.expand_as(x), x)


def test_narrow_sums_of_the_same_sets_show_more_when_parameters_move() -> None:
    """Two columns do not hold five features; five steps of them, over the same sets of nodes, do."""
    x, prior = people()
    sets = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(i))[:2] for i in range(12)])
    found = []
    for steps in (1, 5):
        solver = SumSolver(6, prior)
        for step in range(steps):
            slope = drawn(2, FEATURES, seed=step)
            solver.add(sets.flatten(), torch.arange(12).repeat_interleave(2), x[sets].sum(1) @ slope.T, slope)
        found.append(error(solver.solve(0.0, 1e-12), x[:6]))
    assert found[1] < EXACT < 0.01 < found[0]


def test_sums_of_features_themselves_need_no_map() -> None:
    x, prior = people()
    sets = torch.stack([torch.randperm(6, generator=torch.Generator().manual_seed(i))[:2] for i in range(12)])
    found = []
    for slope in (None, torch.eye(FEATURES, dtype=torch.float64)):
        solver = SumSolver(6, prior)
        solver.add(sets.flatten(), torch.arange(12).repeat_interleave(2), x[sets].sum(1), slope)
        found.append(solver.solve(0.5, 0.0))
    assert torch.allclose(*found)


def test_scales_that_nobody_knows_are_found_beside_the_features() -> None:
    x, _ = people()
    known = drawn(300, FEATURES, seed=7)
    scales = 0.2 + 0.8 * torch.rand(300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    solver = SumSolver(NODES, scaled_prior(known, scales))
    mine = scales[:NODES, None]
    both = torch.cat([mine * x, mine], 1)
    for step in range(8):
        sets = torch.randperm(NODES, generator=torch.Generator().manual_seed(step)).reshape(8, 3)
        slope = drawn(9, FEATURES + 1, seed=step)
        rows = both[sets].sum(1) @ slope.T
        solver.add(sets.flatten(), torch.arange(8).repeat_interleave(3), rows, slope)
    assert error(features_of(solver.solve(0.0, 1e-12), scales), x) < EXACT


# ---- what goes through the door of a run


def opened(method: str, model: str, **training: object) -> tuple[Training, Journal]:
    """A run of three silos with somebody at the door who writes down every sum of rows."""
    graph, journal = small_graph(30, 140), Journal(torch.zeros(0, dtype=torch.int64))
    wire = LocalWire(3)
    wire.releases = journal
    spec = overheard(catalogue.get(method))
    run = open_of(spec, split_graph(graph, owners(3), 3), model, wire=wire, **training)
    journal.attach(run)
    return run, journal


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "pna"])
def test_sums_that_leave_are_those_of_linear_messages(model: str) -> None:
    """Each partial is the sum, over the rows that are said to be in it, of the map of their features."""
    run, journal = opened("fedgnn-g", model, batch=4, fanout=(2,), epochs=1)
    site, heard = run.stage.site, 0

    def check(rows: Tensor, silo: Tensor, reduction: Reduction) -> None:
        nonlocal heard
        net, stack = site.net, site.stack
        maps = linear_messages(net)
        if model == "gin":  # edge features pass a ReLU
            assert maps is None
            return
        assert maps is not None and net.enter is not None
        x = stack.x.double()[stack.own_line[reduction.sources]]
        h = x @ net.enter.weight[0] + (0 if net.enter.bias is None else net.enter.bias[0])
        scale = stack.in_degree[reduction.sources].add(1).double().rsqrt() if model == "gcn" else torch.ones(len(h))
        message = scale[:, None] * (h @ maps[0])
        block = reduction.block
        total = torch.zeros(len(rows), message.shape[1], dtype=torch.float64).index_add_(
            0, block.dst, message[block.src]
        )
        parts = crossing_parts(net.monoid(0))
        width = rows.shape[1] // len(parts)
        nothing = net.partial(0, torch.zeros_like(h), block)["sum"]
        at = parts.index("sum") * width
        assert torch.allclose(rows[:, at : at + width], total + nothing, atol=1e-9)
        assert len(silo) == len(rows)
        heard += len(rows)

    journal.on_sums = check
    train(run)
    assert heard > 20 or model == "gin"


def test_a_method_without_aggregates_is_left_as_it_is() -> None:
    method = catalogue.get("ce-fedgnn")
    assert overheard(method).phases == method.phases
    swift = catalogue.get("fedgnn-pns")
    exchange = overheard(swift).last.exchange
    assert isinstance(exchange, Overheard) and exchange.reuse and overheard(swift).last.schedule == swift.last.schedule


def test_overhearing_changes_nothing() -> None:
    graph = small_graph(30, 140)
    parts = split_graph(graph, owners(3), 3)
    plain = train(open_of(catalogue.get("fedgnn-g"), parts, "sage", batch=4))
    run, _ = opened("fedgnn-g", "sage", batch=4)
    heard = train(run)
    assert plain.bytes == heard.bytes
    assert [line["loss"] for line in plain.history] == [line["loss"] for line in heard.history]


def silo_stack(method: str = "fedgnn-g") -> Stack:
    return opened(method, "sage")[0].stage.site.stack


def test_nodes_are_chosen_with_all_that_share_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = silo_stack()
    every = choose(stack, 1, seed=0)
    assert bool(stack.owned[every].all()) and bool((stack.silo_of(every) == 1).all())
    monkeypatch.setattr("isthmus.audit.recording.MOST", 4)
    some = choose(stack, 1, seed=0)
    assert 0 < len(some) <= max(4, 1) + 8 and set(some.tolist()) < set(every.tolist())
    source, end = stack.ends
    into = (stack.silo_of(end) == 1) & stack.owned[source] & ~stack.owned[end]
    closed = [v for v in end[into].unique().tolist() if set(source[into & (end == v)].tolist()) <= set(some.tolist())]
    assert set(torch.cat([source[into & (end == v)] for v in closed]).tolist()) == set(some.tolist())


def test_fedgcn_sums_are_heard_as_they_leave() -> None:
    run, journal = opened("fedgcn", "gcn")
    train(run)
    stack = run.stage.site.stack
    silo, at, rows = journal.aggregates[0]
    assert set(silo.tolist()) == {0, 1, 2} and not bool(stack.owned[at].any())
    scale = stack.in_degree.add(1).double().rsqrt()
    for i in (0, len(at) // 2, len(at) - 1):
        members = stack.ends[0][(stack.ends[1] == at[i]) & stack.owned[stack.ends[0]]]
        x = stack.x.double()[stack.own_line[members]]
        assert torch.allclose(rows[i, :-1], (scale[members, None] * x).sum(0), atol=1e-9)
        assert float(rows[i, -1]) == pytest.approx(float(scale[members].sum()))
    assert 1 in journal.aggregates and bool(stack.owned[journal.aggregates[1][1]].all())
    assert journal.layers(Kind.AGGREGATES) == [0, 1]
