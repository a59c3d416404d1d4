"""How parameters are scored is a question of its own: along own edges, across the boundary, or on the merged graph."""

from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TEST, TRAIN, VALID
from isthmus.methods import catalogue
from isthmus.train.result import Result
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import losses, numbers, run_method, run_parts, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3
METHODS = [  # of silos: where nodes are devices, silos may not score along their edges
    name
    for name in catalogue.names()
    if name not in ("centralised", "pretrained-fedavg") and catalogue.get(name).level == "silo"
]
COMMON = [  # one model for all silos, who know of the edges between them
    name for name in METHODS if not catalogue.get(name).last.sync.personal and catalogue.get(name).cross == "known"
]


def scored(name: str, how: str, **options: Any) -> Result:
    model = "gcn" if name == "fedgcn" else "mlp" if name == "local-mlp" else "sage"
    return run_method(name, GRAPH, THREE, 3, model, {"score": how}, epochs=2, **options)


def logits(result: Result) -> torch.Tensor:
    return result.training.stage.scorer.logits(TEST)[0]


@pytest.mark.parametrize("name", METHODS)
def test_scores_do_not_change_what_is_trained(name: str) -> None:
    """Every method can be scored in every way; its losses stay what they are."""
    as_trained = losses(scored(name, "trained"))
    for how in ("own", "across", "global", "everywhere"):
        assert losses(scored(name, how)) == as_trained, how


@pytest.mark.parametrize("name", COMMON)
def test_across_the_boundary_is_on_the_merged_graph(name: str) -> None:
    """Fresh rows by their owners give each silo the logits of the whole graph, where all hold one model."""
    across, whole = logits(scored(name, "across")), logits(scored(name, "global"))
    torch.testing.assert_close(across, whole, rtol=1e-10, atol=1e-12)
    own = logits(scored(name, "own"))
    assert float((own - whole).abs().max()) > 1e-3  # an approximation that shows


def test_fedavg_scored_across_is_its_own_parameters_with_rows_from_beyond() -> None:
    """Parameters are those of FedAvg scored on own edges, as long as no validation selects others."""
    own, across = scored("fedavg", "own"), scored("fedavg", "across")
    for name, tensor in own.last.items():
        assert torch.equal(tensor, across.last[name]), name
    assert "embeddings" not in own.bytes and across.bytes["embeddings"] > 0


def test_what_scoring_sends_is_in_the_ledger_under_its_purpose() -> None:
    table = scored("fedavg", "across").training.wire.ledger.table().to_pylist()
    assert {line["purpose"] for line in table if line["kind"] == "embeddings"} == {"validation", "end", "test, across"}


def test_own_scores_of_an_exact_method_are_those_of_edges_inside() -> None:
    """The rows of other silos are not read: spoiling them changes nothing."""
    exact = scored("sync-sgd+fwd-bwd-le", "own")
    assert {
        line["purpose"] for line in exact.training.wire.ledger.table().to_pylist() if line["kind"] == "embeddings"
    } == {"step"}


def test_labelled_edges_that_leave_a_silo_are_counted_where_own_edges_are_scored() -> None:
    graph = small_graph(30, 140, edge_task=True)
    options = {"score": "own", "exchange": {"cross": "target"}}
    result = run_method("ce-fedgnn", graph, THREE, 3, "pna", options, epochs=1)
    crossing = (THREE[graph.edge_index[0]] != THREE[graph.edge_index[1]]) & (graph.edge_split == TEST)
    every = int((graph.edge_split == TEST).sum())
    [note] = [note for note in result.training.federation.notes if "test edges" in note]
    assert f"{every - int(crossing.sum())} of {every} labelled test edges" in note


@pytest.mark.parametrize(("name", "how"), [("fedavg", "trained"), ("local", "own"), ("fedavg", "across")])
def test_methods_that_drop_cross_edges_count_the_labels_they_drop(name: str, how: str) -> None:
    graph = small_graph(30, 140, edge_task=True)
    notes = run_method(name, graph, THREE, 3, "pna", {"score": how}, epochs=1).training.federation.notes
    inner = THREE[graph.edge_index[0]] == THREE[graph.edge_index[1]]
    for split, word in ((TRAIN, "train"), (VALID, "valid"), (TEST, "test")):
        every, kept = int((graph.edge_split == split).sum()), int((inner & (graph.edge_split == split)).sum())
        told = [note for note in notes if f"{kept} of {every} labelled {word} edges" in note]
        assert len(told) == (how != "across" or split == TRAIN)
    exact = run_method("sync-sgd+fwd-bwd-le", graph, THREE, 3, "pna", epochs=1).training.federation.notes
    assert not any("labelled" in note for note in exact)


def test_models_of_their_own_are_scored_on_the_merged_graph_one_by_one() -> None:
    """Silo i's seeds by silo i's model: as if each were the only one."""
    result = scored("local", "global")
    silos = split_graph(GRAPH, THREE, 3)
    each, y, index = result.training.stage.scorer.logits(TEST)
    assert len(each) == sum(int((silo.split == TEST).sum()) for silo in silos)
    live = result.training.learner.classifier.sets.everything()
    for name in live:
        live[name].copy_(live[name][1:2].clone())  # everybody gets silo 1's model
    again, _, _ = result.training.stage.scorer.logits(TEST)
    ptr = result.training.stage.scorer.pool(TEST).ptr
    assert torch.equal(again[ptr[1] : ptr[2]], each[ptr[1] : ptr[2]])
    assert not torch.equal(again[: ptr[1]], each[: ptr[1]])


def test_everywhere_scores_the_model_of_every_silo_on_the_nodes_of_all() -> None:
    """A silo's score is its own model's on all test nodes; given to all, that model has this score on the graph."""
    result = scored("local", "everywhere")
    whole = int((GRAPH.split == TEST).sum())
    assert result.test.counts.tolist() == [whole] * 3
    assert float(result.test.overall[0]) == pytest.approx(float(result.test.silos[:, 0].mean()))
    each, _, index = result.training.stage.scorer.logits(TEST)
    assert len(set(index[:whole].tolist())) == whole and torch.equal(index[:whole], index[whole : 2 * whole])
    live = result.training.learner.classifier.sets.everything()
    for name in live:
        live[name].copy_(live[name][1:2].clone())  # everybody gets silo 1's model
    again, _, _ = result.training.stage.scorer.logits(TEST)
    assert torch.equal(again, each[whole : 2 * whole].repeat(3, 1))
    assert not torch.equal(each[:whole], each[whole : 2 * whole])


def test_one_model_for_all_has_one_score_on_the_merged_graph() -> None:
    """Where silos share a model, each of them has the score that all nodes together have."""
    everywhere, whole = scored("fedavg", "everywhere"), scored("fedavg", "global")
    assert torch.equal(everywhere.test.silos, everywhere.test.silos[:1].expand(3, -1))
    assert float(everywhere.test.overall[0]) == pytest.approx(float(whole.test.overall[0]), rel=1e-12)


def across_on(wire: Wire) -> list[dict[str, Any]]:
    return [scored(name, "across", wire=wire).test.as_dict() for name in ("fedavg", "ce-fedgnn", "local")]


def on_host(wire: Wire) -> tuple[list[dict[str, Any]], str]:
    """Scores across the boundary, and why the merged graph is refused."""
    with pytest.raises(IsthmusError) as error:
        scored("fedavg", "global", wire=wire)
    return across_on(wire), str(error.value)


@pytest.mark.hosts
def test_hosts_score_across_as_one_process_does_and_refuse_the_merged_graph() -> None:
    expected = across_on(LocalWire(3))
    for found, refusal in on_hosts(3, on_wire, 3, on_host):
        assert "use score=across" in refusal
        for mine, theirs in zip(found, expected, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-11, nan_ok=True)


def test_sampled_scores_across_are_those_of_the_merged_graph() -> None:
    """Samples are drawn together, by public ids, so that both see one sample."""
    parts = split_graph(GRAPH, THREE, 3)
    options = {"batch": 4, "fanout": (2,), "epochs": 1}
    across, whole = (run_parts("fedavg", parts, options={"score": how}, **options) for how in ("across", "global"))
    torch.testing.assert_close(logits(across), logits(whole), rtol=1e-10, atol=1e-12)
    assert numbers(losses(across)).isfinite().all()


@pytest.mark.parametrize("how", ["own", "across", "global", "everywhere", "trained"])
def test_scores_with_all_neighbours_are_those_of_full_batches(how: str) -> None:
    """Parameters that were trained on samples, scored as a run without samples scores them."""
    sampled = scored("fedavg", how, batch=4, fanout=(1,), scoring="all")
    full, drawn = scored("fedavg", how), scored("fedavg", how, batch=4, fanout=(1,))
    for result in (full, drawn):
        for name, tensor in result.training.learner.classifier.sets.everything().items():
            tensor.copy_(sampled.training.learner.classifier.sets.everything()[name])
    torch.testing.assert_close(logits(sampled), logits(full), rtol=1e-10, atol=1e-12)
    assert float((logits(sampled) - logits(drawn)).abs().max()) > 1e-3  # drawn neighbours are an approximation


def test_training_does_not_know_how_many_neighbours_scores_read() -> None:
    for name in ("fedavg", "sync-sgd+fwd-bwd-le", "feddep"):
        options = {"batch": 4, "fanout": (2,)}
        drawn, every = (scored(name, "own", scoring=scoring, **options) for scoring in ("drawn", "all"))
        assert losses(drawn) == losses(every)


def test_rows_that_cross_for_drawn_neighbours_cannot_serve_all_of_them() -> None:
    with pytest.raises(IsthmusError, match="use score=own or score=across"):
        scored("sync-sgd+fwd-bwd-le", "trained", batch=4, fanout=(2,), scoring="all")
    assert torch.isfinite(logits(scored("sync-sgd+fwd-bwd-le", "across", batch=4, fanout=(2,), scoring="all"))).all()
