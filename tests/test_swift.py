"""Aggregates through the server: what a step equals, and what the ledger says of it."""

import pytest
import torch
from torch import Tensor

from tests.small import assert_same, run_method, small_graph

BATCHES = [{}, {"batch": 4, "fanout": (2,), "epochs": 2}]
ids = ["full", "sampled"]
JOINT: dict[str, dict[str, object]] = {"sync": {"weights": ""}}


def owners(silos: int, nodes: int = 30) -> Tensor:
    return torch.randint(0, silos, (nodes,), generator=torch.Generator().manual_seed(silos))


@pytest.mark.parametrize("training", BATCHES, ids=ids)
@pytest.mark.parametrize("silos", [1, 2, 5])
@pytest.mark.parametrize("model", ["gcn", "sage", "sage-max", "gin", "pna"])
def test_a_step_of_all_silos_is_centralised(model: str, silos: int, training: dict) -> None:
    graph = small_graph(30, 140)
    name, _, aggregate = model.partition("-")
    options: dict[str, object] = {"norm": "batch", "options": {"aggregate": aggregate} if aggregate else {}}
    training = {**training, "optimiser": "sgd"}
    together = run_method("centralised", graph, owners(silos), silos, name, model_options=options, **training)
    swift = run_method(
        "fedgnn-g", graph, owners(silos), silos, name, JOINT, model_options=options, batches="joint", **training
    )
    assert_same(together, swift)
