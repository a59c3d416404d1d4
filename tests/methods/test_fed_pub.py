"""FED-PUB: what it equals at both ends, its penalties and mixtures by slow formulas, and what never leaves a silo."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import SERVER, Kind
from isthmus.core.parcel import Parcel
from isthmus.engine.learner import CLASSIFIER
from isthmus.engine.masked import MaskedClassifier
from isthmus.graph.graph import Schema
from isthmus.methods import catalogue
from isthmus.methods.method import Method
from isthmus.methods.objective.base import Objective
from isthmus.methods.objective.fed_pub import SparseMasks
from isthmus.methods.objective.fedprox import Proximal
from isthmus.methods.phase import one_phase
from isthmus.methods.sync import fed_pub_graph
from isthmus.methods.sync.base import Sync
from isthmus.methods.sync.fed_pub import LiveSimilarModels, SimilarModels, mixing_weights
from isthmus.methods.sync.fed_pub_graph import random_graph
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.methods.sync.sync_sgd import SyncSGD
from isthmus.nn.masks import is_mask
from isthmus.protect.gaussian import Gaussian
from isthmus.testing.runs import losses, method_of, open_of, resumed, small_silos, walk
from isthmus.train.loop import begin_round, end_round, train
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.wire.policy import Policy
from tests.helpers.small import assert_same, numbers, parameters

SETTINGS = ({}, {"batch": 3, "fanout": (2,)})
SMALL: dict[str, Any] = {"blocks": 2, "nodes": 7}


@dataclass(frozen=True)
class Frozen(MaskedClassifier):
    """Masks that do not learn."""

    def build(self, *given: Any) -> nn.Module:
        module = super().build(*given)
        for name, p in module.named_parameters():
            p.requires_grad_(not is_mask(name))
        return module


def fed_pub(masks: MaskedClassifier | None = None, objective: SparseMasks | None = None, **sync: Any) -> Method:
    """The catalogue's method with a small random graph, and options."""
    parts = one_phase(sync=SimilarModels(**{**SMALL, **sync}), objective=objective or SparseMasks())
    return replace(catalogue.get("fed-pub"), phases=parts, models={CLASSIFIER: masks or MaskedClassifier()})


def run(method: Method, **options: Any) -> Result:
    return train(open_of(method, small_silos(), "gcn", epochs=4, **options))


def same_weights(a: Result, b: Result) -> None:
    """Equal losses, and equal parameters of every silo but for masks."""
    torch.testing.assert_close(numbers(losses(a)), numbers(losses(b)), rtol=1e-10, atol=0)
    ours, theirs = parameters(a), parameters(b)
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-8, atol=1e-10)


# ---- both ends


@pytest.mark.parametrize("given", SETTINGS)
@pytest.mark.parametrize("weights", ["silos", "nodes"])
def test_with_tau_0_and_without_masks_it_is_fedavg(given: dict[str, Any], weights: str) -> None:
    ours = run(method_of(sync=SimilarModels(tau=0.0, weights=weights, **SMALL)), **given)
    theirs = run(method_of(sync=FedAvg(weights=weights)), **given)
    assert_same(ours, theirs, sets=(0, 1, 2))


def test_with_tau_0_and_masks_that_stay_at_1_it_is_fedavg() -> None:
    off = SparseMasks(sparsity=0.0, proximity=0.0)
    same_weights(run(fed_pub(Frozen(), off, tau=0.0)), run(method_of(sync=FedAvg(weights="silos"))))


@pytest.mark.parametrize("given", SETTINGS)
def test_with_a_large_tau_each_silo_is_alone(given: dict[str, Any]) -> None:
    ours = run(method_of(sync=SimilarModels(tau=1e12, **SMALL)), evaluate_every=9, **given)
    theirs = run(method_of(sync=Sync()), evaluate_every=9, **given)
    torch.testing.assert_close(numbers(losses(ours)), numbers(losses(theirs)), rtol=1e-10, atol=0)
    for name, value in ours.last.items():
        torch.testing.assert_close(value, theirs.last[name], rtol=1e-10, atol=1e-12)


def test_in_between_it_is_neither_and_silos_differ() -> None:
    ours, mean = run(fed_pub(tau=3.0)), run(fed_pub(tau=0.0))
    assert losses(ours) != losses(mean)
    head = ours.last["head.weight"]
    assert not torch.equal(head[0], head[1]) and torch.equal(mean.last["head.weight"][0], mean.last["head.weight"][1])
    assert not torch.equal(mean.last["head.mask_weight"][0], mean.last["head.mask_weight"][1])


# ---- the server's mixture


def test_models_that_are_alike_count_alike() -> None:
    alike = torch.tensor([[1.0, 2.0, -3.0]], dtype=torch.float64).repeat(4, 1)
    torch.testing.assert_close(mixing_weights(alike, torch.full((4,), 0.25), 50.0), torch.full((4, 4), 0.25).double())
    training = open_of(fed_pub(), small_silos(), "gcn")
    before = training.learner.classifier.sets.flat(["head.weight", "layers.0.lin.weight"])
    end_round(training.stage)  # before any step all silos hold the same
    after = training.learner.classifier.sets.flat(["head.weight", "layers.0.lin.weight"])
    torch.testing.assert_close(after, before, rtol=1e-14, atol=1e-14)


def test_silos_without_training_nodes_are_mixed_for_but_not_in() -> None:
    weights = mixing_weights(torch.eye(3, dtype=torch.float64), torch.tensor([0.5, 0.0, 0.5]), 3.0)
    assert weights[:, 1].tolist() == [0, 0, 0] and weights[1].tolist() == [0.5, 0, 0.5]
    assert float(weights[0, 0]) == pytest.approx(math.exp(3) / (math.exp(3) + 1))


def by_hand(training: Training, tau: float) -> list[Tensor]:
    """What each silo gets, from dense matrices and one number after the other."""
    spec, site = training.stage.phase.sync, training.stage.site
    assert isinstance(spec, SimilarModels)
    graph = random_graph(site.schema, spec.blocks, spec.nodes, spec.density, site.seed)
    n, live = graph.n, training.learner.everything()
    adjacency = np.eye(n)
    for source, target in graph.edge_index.T.tolist():
        adjacency[target, source] += 1
    root = np.diag(1 / np.sqrt(adjacency.sum(1)))
    smooth = root @ adjacency @ root
    said = []
    for i in range(3):
        p = {name: value[i].numpy() for name, value in live.items()}
        h = np.asarray(graph.x) @ p["enter.weight"] + p["enter.bias"]
        h = np.maximum(smooth @ h @ p["layers.0.lin.weight"] + p["layers.0.bias"], 0)
        said.append((smooth @ h @ p["layers.1.lin.weight"] + p["layers.1.bias"]).mean(0))
    names, mixed = [name for name in live if not is_mask(name)], []
    for i in range(3):
        likeness = [said[i] @ said[j] / math.sqrt((said[i] @ said[i]) * (said[j] @ said[j])) for j in range(3)]
        factor = [math.exp(tau * each) for each in likeness]
        parts = [f / sum(factor) * torch.cat([live[n][j].flatten() for n in names]) for j, f in enumerate(factor)]
        mixed.append(torch.stack(parts).sum(0))
    return mixed


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_the_mixture_is_that_of_a_slow_formula(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many models are asked at once: graphs of 14 nodes with 5 features take 560 bytes each."""
    monkeypatch.setattr(fed_pub_graph, "_AT_ONCE", 560 * at_once)
    training = open_of(fed_pub(tau=5.0), small_silos(), "gcn", epochs=2)
    for _ in walk(training, rounds=False):
        pass
    wanted = by_hand(training, 5.0)
    end_round(training.stage)
    assert training.stage.syncs[CLASSIFIER].questions._once == at_once
    live = training.learner.everything()
    for i, row in enumerate(wanted):
        found = torch.cat([live[name][i].flatten() for name in live if not is_mask(name)])
        torch.testing.assert_close(found, row, rtol=1e-12, atol=1e-12)


def test_the_random_graph_follows_from_the_seed_and_sizes_alone() -> None:
    schema = Schema(3, ("a", "b"), edge_features=2)
    one, again, other = (random_graph(schema, 3, 40, 0.2, seed) for seed in (5, 5, 6))
    assert torch.equal(one.x, again.x) and torch.equal(one.edge_index, again.edge_index)
    assert not torch.equal(one.x, other.x) and one.edge_index.tolist() != other.edge_index.tolist()
    wider = random_graph(replace(schema, labels=("x", "y", "z")), 3, 40, 0.2, 5)
    assert torch.equal(wider.edge_index, one.edge_index)
    source, target = one.edge_index
    assert bool((source // 40 == target // 40).all()) and not bool((source == target).any())
    pairs = set(map(tuple, one.edge_index.T.tolist()))
    assert pairs == {(b, a) for a, b in pairs} and len(pairs) == one.edge_index.shape[1]
    assert 0.15 < len(pairs) / (3 * 40 * 39) < 0.25
    assert abs(float(one.x.mean())) < 0.2 and abs(float(one.x.std()) - 1) < 0.2


# ---- penalties


def moved(training: Training) -> dict[str, tuple[Tensor, Tensor]]:
    """Parameters at the start of a round, and some way from it."""
    begin_round(training.stage)
    found = {}
    for name, p in training.learner.classifier.sets.parameters.items():
        start = p.detach().clone()
        p.data += torch.randn(p.shape, generator=torch.Generator().manual_seed(len(name)), dtype=p.dtype)
        found[name] = (start, p.detach().clone())
    return found


def test_penalties_are_those_of_a_slow_formula_and_have_gradients() -> None:
    training = open_of(fed_pub(objective=SparseMasks(sparsity=0.3, proximity=0.7)), small_silos(), "gcn")
    each, wanted = moved(training), 0.0
    for name, (start, now) in each.items():
        for i in (0, 2):
            for a, b in zip(start[i].flatten().tolist(), now[i].flatten().tolist(), strict=True):
                wanted += 0.3 * abs(b) if is_mask(name) else 0.7 * (b - a) ** 2
    term = training.stage.objective.penalty(training.learner, [], torch.tensor([True, False, True]))
    assert term is not None and float(term.detach()) == pytest.approx(wanted, rel=1e-12)
    term.backward()
    for name, p in training.learner.classifier.sets.parameters.items():
        start, now = each[name]
        slope = 0.3 * now.sign() if is_mask(name) else 1.4 * (now - start)
        slope[1] = 0
        assert p.grad is not None
        torch.testing.assert_close(p.grad, slope)


def test_penalties_hold_masks_small_and_weights_near() -> None:
    """In one round of four epochs: masks that are paid for shrink, weights that are paid for stay nearer."""
    start = parameters(run(fed_pub(), lr=1e-12))
    found = {}
    for sparsity, proximity in ((0.0, 0.0), (0.1, 0.0), (0.0, 1.0)):
        held = SparseMasks(sparsity=sparsity, proximity=proximity)
        last = run(fed_pub(objective=held, tau=1e12, local_epochs=4), evaluate_every=4).last
        masks = sum(float(value.abs().sum()) for name, value in last.items() if is_mask(name))
        way = sum(float((value - start[name]).square().sum()) for name, value in last.items() if not is_mask(name))
        found[sparsity, proximity] = masks, way
    assert found[0.1, 0.0][0] < 0.9 * found[0.0, 0.0][0]
    assert found[0.0, 1.0][1] < 0.9 * found[0.0, 0.0][1]


# ---- what leaves


@dataclass(frozen=True)
class Listener(Policy):
    """Lets everything leave, and keeps the parameters that do, by who sends them to whom."""

    heard: list[tuple[int, int, Tensor]] = field(default_factory=list)

    def refusal(self, parcel: Parcel) -> str:
        if parcel.kind == Kind.PARAMETERS:
            self.heard.append((int(parcel.traffic.sender[0]), int(parcel.traffic.receiver[0]), parcel.rows))
        return ""


def test_masks_never_leave_and_each_silo_has_one_letter_up_and_one_down() -> None:
    training = open_of(fed_pub(), small_silos(), "gcn", epochs=3)
    training.wire.policy = Listener()
    result = train(training)
    live = result.training.learner.everything()
    shared = sum(value[0].numel() for name, value in live.items() if not is_mask(name))
    heard = training.wire.policy.heard
    assert [(a, b) for a, b, _ in heard] == 3 * [*((s, SERVER) for s in range(3)), *((SERVER, s) for s in range(3))]
    assert {tuple(rows.shape) for _, _, rows in heard} == {(1, shared)}
    assert result.bytes["parameters"] == 3 * 2 * 3 * shared * 8
    assert result.last["head.mask_weight"][0].ne(1).any()
    up = torch.cat([rows for sender, _, rows in heard if sender != SERVER]).flatten()
    for name, masks in result.last.items():
        if is_mask(name):
            assert not bool(torch.isin(masks[masks != 1], up).any()), f"numbers of {name} were among those that left"


def test_weights_can_be_clipped_and_get_noise_before_the_server_sees_them() -> None:
    noisy = replace(fed_pub(), protect=(Gaussian(clip_parameters=0.5, sigma_parameters=0.1),))
    result = run(noisy)
    assert all(math.isfinite(loss) for loss in losses(result)) and losses(result) != losses(run(fed_pub()))
    events = result.training.wire.ledger.treatments(Kind.PARAMETERS)
    assert set(events) == {0, 1, 2} and "Gaussian" in str(next(iter(events.values())))


def test_a_resumed_run_is_the_same_to_the_last_bit() -> None:
    def opened() -> Training:
        return open_of(fed_pub(local_epochs=2), small_silos(), "gcn", epochs=4, evaluate_every=2)

    whole, again = resumed(opened, (1, 2, 3))
    for each in again.values():
        assert losses(each) == losses(whole)[-len(losses(each)) :]
        assert all(torch.equal(value, each.last[name]) for name, value in whole.last.items())


def test_a_silo_that_sends_another_model_is_named() -> None:
    training = open_of(fed_pub(), small_silos(), "gcn")
    sync = training.stage.syncs[CLASSIFIER]
    assert isinstance(sync, LiveSimilarModels)
    right = training.learner.classifier.sets.flat(sync._names)[:1]
    with pytest.raises(PeerError, match="silo-1 sent parameters of the form"):
        sync._mixed({0: right, 1: right[:, 1:], 2: right}, right)


def test_scores_on_the_merged_graph_are_those_of_masked_models() -> None:
    """Where no edge crosses, the merged graph scores every node as its silo does: by weights times masks."""
    method = replace(fed_pub(MaskedClassifier(0.5)), scores=("own", "global"))
    result = train(open_of(method, small_silos(inner=True), "gcn", epochs=4))
    own, merged = (verdict.test for verdict in result.verdicts)
    torch.testing.assert_close(own.silos, merged.silos, equal_nan=True)
    logits = [each.scorer.logits(2)[0] for each in result.training.stage.judges]
    torch.testing.assert_close(*(each.sort(0).values for each in logits), rtol=1e-10, atol=1e-12)


# ---- what it refuses


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tau": -1.0}, "sync.tau is -1.0; it must be a finite number"),
        ({"tau": math.inf}, "sync.tau is inf"),
        ({"blocks": 0}, "sync.blocks is 0; it must be at least 1"),
        ({"density": 1.5}, "sync.density is 1.5; it is a probability"),
        ({"weights": "edges"}, "sync.weights"),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(IsthmusError, match=why):
        SimilarModels(**options)


def test_penalties_below_zero_are_refused() -> None:
    with pytest.raises(IsthmusError, match="objective.sparsity is -0.1; it must be 0 or more"):
        SparseMasks(sparsity=-0.1)


@pytest.mark.parametrize("objective", [SparseMasks(), Proximal()])
def test_penalties_of_each_silo_s_own_are_refused_where_all_step_alike(objective: Objective) -> None:
    with pytest.raises(IsthmusError, match="holds back the parameters of each silo by itself, but with sync=sync-sgd"):
        open_of(method_of(sync=SyncSGD(), objective=objective), small_silos())


def test_a_second_model_cannot_be_compared() -> None:
    both = Method("two", "", phases=one_phase(sync=SimilarModels(), learns=(CLASSIFIER, "other")),
                  models={CLASSIFIER: MaskedClassifier(), "other": MaskedClassifier()})  # fmt: skip
    with pytest.raises(IsthmusError, match="'other' is no classifier; use fedavg"):
        open_of(both, small_silos())
