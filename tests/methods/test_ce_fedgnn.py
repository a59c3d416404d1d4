"""CE-FedGNN: moving averages that cross once a round, and what they become where a switch is turned."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.forward import Beyond, forward
from isthmus.engine.settings import TrainConfig
from isthmus.engine.site import Site
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TEST, TRAIN, Graph
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.exchange.base import Nothing
from isthmus.methods.exchange.ce_fedgnn import LiveMovingAverage, MovingAverage
from isthmus.methods.exchange.fwd_bwd_le import LayerWise, LiveLayerWise
from isthmus.methods.method import Method
from isthmus.methods.phase import one_phase
from isthmus.methods.sync.ce_fedgnn import GradientAverage
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.nn.model import MODELS
from isthmus.train.loop import step, train
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from tests.helpers.small import assert_same, losses, run_method, small_graph

THREE = torch.arange(30) % 3
SGD = {"optimiser": "sgd", "weight_decay": 0.0}
SAMPLED = {"batch": 3, "fanout": (2,)}


def open_run(
    method: Method,
    model: str = "gcn",
    layers: int = 2,
    dropout: float = 0.0,
    edges: bool = False,
    graph: Graph | None = None,
    **training: Any,
) -> Training:
    graph = graph or small_graph(30, 140, edge_task=edges)
    federation = open_federation(LocalWire(3, method.chain), split_graph(graph, THREE, 3), 3)
    config = replace(MODELS[model], hidden=8, dropout=dropout, layers=layers)
    settings = TrainConfig(**{"epochs": 5, "lr": 0.05, **training})
    return Training(federation, method, config, settings, 3, dtype=torch.float64)


def ce(exchange: dict[str, Any] | None = None, **sync: Any) -> Method:
    parts = {"exchange": exchange or {}, "sync": {"local_steps": 1, **sync}}
    return compose(catalogue.get("ce-fedgnn"), parts)


def one_step(run: Training) -> None:
    step(run.stage, run.progress, next(iter(run.stage.epoch_seeds(run.progress))))


@dataclass(frozen=True)
class OneStepOld(LayerWise):
    """Fwd-LE whose halo rows are those of the step before: zeros at the first."""

    def with_batches(self, batches: str) -> "OneStepOld":
        return self

    def open(self, site: Site) -> "LiveOneStepOld":
        return LiveOneStepOld(self, site)


class LiveOneStepOld(LiveLayerWise):
    def __init__(self, spec: OneStepOld, site: Site) -> None:
        super().__init__(spec, site)
        self.before: dict[int, Tensor] = {}

    def beyond(self, layer: int, h: Any, batch: Any, this: Any) -> Beyond:
        fresh = super().beyond(layer, h.detach(), batch, this).rows
        route = self._route(layer, batch.layout)
        rows = torch.zeros_like(fresh)
        rows[route.fill.at] = self.before.get(layer, fresh.new_zeros(len(route.fill.at), fresh.shape[1]))
        self.before[layer] = fresh[route.fill.at].clone()
        return Beyond(rows.index_copy(0, route.keep, h))


@dataclass(frozen=True)
class Recorded(MovingAverage):
    """Remembers what the first layer computed."""

    def open(self, site: Site) -> "LiveRecorded":
        return LiveRecorded(self, site)


class LiveRecorded(LiveMovingAverage):
    def __init__(self, spec: Recorded, site: Site) -> None:
        super().__init__(spec, site)
        self.computed: list[Tensor] = []

    def settle(self, layer: int, pre: Tensor, *rest: Any) -> Tensor:
        self.computed += [pre.detach()] if layer == 0 else []
        return super().settle(layer, pre, *rest)


@pytest.mark.parametrize("edges", [False, True], ids=["nodes", "edges"])
@pytest.mark.parametrize("model", ["gcn", "sage", "pna"])
def test_without_averages_it_is_forward_exchange_with_rows_of_the_step_before(model: str, edges: bool) -> None:
    old = Method(
        "old",
        "",
        phases=one_phase(exchange=OneStepOld(adjoint=False), sync=FedAvg(local_steps=1, weights="silos")),
    )
    # Degrees of far ends are agreed in both; everything else is each silo's own.
    mine = ce({"gamma": 1.0, "cross": "target"}, beta=1.0)
    runs = [open_run(each, model, edges=edges, **SGD) for each in (mine, old)]
    if model == "gcn":
        for degree in ("in_degree", "out_degree"):
            getattr(runs[1].stage.layout.stack, degree).copy_(getattr(runs[0].stage.layout.stack, degree))
    for _ in range(5):
        seen = []
        for run in runs:
            one_step(run)
            run.stage.exchange.round_end()
            run.stage.syncs["classifier"].round_end()
            seen.append(run.progress.last_loss)
        assert seen[0] == pytest.approx(seen[1], rel=1e-10)


@pytest.mark.parametrize("training", [{}, SAMPLED], ids=["full", "sampled"])
def test_gamma_and_beta_of_one_are_fedgnn_st(training: dict) -> None:
    graph = small_graph(30, 140)
    plain = {"exchange": {"gamma": 1.0}, "sync": {"beta": 1.0}}
    stale = run_method("fedgnn-st", graph, THREE, 3, **training)
    assert_same(stale, run_method("ce-fedgnn", graph, THREE, 3, options=plain, **training), sets=(0, 1, 2))
    for axis in ("exchange", "sync"):  # each of the two averages alone changes the run
        other = run_method("ce-fedgnn", graph, THREE, 3, options={axis: plain[axis]}, epochs=4, **training)
        assert losses(other)[3] != losses(run_method("fedgnn-st", graph, THREE, 3, epochs=4, **training))[3]


@pytest.mark.parametrize("training", [{}, SAMPLED], ids=["full", "sampled"])
def test_without_exchange_and_averages_it_is_fedavg_with_rounds_of_k_steps(training: dict) -> None:
    made = [
        Method("mine", "", phases=one_phase(exchange=Nothing(), sync=GradientAverage(local_steps=2, beta=1.0))),
        Method("theirs", "", phases=one_phase(exchange=Nothing(), sync=FedAvg(local_steps=2, weights="silos"))),
    ]
    results = [train(open_run(each, "sage", dropout=0.3, **SGD, **training)) for each in made]
    assert_same(*results, sets=(0, 1, 2))


def test_without_cross_edges_it_is_gradient_descent() -> None:
    """Three silos with as many training nodes each: the mean of their losses is the loss of all."""
    graph = small_graph(30, 140, inner=THREE)
    split = torch.ones(30, dtype=torch.int8)
    split[:6], split[6:12] = 2, 3
    graph = replace(graph, split=split)
    options = {"exchange": {"gamma": 1.0}, "sync": {"beta": 1.0, "local_steps": 1}}
    mine = run_method("ce-fedgnn", graph, THREE, 3, "gcn", options, **SGD)
    assert_same(run_method("centralised", graph, THREE, 3, "gcn", **SGD), mine)


def test_averages_follow_their_rule() -> None:
    """Z <- (1 - gamma) Z + gamma fresh, from the first fresh value on; beside what the first layer computed."""
    run = open_run(ce().with_phase("train", exchange=Recorded(gamma=0.25)), dropout=0.4)
    exchange = run.stage.exchange
    averages = []
    for _ in range(3):
        one_step(run)
        averages.append(exchange.state["average-1"].clone())
    expected = exchange.computed[0]
    assert torch.equal(averages[0], expected)
    for pre, found in zip(exchange.computed[1:], averages[1:], strict=True):
        expected = 0.75 * expected + 0.25 * pre
        assert torch.allclose(found, expected, rtol=1e-12)


def test_an_average_may_start_from_zero() -> None:
    fresh, zero = (open_run(ce({"gamma": 0.25, "first": first})) for first in ("fresh", "zero"))
    for run in (fresh, zero):
        one_step(run)
    from_zero, from_fresh = (run.stage.exchange.state["average-1"] for run in (zero, fresh))
    assert torch.allclose(from_zero, 0.25 * from_fresh, rtol=1e-12)


def test_the_gradient_passes_an_average_straight_or_shrunk() -> None:
    """One layer and a head: with the same forward pass, the layer's gradient shrinks by gamma, the head's does not."""
    found = {}
    for backward in ("straight", "plain"):
        run = open_run(ce({"gamma": 0.25, "backward": backward}, beta=1.0), layers=1, **SGD)
        for _ in range(2):  # the first value of an average is fresh: gamma counts from the second on
            one_step(run)
            for p in run.stage.site.net.parameters():
                p.data.copy_(torch.full_like(p, 0.1) + 0.01 * torch.arange(p.numel()).view_as(p))
        one_step(run)
        found[backward] = {name: p.grad.clone() for name, p in run.stage.site.net.named_parameters()}
    for name, straight in found["straight"].items():
        factor = 1.0 if name.startswith("head") else 0.25
        assert torch.allclose(found["plain"][name], factor * straight, rtol=1e-9, atol=1e-15), name


def test_only_rows_that_changed_cross_and_the_others_stand() -> None:
    run = open_run(ce(local_steps=2), "sage", batch=1, fanout=(1,))
    exchange, wire = run.stage.exchange, run.wire
    seeds = iter(run.stage.epoch_seeds(run.progress))
    for _ in range(2):
        step(run.stage, run.progress, next(seeds))
        changed = [exchange.state[f"changed-{layer}"].clone() for layer in range(2)]
        before = [exchange.state[f"halo-{layer}"].clone() for layer in range(2)]
        sent = wire.ledger.by_kind().get("embeddings", 0)
        exchange.round_end()
        served = exchange.place[run.stage.site.boundary.served]
        crossed = [int(mark[served].sum()) for mark in changed]
        assert 0 < sum(crossed) < 2 * len(served)
        assert wire.ledger.by_kind()["embeddings"] - sent == sum(crossed) * 8 * 8
        for layer, old in enumerate(before):
            moved = (exchange.state[f"halo-{layer}"] != old).any(1)
            assert int(moved.sum()) <= crossed[layer]
        assert not any(bool(exchange.state[f"changed-{layer}"].any()) for layer in range(2))


def test_what_arrives_is_the_owners_activation() -> None:
    run = open_run(ce(), dropout=0.4)
    one_step(run)
    exchange, stack = run.stage.exchange, run.stage.layout.stack
    exchange.round_end()
    by_key = {int(k): row for k, row in zip(stack.keys[stack.owned], exchange.state["average-1"], strict=True)}
    for row, found in zip(run.stage.layout.boundary.halo, exchange.state["halo-1"], strict=True):
        assert torch.equal(found, by_key[int(stack.keys[row])].relu())


def test_after_a_round_gradients_and_parameters_are_means_over_silos() -> None:
    run = open_run(ce(private=("head",)), "sage")
    one_step(run)
    sets, sync = run.learner.classifier.sets, run.stage.syncs["classifier"]
    names = list(sets.parameters)
    before, gradient = sets.flat(names), sync.state["G"].clone()
    assert not torch.allclose(gradient[0], gradient[1])
    sync.round_end()
    home = sets.columns([name for name in names if name.startswith("head")])
    for old, new in ((before, sets.flat(names)), (gradient, sync.state["G"])):
        assert torch.allclose(new[:, ~home], old[:, ~home].mean(0).expand(3, -1), rtol=1e-12)
        assert torch.equal(new[:, home], old[:, home])


@pytest.mark.parametrize("training", [{}, {"batch": 7, "fanout": (3,)}], ids=["full", "sampled"])
def test_both_silos_of_a_cross_edge_learn_from_it_by_half(training: dict) -> None:
    both, once = (open_run(ce({"cross": cross}), "sage", edges=True, **training) for cross in ("both", "target"))
    stack, pool, whole = both.stage.layout.stack, both.stage.layout.pools[TRAIN], once.stage.layout.pools[TRAIN]
    inner = stack.owned[stack.ends].all(0)[pool.index]
    assert pool.share is not None and whole.share is None
    assert torch.equal(pool.share == 1.0, inner) and torch.equal(pool.share == 0.5, ~inner)
    assert float(pool.share.sum()) == len(whole.index)  # every edge counts once in all
    assert sorted(pool.keys[~inner].tolist()) == sorted(2 * pool.keys[~inner].unique().tolist())
    seeds = next(iter(both.stage.epoch_seeds(both.progress)))
    [work] = both.stage.works(seeds, 0)
    logits = forward(both.stage.site.net, work.exchange, work.batch, both.stage.site.passing(training=False))
    each = both.stage.objective.seed_losses(logits, work.batch).detach()
    step(both.stage, both.progress, seeds)
    by_hand = [
        float((each * seeds.share)[a:b].sum() / seeds.share[a:b].sum()) for a, b in itertools.pairwise(seeds.ptr)
    ]
    sums, amounts = both.progress._losses[0].T
    assert (sums / amounts).tolist() == pytest.approx(by_hand, rel=1e-12)


def test_the_correction_doubles_what_layers_learn_from_cross_edges_and_nothing_else() -> None:
    """All labelled edges cross: the layers' gradients double, the head's stay."""
    graph = small_graph(30, 140, edge_task=True)
    known = torch.where(THREE[graph.edge_index[0]] != THREE[graph.edge_index[1]], graph.edge_y, -1)
    found = {}
    for correct in (False, True):
        run = open_run(ce({"correct": correct}, beta=1.0), "sage", graph=replace(graph, edge_y=known), **SGD)
        one_step(run)
        found[correct] = {name: p.grad.clone() for name, p in run.stage.site.net.named_parameters()}
    for name, plain in found[False].items():
        factor = 1.0 if name.startswith("edge_head") else 2.0
        assert torch.allclose(found[True][name], factor * plain, rtol=1e-12, atol=1e-16), name


def test_in_joint_batches_an_edge_is_drawn_once() -> None:
    run = open_run(ce(), "sage", edges=True, batches="joint", batch=7, fanout=(3,))
    assert run.stage.layout.pools[TRAIN].share is None and losses(train(run))


def test_tables_in_bfloat16_are_half_as_large_and_nearly_the_same() -> None:
    short, full = (train(open_run(ce({"table": name}), epochs=4)) for name in ("bfloat16", "float32"))
    for name in ("average-1", "halo-1"):
        a, b = (each.training.stage.exchange.state[name] for each in (short, full))
        assert a.element_size() * 2 == b.element_size()
    assert losses(short)[-1] != losses(full)[-1]
    assert losses(short)[-1] == pytest.approx(losses(full)[-1], rel=2e-2)


def test_a_validation_that_falls_into_a_round_waits_for_its_end() -> None:
    def lines(steps: int) -> list[dict[str, Any]]:
        result: Result = train(open_run(ce(local_steps=steps), "sage", batch=3, fanout=(2,), epochs=4))
        return [line for line in result.history if "valid" in line]

    by_epoch = train(open_run(ce(), "sage", batch=3, fanout=(2,), epochs=1)).training.stage.steps_per_epoch
    assert [line["epoch"] for line in lines(by_epoch)] == [1, 2, 3, 4]
    late = lines(by_epoch + 1)  # rounds end in the second, third and fourth epoch; the run's end is the last one's
    assert [line["epoch"] for line in late] == [2, 3, 4]


@pytest.mark.parametrize(
    ("axis", "key", "value", "says"),
    [
        ("exchange", "gamma", 0.0, r"\(0, 1\]"),
        ("exchange", "gamma", 1.5, r"\(0, 1\]"),
        ("exchange", "first", "old", "fresh, zero"),
        ("exchange", "backward", "none", "plain, straight"),
        ("exchange", "table", "int8", "bfloat16, float32"),
        ("exchange", "cross", "source", "both, target"),
        ("sync", "beta", 0.0, r"\(0, 1\]"),
        ("sync", "local_steps", -1, "at least 0"),
        ("sync", "weights", "edges", "nodes, silos"),
        ("sync", "most_steps", 0, "at least 1"),
    ],
)
def test_choices_that_cannot_be(axis: str, key: str, value: object, says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        compose(catalogue.get("ce-fedgnn"), {axis: {key: value}})


def test_a_round_ends_with_its_epoch_unless_its_steps_are_given() -> None:
    def ends(sync: GradientAverage, epoch: int, steps: int) -> list[int]:
        """The steps after which a round is over, with epochs of so many steps."""
        return [i for i in range(1, steps + 1) if sync.round_over(i, -(-i // epoch), i % epoch == 0)]

    assert ends(GradientAverage(), 1, 4) == [1, 2, 3, 4]  # full batches: rows are never older than an epoch
    assert ends(GradientAverage(), 40, 100) == [32, 40, 64, 80, 96]
    assert ends(GradientAverage(local_epochs=2, most_steps=100), 3, 12) == [6, 12]
    assert ends(GradientAverage(local_steps=32), 1, 100) == [32, 64, 96]  # as in the paper
    assert ends(GradientAverage(local_steps=32), 40, 100) == [32, 64, 96]
    with pytest.raises(IsthmusError, match="use one of them"):
        GradientAverage(local_steps=32, local_epochs=2)


def test_the_correction_needs_halves() -> None:
    with pytest.raises(IsthmusError, match="makes up for halves"):
        compose(catalogue.get("ce-fedgnn"), {"exchange": {"cross": "target", "correct": True}})


def test_raw_features_are_never_released() -> None:
    with pytest.raises(IsthmusError, match=r"model\.embed=true"):
        run_method("ce-fedgnn", small_graph(30, 140), THREE, 3, model_options={"embed": False})


@pytest.mark.parametrize("training", [{}, {"batch": 3}], ids=["full", "sampled"])
def test_fresh_scores_are_those_of_the_whole_graph(training: dict[str, Any]) -> None:
    """Each silo's test nodes get the logits that one party with all nodes, and the same parameters, would give them."""
    graph, options = small_graph(30, 140), {"sync": {"local_steps": 2}}
    training = {**training, "fanout": (-1,)}
    ours = run_method("ce-fedgnn", graph, THREE, 3, "gcn", options=options, **training).training
    stale = {**options, "exchange": {"scored_with": "released"}}
    other = run_method("ce-fedgnn", graph, THREE, 3, "gcn", options=stale, **training).training
    whole = run_method("centralised", graph, THREE, 3, "gcn", **training).training
    mine, theirs = ours.learner.everything(), other.learner.everything()
    for name, tensor in whole.learner.everything().items():
        tensor.copy_(mine[name][:1])
        theirs[name].copy_(mine[name])
    expected, _, at = whole.stage.scorer.logits(TEST)
    by_key = dict(zip(whole.stage.layout.stack.keys[at].tolist(), expected, strict=True))
    for run, same in ((ours, True), (other, False)):
        logits, _, index = run.stage.scorer.logits(TEST)
        wanted = torch.stack([by_key[key] for key in run.stage.layout.stack.keys[index].tolist()])
        assert torch.allclose(logits, wanted, rtol=1e-10, atol=1e-12) == same
