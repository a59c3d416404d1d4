"""LLCG as its own paper has it: what it equals, what must differ, what it tells whom, what it refuses."""

from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.methods.catalogue import get
from isthmus.methods.sync.llcg import LLCG
from isthmus.testing.runs import resumed
from isthmus.train.result import Result
from tests.helpers.small import (
    assert_same,
    losses,
    numbers,
    open_method,
    owners,
    parameters,
    run_method,
    small_graph,
)

GRAPH, OWNER = small_graph(30, 140), owners(3)
SGD: dict[str, Any] = {"optimiser": "sgd"}


def llcg(sync: dict[str, object], model: str = "sage", **training: Any) -> Result:
    return run_method("llcg", GRAPH, OWNER, 3, model, {"sync": sync}, **training)


def ends(sync: LLCG, steps: int) -> list[int]:
    """The steps after which rounds end, in epochs of four steps."""
    return [step for step in range(1, steps + 1) if sync.round_over(step, -(-step // 4), step % 4 == 0)]


def flows(result: Result) -> dict[str, set[tuple[str, str, str]]]:
    """Of each purpose, who sent what to whom: silos are called silo."""
    table = result.training.wire.ledger.table().to_pydict()
    found: dict[str, set[tuple[str, str, str]]] = {}
    for sender, receiver, kind, purpose in zip(
        *(table[name] for name in ("sender", "receiver", "kind", "purpose")), strict=True
    ):
        found.setdefault(purpose, set()).add((sender.split("-")[0], receiver.split("-")[0], kind))
    return found


def test_the_catalogue_has_the_papers_parts() -> None:
    phase = get("llcg").phases[0]
    assert phase.sync == LLCG(local_steps=16, growth=1.1, corrections=1, weights="silos")
    assert not phase.schedule.ever and phase.batches == "local"


# ---- rounds


def test_rounds_grow_geometrically() -> None:
    assert ends(LLCG(local_steps=2, growth=1.5), 30) == [2, 5, 10, 17, 28]  # 2, 3, 4.5, 6.75 and 10.125 steps, up
    assert ends(LLCG(local_steps=100, growth=1.1), 400) == [100, 210, 331]  # 100 * 1.1 is 110 and not 111
    assert ends(LLCG(local_steps=3, growth=1.0), 12) == [3, 6, 9, 12]
    assert ends(LLCG(local_steps=1, growth=2.0), 40) == [1, 3, 7, 15, 31]


def test_the_server_steps_after_rounds_alone() -> None:
    spec = LLCG(corrections=3)
    assert [spec.server_steps(step, over) for step in (0, 15) for over in (False, True)] == [0, 3, 0, 3]


# ---- what it equals


@pytest.mark.parametrize("training", [{}, {"batch": 4, "fanout": (2,)}], ids=["full", "sampled"])
def test_without_corrections_it_is_fedavg_of_k_steps(training: dict[str, Any]) -> None:
    """Bit for bit, and byte for byte."""
    rounds = {"local_steps": 3, "weights": "silos"}
    plain = llcg({"name": "fedavg", **rounds}, epochs=5, **training)
    bare = llcg({**rounds, "growth": 1.0, "corrections": 0}, epochs=5, **training)
    assert losses(plain) == losses(bare) and plain.bytes == bare.bytes
    assert all(torch.equal(p, parameters(bare)[name]) for name, p in parameters(plain).items())
    own = run_method("fedavg", GRAPH, OWNER, 3, options={"sync": rounds}, epochs=5, **training)
    assert losses(own) == losses(bare)  # the exchange is for scores alone


def test_rounds_of_one_step_by_plain_gradients_are_the_form_of_every_step() -> None:
    """The mean of w_i - eta g_i is w - eta mean g_i; then both servers step from the same place, on the same nodes."""
    every = run_method("llcg-every-step", GRAPH, OWNER, 3, options={"sync": {"every": 1}}, epochs=6, **SGD)
    rounds = llcg({"local_steps": 1, "growth": 1.0}, epochs=6, **SGD)
    assert_same(every, rounds, sets=[0])
    for sync in ({"corrections": 2}, {"corrections": 0}, {"local_steps": 2}, {"lr": 0.01}, {"neighbours": 1}):
        other = llcg({"local_steps": 1, "growth": 1.0, **sync}, epochs=6, **SGD)
        assert (numbers(losses(other)) - numbers(losses(every))).abs().max() > 1e-6, sync


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("model", ["gcn", "sage", "pna"])
def test_corrections_on_all_nodes_are_steps_of_centralised_training(model: str, optimiser: str) -> None:
    """With the server's own optimiser, whose moments go on from one correction to the next, and its own rate."""
    together = run_method("centralised", GRAPH, OWNER, 3, model, epochs=2, lr=0.05, optimiser=optimiser)
    given = {"statistics": "agreed", "epochs": 0, "lr": 0.5, "optimiser": optimiser}
    training = llcg({"seeds": 1000, "corrections": 2, "lr": 0.05}, model, **given).training
    training.stage.syncs["classifier"].round_end()  # nobody has stepped yet: the mean is where all began
    for name, value in training.learner.classifier.sets.parameters.items():
        for silo in range(3):
            torch.testing.assert_close(value.data[silo], together.last[name][0], rtol=1e-10, atol=1e-12)


def test_a_run_resumed_inside_a_round_goes_on_bit_for_bit() -> None:
    """Rounds end after steps 2, 5 and 10: the server's moments, and how far silos are in a round, are kept."""
    sync = {"local_steps": 2, "growth": 1.5}
    whole, again = resumed(
        lambda: open_method("llcg", GRAPH, OWNER, 3, options={"sync": sync}, epochs=11), after=(1, 3, 5, 7)
    )
    for epoch, result in again.items():
        assert losses(result)[-(11 - epoch) :] == losses(whole)[epoch:], epoch
        for name, tensor in parameters(whole).items():
            assert torch.equal(parameters(result)[name], tensor), (epoch, name)


# ---- what the server does, and what it is told


def test_the_servers_step_moves_everybody_to_one_place() -> None:
    training = open_method("llcg", GRAPH, OWNER, 3, epochs=2)
    sync = training.stage.syncs["classifier"]
    sync.round_end()
    before = {name: p.data.clone() for name, p in training.learner.classifier.sets.parameters.items()}
    sync.step_end(7)  # other seeds
    sync.round_end()
    after = training.learner.classifier.sets.parameters
    assert any(not torch.equal(p.data, before[name]) for name, p in after.items())
    assert all(torch.equal(p.data[0], p.data[2]) for p in after.values())
    assert int(sync.state["step"]) == 2  # of the server's Adam


def test_the_ledger_says_what_corrections_take_and_give() -> None:
    result = llcg({"local_steps": 2, "growth": 1.0}, epochs=6)
    by_purpose = flows(result)
    assert by_purpose["round"] == {("silo", "server", "parameters"), ("server", "silo", "parameters")}
    up = {("silo", "server", kind) for kind in ("ids", "features", "edges", "labels")}
    assert up <= by_purpose["correction"] and ("server", "silo", "parameters") in by_purpose["correction"]
    assert {kind for sender, _, kind in by_purpose["correction"] if sender == "server"} == {"parameters"}
    assert "step" not in by_purpose  # nothing leaves at a local step
    table = result.training.wire.ledger.step_table().to_pydict()
    lines = zip(table["step"], table["purpose"], strict=True)
    assert {step for step, purpose in lines if purpose == "correction"} == {2, 4, 6}
    assert "correction" not in flows(llcg({"corrections": 0}, epochs=6))


def test_parameters_go_down_once_however_many_steps_the_server_takes() -> None:
    few, many = (llcg({"local_steps": 2, "corrections": count}, epochs=4) for count in (1, 3))
    assert few.bytes["parameters"] == many.bytes["parameters"] and "gradients" not in many.bytes
    assert few.bytes["features"] < many.bytes["features"]


# ---- what it refuses

BAD: list[tuple[dict[str, object], str]] = [
    ({"local_steps": 0}, "rounds of llcg are counted in steps"),
    ({"local_epochs": 2}, "both say when a round ends"),
    ({"growth": 0.9}, "sync.growth is 0.9; rounds grow by a factor of 1 or more"),
    ({"growth": float("nan")}, "sync.growth is nan"),
    ({"corrections": -1}, "sync.corrections is -1"),
    ({"lr": -0.1}, "sync.lr -0.1"),
    ({"seeds": -1}, "sync.seeds is -1"),
    ({"neighbours": 0}, "neighbours at least 1, or -1 for all"),
    ({"private": ("head",)}, "sync.private is head, but the server steps on the whole model"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(IsthmusError, match=message):
        LLCG(**options)


def test_what_the_server_cannot_compute_is_refused() -> None:
    for given, message in (
        ({"options": {"protect": {"sigma_parameters": 1.0}}}, "leave out protect.clip_parameters"),
        ({"options": {"exchange": {"name": "nothing"}, "schedule": {"silos": -1}}}, "sync=llcg needs an exchange"),
        ({"model_options": {"norm": "batch"}}, "use none and false"),
    ):
        with pytest.raises(IsthmusError, match=message):
            run_method("llcg", GRAPH, OWNER, 3, **given)
    with pytest.raises(IsthmusError, match="the server's step is on nodes|Labels lie on edges"):
        run_method("llcg", small_graph(30, 140, edge_task=True), OWNER, 3, "gin")
