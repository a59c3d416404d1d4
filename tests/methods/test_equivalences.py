"""What must be equal to what, on small graphs, in float64, with dropout and sampling on."""

import copy
import json
from dataclasses import replace

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import TRAIN
from isthmus.methods.catalogue import get, names
from isthmus.methods.objective.base import Objective
from isthmus.nn.sets import reset_apart
from tests.helpers.small import assert_same, losses, parameters, run_method, small_graph

THREE = torch.arange(24) % 3
BATCHES = [{}, {"batch": 4, "fanout": (2,)}]
ids = ["full", "sampled"]


@pytest.mark.parametrize("training", BATCHES, ids=ids)
@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat", "pna", "mlp"])
def test_sync_sgd_without_cross_edges_is_centralised(model: str, training: dict) -> None:
    graph = small_graph(24, 120, inner=THREE)
    together = run_method("centralised", graph, THREE, 3, model, **training)
    apart = run_method("sync-sgd", graph, THREE, 3, model, **training)
    assert_same(together, apart)


def test_sync_sgd_with_batch_norm_and_ports_and_ego_is_centralised() -> None:
    graph = small_graph(24, 120, inner=THREE)
    training = {"batch": 4, "fanout": (3,), "epochs": 2}
    together = run_method("centralised", graph, THREE, 3, "multi-pna", **training)
    apart = run_method("sync-sgd", graph, THREE, 3, "multi-pna", **training)
    assert_same(together, apart)


def test_sync_sgd_with_cross_edges_is_not_centralised() -> None:
    graph = small_graph(24, 120)
    together = run_method("centralised", graph, THREE, 3)
    apart = run_method("sync-sgd", graph, THREE, 3)
    assert abs(losses(together)[0] - losses(apart)[0]) > 1e-3


@pytest.mark.parametrize("training", BATCHES, ids=ids)
@pytest.mark.parametrize(
    "method",
    [
        name
        for name in names()
        if name not in ("centralised", "local-mlp", "fedper", "fedgcn", "hifgl") and get(name).cross == "known"
    ],
)
def test_one_silo_is_centralised(method: str, training: dict) -> None:
    graph, alone = small_graph(24, 120), torch.zeros(24, dtype=torch.int64)
    nothing = {
        "fedprox": {"objective": {"mu": 0.0}},
        "ce-fedgnn": {"exchange": {"gamma": 1.0}, "sync": {"beta": 1.0, "local_steps": 1}},
        "fedgnn-st": {"sync": {"local_steps": 1}},
        "llcg": {"sync": {"corrections": 0, "local_steps": 1, "growth": 1.0}},
        "llcg-every-step": {"sync": {"name": "sync-sgd"}},  # without the server's steps
        "pretrained-fedavg": {"phase": {"pretrain": {"epochs": 1}}},
    }
    options = nothing.get(method, {})
    together = run_method("centralised", graph, alone, 1, **training)
    assert_same(together, run_method(method, graph, alone, 1, options=options, **training))


@pytest.mark.parametrize("training", BATCHES, ids=ids)
def test_fedprox_without_its_term_is_fedavg(training: dict) -> None:
    graph = small_graph(24, 120)
    plain = run_method("fedavg", graph, THREE, 3, **training)
    assert_same(plain, run_method("fedprox", graph, THREE, 3, options={"objective": {"mu": 0.0}}, **training))
    other = run_method(
        "fedprox",
        graph,
        THREE,
        3,
        options={"objective": {"mu": 5.0}, "sync": {"local_epochs": 3}},
        **training,
    )
    rounds = run_method("fedavg", graph, THREE, 3, options={"sync": {"local_epochs": 3}}, **training)
    assert abs(losses(other)[-1] - losses(rounds)[-1]) > 1e-6


def test_fedavg_of_one_silo_is_local() -> None:
    graph, alone = small_graph(24, 120), torch.zeros(24, dtype=torch.int64)
    assert_same(run_method("local", graph, alone, 1), run_method("fedavg", graph, alone, 1))


def test_fedavg_that_never_reaches_a_round_end_trains_like_local() -> None:
    graph = small_graph(24, 120)
    local = run_method("local", graph, THREE, 3, epochs=4)
    rounds = run_method("fedavg", graph, THREE, 3, options={"sync": {"local_epochs": 4}}, epochs=4)
    assert losses(local) == losses(rounds)  # the only average comes after the last step


def test_local_silos_train_as_if_each_were_alone() -> None:
    """Block-diagonal computation of several silos gives each what it would compute by itself."""
    graph = small_graph(24, 120, inner=THREE)
    together = run_method("local", graph, THREE, 3, batch=4, fanout=(2,))
    for silo in range(3):
        mine = THREE == silo
        row = mine.cumsum(0) - 1
        keep = mine[graph.edge_index[0]]
        part = small_graph(24, 120, inner=THREE)
        part = type(part)(
            ids=part.ids[mine.numpy()], x=part.x[mine], edge_index=row[part.edge_index[:, keep]], schema=part.schema,
            y=part.y[mine], split=part.split[mine], edge_attr=part.edge_attr[keep], edge_time=part.edge_time[keep],
        )  # fmt: skip
        single = run_method("local", part, torch.zeros(part.n, dtype=torch.int64), 1, batch=4, fanout=(2,))
        for name, tensor in parameters(single).items():
            torch.testing.assert_close(parameters(together)[name][silo], tensor[0], rtol=1e-8, atol=1e-10)


def test_fedper_keeps_the_head_of_edges_at_home() -> None:
    graph = small_graph(24, 120, edge_task=True)
    personal = parameters(run_method("fedper", graph, THREE, 3))
    for name, values in personal.items():
        assert torch.equal(values[0], values[1]) != name.startswith("edge_head."), name


def test_fedavg_gives_all_silos_the_same_parameters_and_fedper_keeps_heads_apart() -> None:
    graph = small_graph(24, 120)
    shared = parameters(run_method("fedavg", graph, THREE, 3))
    personal = parameters(run_method("fedper", graph, THREE, 3))
    for name in shared:
        assert torch.equal(shared[name][0], shared[name][2])
        assert torch.equal(personal[name][0], personal[name][2]) == (not name.startswith("head"))


def test_placeholder_differs_from_dropped_edges() -> None:
    graph = small_graph(24, 120)
    dropped = run_method("fedavg", graph, THREE, 3, options={"exchange": {"halo": "drop"}})
    kept = run_method("fedavg", graph, THREE, 3, options={"exchange": {"halo": "placeholder"}})
    assert abs(losses(dropped)[0] - losses(kept)[0]) > 1e-3


def test_the_order_of_nodes_and_edges_in_the_files_does_not_matter() -> None:
    graph = small_graph(24, 120)
    nodes = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    edges = torch.randperm(graph.m, generator=torch.Generator().manual_seed(2))
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(24)
    shuffled = type(graph)(
        ids=graph.ids[nodes.numpy()], x=graph.x[nodes], schema=graph.schema,
        edge_index=place[graph.edge_index[:, edges]],
        y=graph.y[nodes], split=graph.split[nodes], edge_attr=graph.edge_attr[edges], edge_time=graph.edge_time[edges],
    )  # fmt: skip
    training = {"batch": 4, "fanout": (2,)}
    assert_same(
        run_method("fedavg", graph, THREE, 3, "pna", **training),
        run_method("fedavg", shuffled, THREE[nodes], 3, "pna", **training),
    )


@pytest.mark.parametrize("training", BATCHES, ids=ids)
def test_edge_labels_train_and_no_cross_edges_equal_centralised(training: dict) -> None:
    graph = small_graph(24, 120, inner=THREE, edge_task=True)
    together = run_method("centralised", graph, THREE, 3, "gin", **training)
    assert_same(together, run_method("sync-sgd", graph, THREE, 3, "gin", **training))


def test_equal_configurations_give_identical_metrics_and_another_seed_does_not() -> None:
    graph = small_graph(24, 120)
    first = run_method("fedavg", graph, THREE, 3, batch=4, fanout=(2,))
    again = run_method("fedavg", graph, THREE, 3, batch=4, fanout=(2,))
    other = run_method("fedavg", graph, THREE, 3, batch=4, fanout=(2,), seed=4)
    assert first.history == again.history
    assert first.history != other.history


def test_a_run_that_diverges_leaves_plain_json_and_never_selects_what_is_not_finite() -> None:
    result = run_method("sync-sgd", small_graph(24, 120), THREE, 3, lr=1e30, optimiser="sgd", epochs=12)
    json.dumps(result.history, allow_nan=False)
    assert losses(result)[-1] is None
    assert all(bool(torch.isfinite(tensor).all()) for tensor in parameters(result).values())


@pytest.mark.parametrize("method", ["local", "fedper", "fedavg", "sync-sgd"])
def test_what_is_not_shared_may_start_from_each_silos_own_values(method: str) -> None:
    graph = small_graph(24, 120)
    for start in ("same", "own"):
        training = run_method(method, graph, THREE, 3, epochs=0, start=start).training
        for name, p in training.learner.classifier.sets.parameters.items():
            random = p.dim() > 2  # vectors start at 0 everywhere
            equal = bool((p == p[:1]).all())
            assert equal == (start == "same" or training.phases[-1].sync.shares(name) or not random), name


def test_own_starts_do_not_depend_on_who_else_is_on_the_host() -> None:
    graph = small_graph(24, 120)
    whole = run_method("local", graph, THREE, 3, epochs=0, start="own").training.stage.site.net
    again = copy.deepcopy(whole)
    reset_apart(again, 3, (0, 2, 1), lambda name: False)
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one[[0, 2, 1]], other)


def test_the_rare_class_counts_as_often_as_asked_for() -> None:
    """Two classes, twice the weight: the same as listing each seed of the rare class twice, up to the mean's size."""
    logits = torch.tensor([[2.0, 0.0], [0.5, 1.0], [0.0, 3.0]], dtype=torch.float64)
    graph = small_graph(24, 120)
    two = replace(graph, y=(torch.arange(24) % 4 == 0).long(), schema=replace(graph.schema, labels=("a", "b")))
    training = run_method("fedavg", two, THREE, 3, epochs=0).training
    [work] = training.stage.works(training.stage.layout.pools[TRAIN].all(torch.ones(3)), 0)
    batch = replace(work.batch, y=torch.tensor([0, 1, 0]))
    objectives = [Objective(minority_weight=weight).open(training.stage.site) for weight in (1.0, 2.0)]
    assert all(int(objective.minority) == 1 for objective in objectives)
    plain, heavy = (objective.seed_losses(logits, batch) for objective in objectives)
    torch.testing.assert_close(heavy, plain * torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64))
    runs = [run_method("fedavg", graph, THREE, 3, options={"objective": {"minority_weight": w}}) for w in (1.0, 3.0)]
    assert losses(runs[0]) != losses(runs[1])
    with pytest.raises(IsthmusError, match="positive number"):
        Objective(minority_weight=0.0)


def test_tasks_weigh_positives_by_themselves() -> None:
    graph = small_graph(24, 120)
    y = torch.stack([graph.y == 0, graph.y == 1], 1).long()
    tasks = replace(graph, y=y, schema=replace(graph.schema, task="tasks", labels=("a", "b")))
    with pytest.raises(IsthmusError, match="minority_weight is for classes"):
        run_method("fedavg", tasks, THREE, 3, options={"objective": {"minority_weight": 2.0}})
