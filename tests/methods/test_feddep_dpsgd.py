"""FedDEP with DP-SGD: FedDEP itself without clip and noise, a slow loop with a clip, and a label's epsilon."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TRAIN
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.method import Method
from isthmus.protect.accounting.guarantee import AS_SAMPLED, DP, EVERYTHING, LABEL, STEPS_TAKEN
from isthmus.protect.accounting.metric_dp import composed_epsilon
from isthmus.protect.accounting.subsampled import subsampled_epsilon
from isthmus.protect.dp_sgd import DPSGD
from isthmus.testing.runs import walk
from isthmus.train.loop import seed_losses, train
from isthmus.train.seed_gradients import bounded_backward
from isthmus.train.training import Training
from tests.helpers.small import assert_same, losses, open_of, small_graph

GRAPH, OWNER = small_graph(36, 180), torch.arange(36) % 3
FULL: dict[str, Any] = {}
SAMPLED: dict[str, Any] = {"batch": 5, "fanout": (2,)}
SHORT = {"phase": {"encode": {"epochs": 2, "exchange": {"clusters": 4, "smallest": 2}}}}
HOW = pytest.mark.parametrize("how", [FULL, SAMPLED], ids=["full", "sampled"])


def method(clip: float = 1.0, sigma: float = 2.0) -> Method:
    """FedDEP with DP-SGD, two epochs of which are its encoders'."""
    made = compose(catalogue.get("feddep-dpsgd"), SHORT)
    return replace(made, protect=(DPSGD(seed_clip=clip, seed_sigma=sigma),))


def opened(of: Method, **training: Any) -> Training:
    return open_of(of, split_graph(GRAPH, OWNER, 3), "sage-gcn", **{"epochs": 5, **training})


PLAIN = compose(catalogue.get("feddep"), SHORT)


# ---- the steps


@HOW
@pytest.mark.parametrize("clip", [math.inf, 1e9])
def test_without_clip_and_noise_it_is_feddep(how: dict[str, Any], clip: float) -> None:
    """In both phases, with three models of which two step at once."""
    plain = train(opened(PLAIN, **how))
    assert_same(plain, train(opened(method(clip, 0.0), **how)), sets=range(3))


@HOW
def test_clip_and_noise_change_it(how: dict[str, Any]) -> None:
    plain, clipped, noisy = (losses(train(opened(each, **how))) for each in (PLAIN, method(0.05, 0.0), method()))
    for other in (clipped, noisy):
        apart = [abs(a - b) for a, b in zip(plain, other, strict=True)]
        assert not apart[0] and apart[len(plain) // 5] > 1e-6 and apart[-1] > 1e-6  # in the first phase, and the last


def in_last_phase(of: Method, **how: Any) -> Training:
    run = opened(of, **how)
    for _ in walk(run):
        pass
    run.go_on(1)
    for name in ("generator", "classifier"):
        run.learner.models[name].sets.zero_gradients()
    run.learner.models["generator"].module.number.bias.data.fill_(2.0)  # so that rows are generated for every node
    return run


def parts_of(run: Training) -> tuple[Any, Tensor, Any]:
    """Seeds of the first step of the last phase, the losses of these, and the generator's."""
    stage = run.stage
    seeds = next(iter(stage.epoch_seeds(run.progress)))
    [work] = stage.works(seeds, run.progress.step)
    each, counts = seed_losses(stage, work), seeds.amounts()
    return seeds, each, stage.objective.node_losses([work.batch], counts > 0)


def flat_gradients(run: Training) -> Tensor:
    """Gradients of both models: [silos, numbers]."""
    return torch.cat([model.sets.flat_gradients() for model in run.stage.learned], 1)


@HOW
@pytest.mark.parametrize("clip", [0.2, 3.0])
def test_bounded_gradients_are_those_of_a_slow_loop(how: dict[str, Any], clip: float) -> None:
    """Node by node: its loss as a seed and what the generator lost on it, in one gradient of both models."""
    run = in_last_phase(method(clip, 0.0), **how)
    stack, seeds = run.stage.site.stack, parts_of(run)[0]
    expected, shortened, beside = torch.zeros_like(flat_gradients(run)), 0, 0
    for silo in range(3):
        for row in range(stack.ptr[silo], stack.ptr[silo + 1]):
            for model in run.stage.learned:
                model.sets.zero_gradients()
            _, each, nodes = parts_of(run)
            mine = [loss for at, loss in zip(seeds.index.tolist(), each, strict=True) if at == row]
            count, others = (int(x.counts()[silo]) for x in (seeds, nodes))
            share = count / others
            extra = [share * loss for at, loss in zip(nodes.at.tolist(), nodes.losses, strict=True) if at == row]
            if mine or extra:
                torch.stack([*mine, *extra]).sum().backward()
                gradient = flat_gradients(run)[silo]
                shortened += float(gradient.norm()) > clip
                beside += not mine
                expected[silo] += gradient * min(1.0, clip / float(gradient.norm())) / count
    for model in run.stage.learned:
        model.sets.zero_gradients()
    seeds, each, nodes = parts_of(run)
    bounded_backward(run.stage.site, run.stage.learned, [each], [seeds], seeds.amounts().double(), nodes)
    torch.testing.assert_close(flat_gradients(run), expected, rtol=1e-9, atol=1e-13)
    assert shortened and bool(beside) == (how is FULL)  # in samples the generator learns on seeds alone


def test_one_label_moves_the_sum_of_its_silo_by_two_clips_at_most_and_no_other() -> None:
    """In the last phase, where the classifier, the generator and its losses meet; prototypes as they were."""

    def step(run: Training) -> Tensor:
        seeds, each, nodes = parts_of(run)
        bounded_backward(run.stage.site, run.stage.learned, [each], [seeds], seeds.amounts().double(), nodes)
        return flat_gradients(run) * seeds.counts()[:, None]

    clip, moved = 0.2, []
    run = in_last_phase(method(clip, 0.0))
    base, stack = step(run), run.stage.site.stack
    for row in (stack.split == TRAIN).nonzero().flatten().tolist()[:9]:
        stack.y[row] = (stack.y[row] + 1) % 3
        apart = (step(run) - base).norm(dim=1)
        stack.y[row] = (stack.y[row] + 2) % 3
        silo = int(stack.silo_of(torch.tensor([row])))
        assert bool((apart[torch.arange(3) != silo] == 0).all())
        moved.append(float(apart[silo]))
    assert 0.1 * clip < max(moved) <= 2 * clip * (1 + 1e-12)


# ---- the account


def test_labels_are_charged_for_the_steps_of_both_phases() -> None:
    run = opened(method(), **SAMPLED)
    train(run)
    found = privacy_of(run, take_account(run))
    everything = found[0]
    assert (everything.of, everything.epsilon) == (EVERYTHING, math.inf) and "prototypes" in everything.bare
    counted, sampled = (each for each in found if each.of == STEPS_TAKEN)
    assert (counted.unit, counted.notion, counted.releases) == (LABEL, DP, 5)  # two epochs of encoders, three after
    assert counted.epsilon == pytest.approx(float(composed_epsilon(5 * 2 / 2.0**2, 1e-4)), rel=1e-12)
    assert sampled.notion == AS_SAMPLED and not counted.bare
    each = [subsampled_epsilon(e["most"] / e["seeds"], 2.0, e["steps"], 1e-4) for e in counted.silos.values()]
    assert sampled.epsilon == pytest.approx(max(each), rel=1e-12)
    assert any("prototypes" in said for said in counted.assumptions)


def test_features_as_prototypes_are_no_leak_of_labels() -> None:
    """Depth 0: prototypes hold no label at all, and the bound of labels stands."""
    bare = compose(method(), {"models": {"encoder": {"depth": 0}}})
    run = opened(bare, **SAMPLED)
    train(run)
    [first, _] = (each for each in privacy_of(run, take_account(run)) if each.of == STEPS_TAKEN)
    assert first.epsilon < math.inf
