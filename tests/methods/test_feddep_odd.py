"""FedDEP on federations that lack something: labels, edges, nodes, partners; each has a result, and says what it is."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TRAIN, Graph
from isthmus.graph.silo import Silo
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.exchange.prototypes import FAR, OWN
from isthmus.testing.runs import small_silos
from isthmus.train.loop import step, train
from isthmus.train.training import Training
from tests.helpers.small import losses, open_of, small_graph

GRAPH, THREE = small_graph(60, 300), torch.arange(60) % 3
HOW = pytest.mark.parametrize("how", [{}, {"batch": 6, "fanout": (2,)}], ids=["full", "sampled"])


def trained(parts: list[Silo], options: dict[str, Any] | None = None, **training: Any) -> Training:
    """A short run of FedDEP, whose losses and scores are finite."""
    method = compose(catalogue.get("feddep"), {"phase": {"encode": {"epochs": 1}}, **(options or {})})
    run = open_of(method, parts, "sage-gcn", **{"epochs": 3, **training})
    result = train(run)
    assert all(map(torch.isfinite, map(torch.tensor, losses(result)))) and bool(torch.isfinite(result.test.overall[0]))
    return run


def said(run: Training, words: str) -> bool:
    return any(words in note for note in run.federation.notes)


def without_edges(graph: Graph) -> Graph:
    none = {name: getattr(graph, name)[:0] for name in ("edge_attr", "edge_time")}
    return replace(graph, edge_index=graph.edge_index[:, :0], **none)


@HOW
def test_a_silo_without_training_labels_shares_what_it_has_and_the_run_says_so(how: dict[str, Any]) -> None:
    """Its encoder, generator and classifier take no step of their own, and it counts for nothing in the mean."""
    split = torch.where((THREE == 2) & (GRAPH.split == TRAIN), -1, GRAPH.split).to(torch.int8)
    run = trained(split_graph(replace(GRAPH, split=split), THREE, 3), **how)
    assert said(run, "silo-2 has no labelled train nodes")
    assert said(run, "Prototypes of silo-2 are those of an encoder that was never trained")
    encoder = run.learner.models["encoder"].sets.parameters
    fresh = open_of(run.method, split_graph(GRAPH, THREE, 3), "sage-gcn").learner.models["encoder"].sets.parameters
    assert all(torch.equal(p[2], fresh[name][2]) for name, p in encoder.items())
    assert not all(torch.equal(p[1], fresh[name][1]) for name, p in encoder.items())
    figures = run.stage.objective.figures()
    assert figures["prototypes"][2] > 0 and figures["distance_own"].isnan().tolist() == [False, False, True]


def test_features_as_prototypes_need_no_labels() -> None:
    split = torch.where((THREE == 2) & (GRAPH.split == TRAIN), -1, GRAPH.split).to(torch.int8)
    run = trained(split_graph(replace(GRAPH, split=split), THREE, 3), {"models": {"encoder": {"depth": 0}}})
    assert not said(run, "never trained")


@HOW
def test_without_edges_nothing_is_hidden_and_nothing_generated(how: dict[str, Any]) -> None:
    run = trained(split_graph(without_edges(GRAPH), THREE, 3), **how)
    figures = run.stage.objective.figures()
    assert said(run, "No visible node has a hidden neighbour (objective.hide=0.5) in silo-0 (20 nodes), silo-1")
    assert figures["hidden_neighbours"].tolist() == [0, 0, 0] and bool(figures["distance_own"].isnan().all())
    assert run.stage.exchange.figures()["rows_a_node"].tolist() == [0, 0, 0]
    assert "Nothing was generated for nodes of silo-0, silo-1, silo-2" in " ".join(run.stage.exchange.notes())


def test_weights_that_made_no_row_get_a_gradient_of_nought() -> None:
    """Not none at all: then a silo's optimiser would move them if another silo of its host made rows, and else not."""
    run = open_of(catalogue.get("feddep"), split_graph(without_edges(GRAPH), THREE, 3), "sage-gcn", epochs=60)
    run.go_on(1)
    step(run.stage, run.progress, next(iter(run.stage.epoch_seeds(run.progress))))
    for name, p in run.learner.models["generator"].sets.parameters.items():
        assert p.grad is not None and (bool(p.grad.any()) != name.startswith(("first", "second"))), name


def test_one_silo_has_prototypes_of_its_own_alone() -> None:
    run = trained(small_silos(1, 30))
    state = run.stage.objective.state
    assert len(state[OWN]) > 0 and len(state[FAR]) == 0
    assert "prototypes" not in run.wire.ledger.by_kind()
    assert bool(run.stage.objective.figures()["distance_others"].isnan().all())


def test_a_hundred_silos_with_fewer_nodes_than_a_group_tell_nothing() -> None:
    """Three nodes each: nobody may tell a mean, in one sentence for all of them."""
    run = trained(small_silos(100, 300))
    assert "prototypes" not in run.wire.ledger.by_kind() and len(run.stage.objective.state[OWN]) == 0
    [note] = [note for note in run.federation.notes if "fewer than 10 prototypes" in note]
    assert "silo-0 has 0 of 3 nodes" in note and len(note) < 600
    [note] = [note for note in run.federation.notes if "No visible node has a hidden neighbour" in note]
    assert "(3 nodes)" in note and " others" in note and len(note) < 400
    run.learner.models["generator"].module.number.bias.data.fill_(-9.0)
    run.stage.scorer.logits(1)
    [note] = run.stage.exchange.notes()
    assert "Nothing was generated for nodes of silo-0" in note and len(note) < 400


def test_silos_with_fewer_nodes_than_clusters_have_as_many_prototypes_as_can_be() -> None:
    """Seven nodes: with groups of one as many, with groups of five one."""
    parts = split_graph(small_graph(21, 90), torch.arange(21) % 3, 3)
    for smallest, expected in ((1, [7, 7, 7]), (5, [1, 1, 1])):
        run = trained(parts, {"exchange": {"clusters": 10, "smallest": smallest}})
        assert run.stage.objective.figures()["prototypes"].tolist() == expected
        assert said(run, "silo-0 has " + str(expected[0]) + " of 7 nodes")


def test_no_training_labels_at_all_are_refused() -> None:
    nobody = torch.where(GRAPH.split == TRAIN, -1, GRAPH.split).to(torch.int8)
    with pytest.raises(IsthmusError, match="train"):
        trained(split_graph(replace(GRAPH, split=nobody), THREE, 3))
