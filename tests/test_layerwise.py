"""Layer-wise exchange: federated training that equals centralised training."""

import pytest
import torch

from tests.small import assert_same, losses, run_method, small_graph

BATCHES = [{}, {"batch": 4, "fanout": (2,), "epochs": 2}]
ids = ["full", "sampled"]


def owners(silos: int, nodes: int = 30) -> torch.Tensor:
    return torch.randint(0, silos, (nodes,), generator=torch.Generator().manual_seed(silos))


@pytest.mark.parametrize("training", BATCHES, ids=ids)
@pytest.mark.parametrize("silos", [2, 5, 15])
@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat", "pna"])
def test_exchange_with_adjoints_is_centralised_training(model: str, silos: int, training: dict) -> None:
    graph = small_graph(30, 140)
    options = {"norm": "batch"}
    if (
        model == "gin"
    ):  # a hidden unit that is active on a whole small batch has a true gradient of 0, which Adam blows up
        training = {**training, "optimiser": "sgd"}
    together = run_method("centralised", graph, owners(silos), silos, model, model_options=options, **training)
    apart = run_method("sync-sgd+fwd-bwd-le", graph, owners(silos), silos, model, model_options=options, **training)
    assert_same(together, apart)


@pytest.mark.parametrize("silos", [2, 5])
def test_multi_pna_too(silos: int) -> None:
    graph = small_graph(30, 140)
    training = {"batch": 4, "fanout": (3,), "epochs": 2}
    together = run_method("centralised", graph, owners(silos), silos, "multi-pna", **training)
    apart = run_method("sync-sgd+fwd-bwd-le", graph, owners(silos), silos, "multi-pna", **training)
    assert_same(together, apart)
    assert (
        abs(
            losses(together)[0]
            - losses(run_method("sync-sgd", graph, owners(silos), silos, "multi-pna", **training))[0]
        )
        > 1e-6
    )


@pytest.mark.parametrize("training", BATCHES, ids=ids)
def test_edges_too(training: dict) -> None:
    graph = small_graph(30, 140, edge_task=True)
    together = run_method("centralised", graph, owners(3), 3, "gin", **training)
    assert_same(together, run_method("sync-sgd+fwd-bwd-le", graph, owners(3), 3, "gin", **training))
