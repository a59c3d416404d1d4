"""Aggregates through the server: what a step equals, and what the ledger says of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import TEST, TRAIN, UNUSED, VALID, Graph
from isthmus.graph.silo import Silo
from isthmus.launch.release_files import write_releases
from isthmus.methods.exchange.swift import REDRAWN, SOLVABLE
from isthmus.methods.schedule import Schedule, Shrinking
from isthmus.train.result import Result
from isthmus.wire.local import LocalWire
from tests.helpers.small import assert_same, losses, owners, run_method, run_parts, small_graph, without_edges

BATCHES = [{}, {"batch": 4, "fanout": (2,), "epochs": 2}]
ids = ["full", "sampled"]
JOINT: dict[str, dict[str, object]] = {"sync": {"weights": ""}}


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


def test_neighbours_drawn_once_are_those_of_centralised_training() -> None:
    graph, training = small_graph(30, 140), {"batch": 4, "fanout": (2,), "epochs": 2, "redraw": False}
    together = run_method("centralised", graph, owners(3), 3, **training)
    swift = run_method("fedgnn-g", graph, owners(3), 3, options=JOINT, batches="joint", **training)
    assert_same(together, swift)
    again = run_method("fedgnn-g", graph, owners(3), 3, options=JOINT, batches="joint", **{**training, "redraw": True})
    assert losses(again) != losses(swift)
    assert REDRAWN in again.training.stage.exchange.notes()
    assert REDRAWN not in swift.training.stage.exchange.notes()


def test_reports_say_when_aggregates_can_be_put_together() -> None:
    """A silo of 24 nodes beside one of six has more targets than neighbours elsewhere."""
    graph, uneven = small_graph(30, 140), (torch.arange(30) % 5 == 0).long()

    def notes(owner: Tensor, method: str = "fedgnn-g", **options: Any) -> str:
        options = {"fanout": (-1,), "batch": 8, "epochs": 1, **options}
        result = run_method(method, graph, owner, int(owner.max()) + 1, **options)
        return " ".join(result.training.stage.exchange.notes())

    assert f"silo-0: {SOLVABLE}" in notes(uneven) and SOLVABLE not in notes(owners(5))
    assert f"silo-0: {SOLVABLE}" in notes(uneven, fanout=(3,), redraw=False)
    assert REDRAWN in notes(uneven, fanout=(3, 2), redraw=False)
    scored_across = {"score": "trained"}  # with aggregates through the server
    assert REDRAWN not in notes(uneven, "llcg-every-step", fanout=(2,))
    assert REDRAWN not in notes(uneven, "fedsage", fanout=(2,), options=scored_across)
    for leaves in (1, 2):  # one target
        result = run_method("fedgnn-g", *star(leaves), 2, epochs=1)
        assert (SOLVABLE in " ".join(result.training.stage.exchange.notes())) == (leaves == 1)


def test_without_adjoints_logits_are_centralised_and_gradients_are_not() -> None:
    graph, constant = small_graph(30, 140), {**JOINT, "exchange": {"adjoint": False}}
    runs = {
        "centralised": run_method("centralised", graph, owners(3), 3, "gcn", epochs=1),
        "g": run_method("fedgnn-g", graph, owners(3), 3, "gcn", JOINT, batches="joint", epochs=1),
        "constant": run_method("fedgnn-g", graph, owners(3), 3, "gcn", constant, batches="joint", epochs=1),
    }
    first = {name: losses(result)[0] for name, result in runs.items()}
    assert first["g"] == pytest.approx(first["centralised"], rel=1e-12)
    assert first["constant"] == pytest.approx(first["centralised"], rel=1e-12)
    gradients = {
        name: result.training.learner.classifier.sets.parameters["enter.weight"].grad for name, result in runs.items()
    }
    assert torch.allclose(gradients["g"], gradients["centralised"], rtol=1e-10, atol=1e-14)
    assert (gradients["constant"] - gradients["centralised"]).abs().max() > 1e-3
    assert "adjoints" in runs["g"].bytes and "adjoints" not in runs["constant"].bytes


LOCAL = {"batch": 3, "fanout": (2,), "epochs": 3}


@pytest.mark.parametrize("training", [{}, LOCAL], ids=ids)
def test_every_step_by_all_silos_is_fedgnn_g(training: dict) -> None:
    graph = small_graph(30, 140)
    options: dict[str, dict[str, object]] = {"schedule": {"every": 1, "silos": 4}}
    swift = run_method("swift-fedgnn", graph, owners(4), 4, options=options, **training)
    assert_same(swift, run_method("fedgnn-g", graph, owners(4), 4, **training))


@pytest.mark.parametrize("model", ["sage", "gcn"])
@pytest.mark.parametrize("training", [{}, LOCAL], ids=ids)
def test_by_no_silo_is_training_on_local_neighbours(training: dict, model: str) -> None:
    graph = small_graph(30, 140)
    nobody = {"schedule": {"silos": 0}, "score": "own"}
    swift = run_method("swift-fedgnn", graph, owners(4), 4, model, nobody, **training)
    assert_same(swift, run_method("fedsage", graph, owners(4), 4, model, **training))
    plain = {"sync": {"weights": "silos"}}
    dropped = run_method("sync-sgd", graph, owners(4), 4, model, plain, batches="local", **training)
    assert_same(swift, dropped)
    assert swift.test.as_dict() == dropped.test.as_dict()
    assert not {"partials", "adjoints"} & swift.bytes.keys()
    assert losses(swift) != losses(run_method("fedgnn-g", graph, owners(4), 4, model, **training))


def test_a_silo_that_does_not_cross_computes_as_if_there_were_no_boundary() -> None:
    """One step, half of the silos across: the loss is made of both kinds of steps."""
    graph = small_graph(30, 140)
    each = [
        run_method("swift-fedgnn", graph, owners(4), 4, "gcn", {"schedule": {"silos": k}}, epochs=1, patience=0)
        for k in (0, 2, 4)
    ]
    none, some, every = (result.history[-1]["silo_loss"] for result in each)
    cross = each[1].training.stage.who_crosses(0)
    assert cross.sum() == 2
    for silo, across in enumerate(cross.tolist()):
        assert some[silo] == pytest.approx((every if across else none)[silo], rel=1e-12)
        assert none[silo] != pytest.approx(every[silo], rel=1e-6)


@pytest.mark.parametrize("training", [{"epochs": 1}, {**LOCAL, "epochs": 1}], ids=ids)
@pytest.mark.parametrize("method", ["swift-fedgnn", "sync-sgd+fwd-bwd-le"])
def test_fewer_silos_across_means_less_traffic(method: str, training: dict) -> None:
    """Also in a full batch only what the seeds of silos that cross depend on is asked for."""
    options = [{"schedule": {"silos": k}, "score": "own"} for k in (0, 1, 2, 4)]
    batches = {"batches": "joint"} if "le" in method else {}
    runs = [run_method(method, small_graph(60, 140), owners(4, 60), 4, options=o, **batches, **training)
            for o in options]  # fmt: skip
    sent = [run.bytes.get("partials", 0) + run.bytes.get("embeddings", 0) for run in runs]
    back = [run.bytes.get("adjoints", 0) for run in runs]
    assert sent == sorted(set(sent)) and back == sorted(set(back))
    assert sent[0] == back[0] == 0


def test_layerwise_exchange_follows_a_schedule() -> None:
    graph, training = small_graph(30, 140), {"batch": 4, "fanout": (2,), "epochs": 2}
    always = run_method("sync-sgd+fwd-bwd-le", graph, owners(3), 3, **training)
    rarely = run_method("sync-sgd+fwd-bwd-le", graph, owners(3), 3, options={"schedule": {"every": 3}}, **training)
    assert losses(rarely)[0] == losses(always)[0] and losses(rarely)[1] != losses(always)[1]
    assert rarely.bytes["adjoints"] < always.bytes["adjoints"]
    never = run_method("sync-sgd+fwd-bwd-le", graph, owners(3), 3, options={"schedule": {"silos": 0}}, **training)
    assert_same(never, run_method("sync-sgd", graph, owners(3), 3, **training))


def flows(result: Result) -> set[tuple[str, str, str]]:
    """Who sent what to whom in training, with all silos under one name."""
    table = result.training.wire.ledger.table().to_pydict()
    party = {"server": "server"}
    lines = zip(table["step"], table["sender"], table["receiver"], table["kind"], strict=True)
    return {(party.get(a, "silo"), party.get(b, "silo"), kind) for step, a, b, kind in lines if step > 0}


def test_rows_reach_a_silo_from_the_server_alone() -> None:
    result = run_method("fedgnn-g", small_graph(30, 140), owners(4), 4, batch=3, fanout=(2,))
    crossed = {(a, b) for a, b, kind in flows(result) if kind in ("partials", "adjoints", "embeddings")}
    assert crossed == {("silo", "server"), ("server", "silo")}
    direct = {kind for a, b, kind in flows(result) if (a, b) == ("silo", "silo")}
    assert direct == {"ids"}  # which of the edges that both know are asked for


def test_what_a_silo_receives_is_one_row_for_each_target() -> None:
    """Full batch, every layer: as many rows come down as targets have neighbours elsewhere."""
    graph, owner = small_graph(30, 140), owners(4)
    result = run_method("fedgnn-g", graph, owner, 4, epochs=1, evaluate_every=99)
    source, target = graph.edge_index
    crossing = owner[source] != owner[target]
    targets = len(target[crossing].unique())
    partials = len((target * 4 + owner[source])[crossing].unique())
    table = result.training.wire.ledger.table().to_pydict()
    rows = {
        (kind, up): sum(
            n
            for n, k, step, to in zip(table["rows"], table["kind"], table["step"], table["receiver"], strict=True)
            if k == kind and step == 1 and (to == "server") == up
        )
        for kind in ("partials", "adjoints")
        for up in (True, False)
    }
    passes = 2 * (1 + 3)  # layers; in training, validation, and at the end validation and test again
    assert rows["partials", True] == passes * partials and rows["partials", False] == passes * targets
    assert rows["adjoints", True] == 2 * targets and rows["adjoints", False] == 2 * partials


def star(leaves: int) -> tuple[Graph, Tensor]:
    """Node 0 in silo 0, with a neighbour there and ``leaves`` neighbours in silo 1."""
    graph = small_graph(leaves + 2, 4)
    ends = torch.stack([torch.arange(1, leaves + 2), torch.zeros(leaves + 1, dtype=torch.int64)])
    many = {"edge_attr": torch.zeros(leaves + 1, 2), "edge_time": torch.arange(leaves + 1)}
    split = torch.tensor([TRAIN, VALID, TEST, *[TRAIN] * (leaves - 1)], dtype=torch.int8)
    owner = torch.tensor([0, 0, *[1] * leaves])
    return replace(graph, edge_index=ends, split=split, **many), owner


def handed(result: Result) -> Tensor:
    """Aggregates that silos were handed, those of them that are of one neighbour, and those that came in training."""
    return result.training.stage.exchange.state["handed"].sum(0)


@pytest.mark.parametrize(("leaves", "fewest", "expected"), [(2, 1, [8, 0, 2]), (2, 2, [8, 0, 2]), (2, 3, [0, 0, 0])])
def test_aggregates_of_too_few_are_not_handed_out(leaves: int, fewest: int, expected: list[int]) -> None:
    graph, owner = star(leaves)
    result = run_method("fedgnn-g", graph, owner, 2, options={"exchange": {"fewest": fewest}}, epochs=1)
    assert handed(result).tolist() == expected
    closed = run_method("fedsage", graph, owner, 2, epochs=1)
    assert (losses(result) == losses(closed)) == (fewest > leaves)


def test_a_single_neighbour_is_seen_as_it_is_unless_suppressed() -> None:
    """What remains: the aggregate of one neighbour is its own row; such targets are counted."""
    graph, owner = star(1)
    seen: list[Tensor] = []

    class Spy(LocalWire):
        def merge(self, partials: Tensor, *rest: Any) -> Tensor:
            arrived = super().merge(partials, *rest)
            seen.append(torch.cat([partials, arrived]).detach())
            return arrived

    result = run_method("fedgnn-g", graph, owner, 2, epochs=1, wire=Spy(2))
    assert handed(result).tolist() == [8, 8, 2]  # two layers; in training, validation, and at the end both scores
    sent, arrived = seen[0]
    assert torch.equal(sent, arrived) and sent.abs().sum() > 0
    suppressed = run_method("fedgnn-g", graph, owner, 2, options={"exchange": {"fewest": 2}}, epochs=1)
    assert handed(suppressed).tolist() == [0, 0, 0]
    assert losses(suppressed) == losses(run_method("fedsage", graph, owner, 2, epochs=1))


def test_parallel_edges_do_not_make_two_neighbours() -> None:
    graph, owner = star(1)
    twice = replace(
        graph,
        edge_index=torch.tensor([[1, 2, 2], [0, 0, 0]]),
        edge_attr=torch.zeros(3, 2),
        edge_time=torch.arange(3),
    )
    assert handed(run_method("fedgnn-g", twice, owner, 2, epochs=1)).tolist() == [8, 8, 2]
    suppressed = run_method("fedgnn-g", twice, owner, 2, options={"exchange": {"fewest": 2}}, epochs=1)
    assert handed(suppressed).tolist() == [0, 0, 0]
    assert losses(suppressed) == losses(run_method("fedsage", twice, owner, 2, epochs=1))


def test_a_layer_at_which_no_row_left_is_written_down_too(tmp_path: Path) -> None:
    """2 (silo 1) -> 1 -> 0, the only seed: at the last layer nothing is merged."""
    graph = replace(
        small_graph(4, 4),
        edge_index=torch.tensor([[1, 2], [0, 1]]),
        edge_attr=torch.zeros(2, 2),
        edge_time=torch.arange(2),
        split=torch.tensor([TRAIN, UNUSED, VALID, TEST], dtype=torch.int8),
    )
    result = run_method("fedgnn-g", graph, torch.tensor([0, 0, 1, 1]), 2, batch=4, fanout=(-1,))
    write_releases(result.training, tmp_path)
    lines = pq.read_table(tmp_path / "releases.parquet").to_pylist()
    assert {(line["layer"], line["node"]) for line in lines if line["kind"] == "partials"} == {(0, str(graph.ids[2]))}


def some_kept(every: int) -> tuple[list[Silo], Tensor]:
    """Three silos, and which edges of the first are left when each ``every``-th cross edge is taken away."""
    whole = split_graph(small_graph(30, 140), owners(3), 3)
    keep = torch.ones(len(whole[0].crosses), dtype=torch.bool)
    keep[whole[0].crosses.nonzero().flatten()[::every]] = False
    return whole, keep


@pytest.mark.parametrize("every", [1, 2])
def test_both_ends_of_a_cross_edge_know_its_ports_whatever_one_side_leaves_out(every: int) -> None:
    whole, keep = some_kept(every)
    parts = [without_edges(whole[0], keep), *whole[1:]]
    training = run_parts("fedgnn-g", parts, "gin", model_options={"ports": 4}, epochs=1).training
    stack = training.stage.layout.stack
    cross = (~stack.owned[stack.ends].all(0) & ~training.federation.alone).nonzero().flatten()
    ports: dict[int, list[list[int]]] = {}
    for key, each in zip(stack.edge_keys[cross].tolist(), stack.ports[cross].tolist(), strict=True):
        ports.setdefault(key, []).append(each)
    assert ports and all(len(each) == 2 and each[0] == each[1] for each in ports.values())


@pytest.mark.parametrize("training", [{}, {**LOCAL, "fanout": (-1,)}], ids=ids)
def test_edges_that_one_side_does_not_list_are_in_no_aggregate(training: dict) -> None:
    """As if the other side did not list them either."""
    whole, keep = some_kept(every=2)
    one_sided = [without_edges(whole[0], keep), *whole[1:]]
    gone = whole[0].edge_keys[~keep]
    neither = [without_edges(silo, ~(silo.crosses & torch.isin(silo.edge_keys, gone))) for silo in whole]
    runs = [run_parts("fedgnn-g", parts, **training) for parts in (one_sided, neither, whole)]
    assert losses(runs[0]) == pytest.approx(losses(runs[1]), rel=1e-12)
    assert losses(runs[0]) != pytest.approx(losses(runs[2]), rel=1e-3)
    assert any("They take no part." in note for note in runs[0].training.federation.notes)


def test_both_legs_use_the_number_format_of_the_wire() -> None:
    sizes = {}
    for name in ("float32", "bfloat16"):
        options = {"protect": {"format": name}}
        sizes[name] = run_method("fedgnn-g", small_graph(30, 140), owners(3), 3, options=options, epochs=1).bytes
    for kind in ("partials", "adjoints"):
        assert sizes["float32"][kind] == 2 * sizes["bfloat16"][kind]


def test_reused_aggregates_are_constants_of_the_last_crossing() -> None:
    graph = small_graph(30, 140)
    once = run_method("fedgnn-pns", graph, owners(3), 3, options={"schedule": {"period": 9}}, epochs=2)
    every = run_method("fedgnn-pns", graph, owners(3), 3, options={"schedule": {"period": 1}}, epochs=2)
    assert_same(every, run_method("fedgnn-g", graph, owners(3), 3, epochs=2))
    rare = {"schedule": {"every": 9, "share": 1.0}}
    forgetful = run_method("swift-fedgnn", graph, owners(3), 3, options=rare, epochs=2)
    assert losses(once)[0] == losses(forgetful)[0] == losses(every)[0]
    assert len({losses(run)[1] for run in (once, forgetful, every)}) == 3


def everyone(silos: int) -> Tensor:
    return torch.ones(silos, dtype=torch.bool)


@pytest.mark.parametrize("schedule", [Schedule(every=2, silos=2), Schedule(share=0.5), Shrinking(period=4, silos=2)])
def test_silos_that_have_nothing_to_learn_from_are_not_drawn(schedule: Schedule) -> None:
    learn = torch.tensor([True, False, True, True, False])
    timetable = schedule.open(0, learn)
    crossing = [timetable.across(step) for step in range(40)]
    assert not any(bool((cross & ~learn).any()) for cross in crossing)
    assert {int(cross.sum()) for cross in crossing} <= {0, 1, 2} and any(cross.any() for cross in crossing)
    assert all(bool(Schedule(silos=count).open(0, learn).across(0).all()) for count in (3, 5))


def test_intervals_shrink_to_one() -> None:
    timetable = Shrinking(period=8, shrink=0.5).open(0, everyone(6))
    steps = [[t for t in range(40) if timetable.across(t)[silo]] for silo in range(6)]
    gaps = [[b - a for a, b in zip(each, each[1:], strict=False)] for each in steps]
    assert all(each[0] == 0 for each in steps) and len({tuple(each) for each in steps}) > 1
    assert all(4 <= each[0] <= 8 and each == sorted(each, reverse=True) and each[-1] == 1 for each in gaps)


def test_a_share_of_silos_is_rounded_up() -> None:
    counts = {
        (share, silos): int(Schedule(share=share).open(0, everyone(silos)).across(0).sum())
        for share, silos in ((0.5, 5), (0.28, 25), (0.56, 25), (1.0, 3), (0.01, 3))
    }
    assert list(counts.values()) == [3, 7, 14, 3, 1]


def test_who_crosses_is_drawn_evenly() -> None:
    timetable = Schedule(every=3, silos=2).open(7, everyone(5))
    drawn = torch.stack([timetable.across(t) for t in range(3000)])
    assert (drawn.sum(1)[::3] == 2).all() and not drawn[1::3].any() and not drawn[2::3].any()
    assert ((drawn.sum(0) - 400).abs() < 60).all()


@pytest.mark.parametrize("model", ["gcn", "sage", "pna"])
def test_a_correction_with_all_neighbours_is_a_centralised_step(model: str) -> None:
    graph, owner = small_graph(30, 140), owners(3)
    sgd = {"optimiser": "sgd", "weight_decay": 0.0}
    together = run_method("centralised", graph, owner, 3, model, epochs=1, **sgd)
    options = {"sync": {"seeds": 1000, "every": 1}}
    training = run_method(
        "llcg-every-step", graph, owner, 3, model, options, statistics="agreed", epochs=0, **sgd
    ).training
    training.stage.syncs["classifier"].step_end(0)  # as after the first step
    for name, value in training.learner.classifier.sets.parameters.items():
        torch.testing.assert_close(value.data, together.last[name], rtol=1e-10, atol=1e-12)


def test_zeros_of_sparse_features_do_not_travel() -> None:
    graph = small_graph(30, 140)
    words = replace(graph, x=graph.x * (graph.x > 1.2))
    runs = {
        name: run_method("llcg-every-step", each, owners(3), 3, batch=4, fanout=(2,), epochs=2)
        for name, each in (("dense", words), ("sparse", replace(words, x=SparseRows.from_dense(words.x))))
    }
    assert losses(runs["sparse"]) == pytest.approx(losses(runs["dense"]), rel=1e-12)
    assert runs["sparse"].bytes["features"] < runs["dense"].bytes["features"] / 2


def test_a_correction_sends_features_to_the_server_and_the_ledger_says_so() -> None:
    result = run_method("llcg-every-step", small_graph(30, 140), owners(3), 3, batch=4, fanout=(2,), epochs=1)
    assert ("silo", "server", "features") in flows(result) and ("silo", "server", "labels") in flows(result)
    assert not any(b == "silo" for a, b, kind in flows(result) if kind in ("features", "labels", "edges"))


def test_a_correction_is_of_all_silos_nodes_whoever_crosses() -> None:
    graph = small_graph(30, 140)
    for silos in (0, 1):
        result = run_method("llcg-every-step", graph, owners(3), 3, options={"schedule": {"silos": silos}}, epochs=1)
        table = result.training.wire.ledger.table().to_pydict()
        lines = zip(table["sender"], table["kind"], table["purpose"], strict=True)
        told = {sender for sender, kind, purpose in lines if (kind, purpose) == ("labels", "correction")}
        assert told == {"silo-0", "silo-1", "silo-2"}


def test_aggregates_of_llcg_are_for_scores_alone() -> None:
    """So that whether their derivatives could return makes no difference."""
    plain, constant = (
        run_method("llcg-every-step", small_graph(30, 140), owners(3), 3, options={"exchange": {"adjoint": adjoint}})
        for adjoint in (True, False)
    )
    assert_same(plain, constant)
    assert plain.bytes == constant.bytes and "adjoints" not in plain.bytes and "partials" in plain.bytes


def test_trips_of_a_step_are_those_that_follow_each_other() -> None:
    """Two layers, a full batch: gradients up and down; then what each kind of crossing adds."""
    graph = small_graph(30, 140)

    def legs(method: str, options: dict[str, dict[str, object]]) -> list[tuple[str, int]]:
        result = run_method(method, graph, owners(3), 3, options=options, epochs=2)
        table = result.training.wire.ledger.leg_table().to_pydict()
        lines = zip(table["step"], table["purpose"], table["legs"], strict=True)
        kinds = ("step", "crossing", "correction")
        return [(purpose, count) for step, purpose, count in lines if step > 0 and purpose in kinds]

    across = [("crossing", 2 + 2 * (2 + 2)), ("step", 2)]  # at each layer up and down, forwards and backwards
    assert legs("fedgnn-g", {"schedule": {"every": 2}}) == across
    corrected = [("step", 2), ("correction", 3 + 1 + 1), ("step", 2)]  # asks at three hops, all data at once, gradient
    assert legs("llcg-every-step", {"sync": {"every": 2}}) == corrected


BAD: list[tuple[dict[str, object], str]] = [
    ({"schedule": {"every": 0}}, "schedule.every is 0"),
    ({"schedule": {"silos": -2}}, "schedule.silos is -2"),
    ({"schedule": {"silos": 9}}, "there are 3 silos"),
    ({"schedule": {"share": 1.5}}, r"schedule.share is 1.5"),
    ({"score": "nobody"}, "across, everywhere, global, own, trained"),
    ({"schedule": {"score": "own"}}, "no option schedule.score"),
    ({"exchange": {"fewest": 0}}, "exchange.fewest is 0"),
    ({"sync": {"weights": "wealth"}}, "nodes, seeds, silos"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(IsthmusError, match=message):
        run_method("swift-fedgnn", small_graph(30, 140), owners(3), 3, options=options)


def test_what_cannot_be_merged_or_scheduled_is_refused() -> None:
    graph, edges = small_graph(30, 140), small_graph(30, 140, edge_task=True)
    with pytest.raises(IsthmusError, match="softmax weight depends on every neighbour"):
        run_method("swift-fedgnn", graph, owners(3), 3, "gat")
    with pytest.raises(IsthmusError, match="directed model has two aggregates"):
        run_method("fedgnn-g", graph, owners(3), 3, "multi-pna", batch=4)
    with pytest.raises(IsthmusError, match="Labels lie on edges, whose ends meet as rows"):
        run_method("fedgnn-g", edges, owners(3), 3, "gin")
    with pytest.raises(IsthmusError, match="nothing to schedule"):
        run_method("ce-fedgnn", graph, owners(3), 3, options={"schedule": {"every": 2}})
    with pytest.raises(IsthmusError, match="would be its raw features; give the model an embedding"):
        run_method("swift-fedgnn", graph, owners(3), 3, model_options={"embed": False})
    with pytest.raises(IsthmusError, match="use none and false"):
        run_method("llcg-every-step", graph, owners(3), 3, model_options={"norm": "batch"})
    with pytest.raises(IsthmusError, match="use train.statistics=agreed"):
        run_method("llcg-every-step", graph, owners(3), 3, "pna")
    with pytest.raises(IsthmusError, match="leave out protect.clip_gradients"):
        run_method("llcg-every-step", graph, owners(3), 3, options={"protect": {"clip_gradients": 1.0}})
    with pytest.raises(IsthmusError, match="has no option exchange.seeds"):
        run_method("llcg-every-step", graph, owners(3), 3, options={"exchange": {"seeds": 3}})
    with pytest.raises(IsthmusError, match="needs train.batches=local"):
        run_method("fedgnn-g", graph, owners(3), 3, batches="joint", batch=4)
