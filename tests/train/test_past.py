"""Messages along edges of the past alone: nothing that happens later changes what is learnt or predicted before."""

from dataclasses import replace

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.graph.graph import TEST, TRAIN, VALID, Graph
from isthmus.train.result import Result
from tests.helpers.small import losses, run_method, small_graph

THREE = torch.arange(24) % 3
PAST = {"messages": "past", "epochs": 4}
BATCHES = [{}, {"batch": 5, "fanout": (3,)}]
METHODS = ("local", "fedavg", "centralised", "sync-sgd+fwd-bwd-le", "fedavg+fwd-le", "ce-fedgnn", "optimes")


def in_order() -> Graph:
    """Edges whose splits follow each other in time."""
    graph = small_graph(24, 120, edge_task=True)
    assert graph.edge_time is not None
    order = torch.argsort(graph.edge_time, stable=True)
    split = torch.empty(graph.m, dtype=torch.int8)
    split[order] = torch.tensor([TRAIN, VALID, TEST], dtype=torch.int8).repeat_interleave(torch.tensor([80, 30, 34]))
    time = torch.empty(graph.m, dtype=torch.int64)
    time[order] = torch.arange(graph.m)
    return replace(graph, edge_split=split, edge_time=time)


def planted(graph: Graph, split: int) -> Graph:
    """The same graph with later edges: within a silo, across, and between two that were strangers so far."""
    assert graph.edge_attr is not None and graph.edge_y is not None and graph.edge_time is not None
    new = torch.tensor([[0, 1, 2, 3, 7, 22], [3, 5, 7, 20, 0, 1]])
    count = new.shape[1]
    later = graph.edge_time.max() + 1 + torch.arange(count)
    return replace(
        graph,
        edge_index=torch.cat((graph.edge_index, new), 1),
        edge_attr=torch.cat((graph.edge_attr, graph.edge_attr[:count] + 5.0)),
        edge_y=torch.cat((graph.edge_y, graph.edge_y[:count])),
        edge_time=torch.cat((graph.edge_time, later)),
        edge_split=torch.cat((graph.edge_split, torch.full((count,), split, dtype=torch.int8))),
    ).check()


def validated(result: Result) -> list[list[float | None]]:
    return [line["silo_valid"] for line in result.history if "valid" in line]


@pytest.mark.parametrize("training", BATCHES, ids=["full", "sampled"])
@pytest.mark.parametrize("method", METHODS)
def test_a_later_edge_changes_nothing_before_it(method: str, training: dict) -> None:
    graph = in_order()
    plain, more = (run_method(method, g, THREE, 3, "pna", **PAST, **training) for g in (graph, planted(graph, TEST)))
    torch.testing.assert_close(torch.tensor(losses(more)), torch.tensor(losses(plain)), rtol=1e-12, atol=0)
    assert validated(plain) == validated(more) != []


@pytest.mark.parametrize("model", ["pna", "multi-pna", "gin", "sage", "gat"])
def test_with_messages_along_all_edges_it_does(model: str) -> None:
    training = {"batch": 5, "fanout": (3,), "epochs": 4}
    graph = in_order()
    plain, more = (run_method("centralised", g, THREE, 3, model, **training) for g in (graph, planted(graph, TEST)))
    assert losses(plain) != losses(more)
    plain, more = (
        run_method("centralised", g, THREE, 3, model, **{**training, **PAST}) for g in (graph, planted(graph, TEST))
    )
    assert losses(plain) == losses(more)


def test_each_split_sees_what_came_before_it() -> None:
    graph = in_order()
    result = run_method("centralised", graph, THREE, 3, "gin", **PAST)
    for split, name in ((TRAIN, "train"), (VALID, "valid"), (TEST, "test")):
        batcher = result.training.stage.passes.across[name].batcher
        assert len(batcher.stack.incoming.edge) == int((graph.edge_split <= split).sum())
    learnt = run_method("centralised", planted(graph, TRAIN), THREE, 3, "gin", **PAST)
    assert losses(learnt) != losses(result)  # an edge of the past does change what is learnt


def test_exact_exchange_stays_exact() -> None:
    graph = in_order()
    for training in BATCHES:
        together = run_method("centralised", graph, THREE, 3, "pna", **PAST, **training)
        apart = run_method("sync-sgd+fwd-bwd-le", graph, THREE, 3, "pna", **PAST, **training)
        torch.testing.assert_close(torch.tensor(losses(apart)), torch.tensor(losses(together)), rtol=1e-10, atol=0)


def test_what_cannot_be() -> None:
    with pytest.raises(IsthmusError, match="labels and splits on edges"):
        run_method("local", small_graph(24, 120), THREE, 3, **PAST)
    with pytest.raises(IsthmusError, match="gcn reads degrees.*sage, sage-gcn, gin"):
        run_method("local", in_order(), THREE, 3, "gcn", **PAST)
    with pytest.raises(IsthmusError, match="all, past"):
        run_method("local", in_order(), THREE, 3, messages="future")
