"""DP-SGD: the same as ordinary training without bounds, as a slow loop with them, and as Opacus accounts it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.protect.accounting.guarantee import AS_SAMPLED, DP, LABEL, STEPS_TAKEN, Guarantee
from isthmus.protect.accounting.metric_dp import ORDERS, composed_epsilon
from isthmus.protect.accounting.subsampled import divergence, subsampled_epsilon
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.runs.text import labels_line
from isthmus.testing.runs import resumed
from isthmus.train.loop import seed_losses
from isthmus.train.result import Result
from isthmus.train.seed_gradients import bounded_backward
from isthmus.train.training import Training
from isthmus.wire.wire import Wire
from tests.helpers.command import SMALL, metrics, succeed
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import assert_same, losses, numbers, open_method, run_method, small_graph

NODES, SILOS = 30, 3
OWNER, GRAPH = torch.arange(NODES) % SILOS, small_graph(NODES, 140)
SAMPLED: dict[str, Any] = {"batch": 4, "fanout": (2,), "epochs": 3}
CLIP, SIGMA, DELTA = 0.3, 1.5, 1e-5
BOUNDED = {"protect": {"name": "dp-sgd", "seed_clip": CLIP, "seed_sigma": SIGMA, "seed_delta": DELTA}}
METHODS = {
    "fedavg": {},
    "fedprox": {},
    "fedper": {},
    "local": {},
    "ce-fedgnn": {},
    "optimes": {},
    "fedgcn": {"model": "gcn"},
    "pretrained-fedavg": {"options": {"phase": {"pretrain": {"epochs": 1}}}},
}


def run(method: str = "fedavg", **given: Any) -> Result:
    return run_method(method, GRAPH, OWNER, SILOS, **{**SAMPLED, "options": BOUNDED, **given})


def told_by(result: Result) -> list[Guarantee]:
    found = privacy_of(result.training, take_account(result.training))
    return [each for each in found if each.of == STEPS_TAKEN]


# ---- the steps


@pytest.mark.parametrize("batch", [0, 4])
@pytest.mark.parametrize("method", METHODS)
def test_without_clip_and_noise_it_is_ordinary_training(method: str, batch: int) -> None:
    given = {**SAMPLED, "batch": batch, **METHODS[method]}
    options = given.pop("options", {})
    plain = run_method(method, GRAPH, OWNER, SILOS, options=options, **given)
    free = {**options, "protect": {"name": "dp-sgd"}}
    assert_same(plain, run_method(method, GRAPH, OWNER, SILOS, options=free, **given), sets=range(SILOS))
    tight = {**options, "protect": {"name": "dp-sgd", "seed_clip": 0.01}}
    assert losses(plain) != losses(run_method(method, GRAPH, OWNER, SILOS, options=tight, **given))


def opened(sigma: float = 0.0, graph: Any = GRAPH, clip: float = CLIP) -> Training:
    options = {"protect": {"name": "dp-sgd", "seed_clip": clip, "seed_sigma": sigma}}
    return open_method("fedavg", graph, OWNER, SILOS, options=options, **SAMPLED)


def gradients_of(training: Training) -> Tensor:
    """The gradients [silos, numbers] of the first step."""
    stage = training.stage
    seeds = next(iter(stage.epoch_seeds(training.progress)))
    works = stage.works(seeds, 0)
    each = [seed_losses(stage, work) for work in works]
    bounded_backward(stage.site, stage.learned, each, [w.batch.seeds for w in works], seeds.amounts().double())
    return training.learner.classifier.sets.flat_gradients().clone()


@pytest.mark.parametrize("clip", [0.05, 0.3, 50.0, math.inf])
def test_bounded_gradients_are_those_of_a_slow_loop(clip: float) -> None:
    """A pass of its own for every seed, forward and backward, and a clip by hand."""
    training = opened(clip=clip)
    stage, sets = training.stage, training.learner.classifier.sets
    seeds = next(iter(stage.epoch_seeds(training.progress)))
    expected, shortened = torch.zeros_like(sets.flat_gradients()), 0
    for silo in range(SILOS):
        for at in range(seeds.ptr[silo], seeds.ptr[silo + 1]):
            sets.zero_gradients()
            (work,) = stage.works(seeds, 0)
            seed_losses(stage, work)[at].backward()
            gradient = sets.flat_gradients()[silo]
            norm, count = float(gradient.norm()), seeds.ptr[silo + 1] - seeds.ptr[silo]
            shortened += norm > clip
            expected[silo] += gradient * min(1.0, clip / norm) / count
    sets.zero_gradients()
    torch.testing.assert_close(gradients_of(training), expected, rtol=1e-10, atol=1e-14)
    assert (shortened > 0) == (clip < 1) and len(seeds.index) == 4 * SILOS


def test_one_label_moves_the_sum_of_its_silo_by_two_clips_at_most_and_no_other() -> None:
    labels = GRAPH.y.clone()
    base, moved = gradients_of(opened()), list[float]()
    for node in range(NODES):
        GRAPH.y[node] = (labels[node] + 1) % 3
        apart = (gradients_of(opened()) - base).norm(dim=1) * SAMPLED["batch"]
        GRAPH.y[node] = labels[node]
        others = torch.arange(SILOS) != OWNER[node]
        assert bool((apart[others] == 0).all())
        moved.append(float(apart.max()))
    assert 0.5 * CLIP < max(moved) <= 2 * CLIP * (1 + 1e-12)


def test_noise_comes_from_each_silo_s_secret_at_every_step_anew() -> None:
    noisy = opened(SIGMA)
    found = [(gradients_of(noisy) - gradients_of(opened())) * SAMPLED["batch"] / (SIGMA * CLIP) for _ in range(2)]
    own = Noise(secrets_from_seed(3, range(SILOS)))
    for drawn in found:
        expected = torch.cat([own.normal(silo, 1, drawn.shape[1]) for silo in range(SILOS)])
        torch.testing.assert_close(drawn, expected, rtol=0, atol=1e-9)
        own.draws += 1
    assert not torch.equal(found[0], found[1])


def test_a_resumed_run_goes_on_with_noise_and_counts() -> None:
    def fresh() -> Training:
        return open_method("fedavg", GRAPH, OWNER, SILOS, options=BOUNDED, **SAMPLED)

    whole, again = resumed(fresh, (2,))
    for each in again.values():
        assert losses(each) == losses(whole)[-len(losses(each)) :]
        ends = [result.training.learner.everything() for result in (whole, each)]
        assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
        assert [g.as_dict() for g in told_by(each)] == [g.as_dict() for g in told_by(whole)]


# ---- the account


def test_a_label_is_charged_for_the_steps_that_it_was_in() -> None:
    counted, sampled = told_by(run())
    assert (counted.unit, counted.notion, counted.delta, counted.releases) == (LABEL, DP, DELTA, SAMPLED["epochs"])
    loss = SAMPLED["epochs"] * (2 * CLIP) ** 2 / (2 * (SIGMA * CLIP) ** 2)
    assert counted.epsilon == pytest.approx(float(composed_epsilon(loss, DELTA)), rel=1e-12)
    assert sampled.notion == AS_SAMPLED
    by_hand = []
    for each in counted.silos.values():
        assert each["times"] == 3 and each["most"] == 4 and each["steps"] == 3 * math.ceil(each["seeds"] / 4)
        by_hand.append(subsampled_epsilon(4 / each["seeds"], SIGMA, each["steps"], DELTA))
    assert sampled.epsilon == pytest.approx(max(by_hand), rel=1e-12)
    assert Guarantee.from_dict(counted.as_dict()).as_dict() == counted.as_dict()


def test_no_noise_or_labels_that_leave_otherwise_are_no_bound() -> None:
    for clip in ({"seed_clip": 1.0}, {}):
        found = told_by(run(options={"protect": {"name": "dp-sgd", **clip}}))
        assert [each.epsilon for each in found] == [math.inf, math.inf]
    found = told_by(run(pooled=True))
    assert all((each.epsilon, each.bare) == (math.inf, ("scores",)) for each in found)
    assert "scores left without noise" in labels_line(found)
    assert not told_by(run(options={})) and not labels_line([])


CASES = [(q, s, t) for q in (0.001, 0.05, 0.5, 1.0) for s in (0.4, 1.0, 2.1, 4.2) for t in (1, 50, 5000)]


@pytest.mark.parametrize(("rate", "sigma", "steps"), CASES)
def test_epsilon_is_that_of_opacus(rate: float, sigma: float, steps: int) -> None:
    opacus = pytest.importorskip("opacus.accountants", reason="the second opinion of Opacus: pip install opacus")
    accountant = opacus.RDPAccountant()
    accountant.history = [(sigma, rate, steps)]
    expected = accountant.get_epsilon(DELTA)
    assert subsampled_epsilon(rate, sigma, steps, DELTA, ORDERS) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert subsampled_epsilon(rate, sigma, steps, DELTA) <= expected * (1 + 1e-9)


# (rate, sigma, steps, delta) and the epsilon of RDPAccountant of Opacus 1.6.0; the noise of FedDEP's figure 5 and
# ablation, batches of 32.
RECORDED = {
    (32 / 600, 4.2, 1000, 1e-5): 1.7544938680729665,
    (32 / 300, 2.1, 500, 1e-5): 6.085314128169828,
    (32 / 200, 0.4, 350, 1e-5): 187.6983935678594,
    (32 / 162, 2.0, 250, 1e-4): 7.953483089862802,
    (1.0, 2.0, 50, 1e-4): 20.16210003943961,
    (0.01, 2.0, 5000, 1e-5): 1.6131296313477415,
}


@pytest.mark.parametrize("case", RECORDED)
def test_epsilon_is_what_opacus_was_recorded_to_say(case: tuple[float, float, int, float]) -> None:
    assert subsampled_epsilon(*case, ORDERS) == pytest.approx(RECORDED[case], rel=1e-9)


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.7, 8.0, 20.5])
@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 0.7), (0.2, 1.0), (0.6, 3.0)])
def test_the_divergence_is_the_integral_that_defines_it(rate: float, sigma: float, alpha: float) -> None:
    z = torch.linspace(-40 * sigma - 40, 40 * sigma + 40, 400_001, dtype=torch.float64)
    ratio = torch.log((1 - rate) + rate * torch.exp((2 * z - 1) / (2 * sigma**2)))
    log = alpha * ratio - z**2 / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))
    moment = torch.logsumexp(log + torch.log(z[1] - z[0]), 0)
    assert divergence(rate, sigma, alpha) == pytest.approx(float(moment) / (alpha - 1), rel=1e-7)


def test_the_account_never_falls_with_more_steps_more_seeds_or_less_noise() -> None:
    base = subsampled_epsilon(0.1, 2.0, 100, DELTA)
    for more in ((0.2, 2.0, 100), (0.1, 1.5, 100), (0.1, 2.0, 200)):
        assert subsampled_epsilon(*more, DELTA) > base
    assert subsampled_epsilon(1.0, 2.0, 100, DELTA) == pytest.approx(float(composed_epsilon(100 / 8, DELTA)))
    assert subsampled_epsilon(0.1, 0.0, 1, DELTA) == math.inf and subsampled_epsilon(0.1, 2.0, 0, DELTA) == 0
    with pytest.raises(IsthmusError, match=r"rate is 1.2; .* lies in 0\.\.1"):
        subsampled_epsilon(1.2, 2.0, 1, DELTA)


# ---- what is refused, and what is shown


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"method": "sync-sgd"}, "sync=sync-sgd has all take one step together"),
        ({"method": "fedavg+fwd-bwd-le"}, "sends derivatives of its loss"),
        ({"model_options": {"norm": "batch"}}, "batch normalisation mixes them"),
        ({"edge_task": True}, "labels lie on edges here"),
        ({"options": {**BOUNDED, "objective": {"minority_weight": 2.0}}}, "weights of rare labels"),
        ({"options": {"protect": {"seed_clip": 0.0}}}, "protect.seed_clip is 0.0; it must be positive"),
        ({"options": {"protect": {"seed_sigma": 1.0}}}, "a multiple of protect.seed_clip, which is infinite"),
        ({"options": {"protect": {"seed_sigma": -1.0}}}, "protect.seed_sigma is -1.0; it must be"),
        ({"options": {"protect": {"seed_delta": 1.0}}}, "protect.seed_delta is 1.0; it must lie"),
        ({"options": {"protect": {"seed_secrets": "dice"}}}, "Unknown protect.seed_secrets 'dice'"),
    ],
)
def test_what_it_cannot_bound_is_refused(given: dict[str, Any], says: str) -> None:
    graph = small_graph(NODES, 140, edge_task=given.pop("edge_task", False))
    with pytest.raises(IsthmusError, match=says):
        run_method(given.pop("method", "fedavg"), graph, OWNER, SILOS, **{"options": BOUNDED, **SAMPLED, **given})


def test_a_run_shows_it_everywhere(tmp_path: Path) -> None:
    options = ("--set", "protect.seed_clip=1", "--set", "protect.seed_sigma=2", "--set", "train.batch=8")
    out = succeed(*SMALL, *options, "--out", tmp_path / "run").out
    line = next(line for line in out.splitlines() if line.startswith("DP-SGD, the label of one training node"))
    found = [each for each in metrics(tmp_path / "run")["privacy"] if each["of"] == STEPS_TAKEN]
    assert [each["notion"] for each in found] == [DP, AS_SAMPLED] and f"epsilon = {found[0]['epsilon']:.3g}" in line
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Labels: bounded steps" in page and "Poisson samples" in page and "cut from a shuffle" in page
    assert any("protect.seed_secrets=random" in note for note in metrics(tmp_path / "run")["notes"])


def over(wire: Wire) -> tuple[list[float], list[dict[str, Any]]]:
    result = run(wire=wire)
    return losses(result), [each.as_dict() for each in told_by(result)]


@pytest.mark.hosts
def test_the_number_of_hosts_changes_nothing() -> None:
    """Also with the server in a process of its own, which has no seeds and draws no noise."""
    alone = run()
    first, *_ = on_hosts(SILOS + 1, on_wire, SILOS, over)
    torch.testing.assert_close(numbers(first[0]), numbers(losses(alone)), rtol=1e-11, atol=0)
    assert first[1] == [each.as_dict() for each in told_by(alone)]
