"""Attribute inference: exact where nothing protects, the best estimate under noise, in the context of the run."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isthmus.audit.attributes import RIDGE, Knowledge, Prior, infer, linear_estimate
from isthmus.audit.context import Context, neighbourhoods
from isthmus.audit.measure import Adversary, Released, near_distance
from isthmus.core.kinds import Kind
from isthmus.protect.gaussian import clipped
from isthmus.protect.releases import COUNTS, LEFT
from isthmus.train.training import Training
from tests.helpers.small import run_method, small_graph

SILOS = torch.arange(24) % 3
# Directed, with ports: what multi-pna is made of, but for ego ids, which need batches.
MODELS = {**{name: (name, {}) for name in ("gcn", "sage", "gin", "gat", "pna")},
          "directed": ("pna", {"directed": True, "ports": 4}), "batch": ("sage", {"norm": "batch"})}  # fmt: skip


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def people(count: int = 400, features: int = 5) -> Tensor:
    """Features that hang together."""
    return drawn(count, features, seed=1) @ drawn(features, features, seed=2) + drawn(features, seed=3)


def prior_of(x: Tensor) -> Prior:
    return Prior.of(len(x), x.sum(0), x.T @ x)


def knows(x: Tensor, targets: int, noise: float) -> Knowledge:
    return Knowledge([prior_of(x)], torch.tensor([noise], dtype=x.dtype), torch.zeros(targets, dtype=torch.int64))


def error(found: Tensor, true: Tensor) -> float:
    return float((found - true).square().mean())


def test_without_noise_features_are_recovered_exactly() -> None:
    x, weight, bias = people(), drawn(8, 5, seed=4), drawn(8, seed=5)
    targets = x[:50]
    found = infer(lambda x: x @ weight.T + bias, targets @ weight.T + bias, knows(x[50:], 50, 0.0))
    assert float((found - targets).abs().max()) < 1e-8


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("width", [3, 8])
def test_under_noise_it_is_the_mean_of_what_features_can_still_be(width: int, sigma: float) -> None:
    x, weight = people(), drawn(width, 5, seed=4)
    prior, targets = prior_of(x[200:]), x[:200]
    released = targets @ weight.T + sigma * drawn(200, width, seed=6)
    found = infer(lambda x: x @ weight.T, released, knows(x[200:], 200, sigma))
    covariance = prior.root @ prior.root.T
    gain = covariance @ weight.T @ torch.linalg.inv(weight @ covariance @ weight.T + sigma**2 * torch.eye(width))
    assert torch.allclose(found, prior.mean + (released - weight @ prior.mean) @ gain.T, atol=1e-8)
    nearest = released @ torch.linalg.pinv(weight).T
    assert error(found, targets) < error(nearest, targets)
    assert error(found, targets) < error(prior.mean.expand(200, 5), targets)


def test_error_grows_with_noise_up_to_that_of_a_guess() -> None:
    x, weight = people(), drawn(8, 5, seed=4)
    targets, found = x[:200], []
    guess = error(prior_of(x[200:]).mean.expand(200, 5), targets)
    for sigma in (0.0, 0.1, 0.5, 2.0, 8.0, 1000.0):
        released = targets @ weight.T + sigma * drawn(200, 8, seed=6)
        found.append(error(infer(lambda x: x @ weight.T, released, knows(x[200:], 200, sigma)), targets))
    assert found == sorted(found) and found[0] < 1e-16
    assert found[-1] == pytest.approx(guess, rel=0.01)


def test_a_wrong_idea_of_the_noise_costs() -> None:
    x, weight = people(), drawn(8, 5, seed=4)
    released = x[:200] @ weight.T + drawn(200, 8, seed=6)
    said = [error(infer(lambda x: x @ weight.T, released, knows(x[200:], 200, s)), x[:200]) for s in (0.05, 1.0, 20.0)]
    assert said[1] < min(said[0], said[2])


def test_rows_through_relu_and_clipping_are_inverted_as_far_as_they_tell() -> None:
    x, weight = people(), drawn(40, 5, seed=4)

    def rows(x: Tensor) -> Tensor:
        return clipped((x @ weight.T).relu(), 4.0)

    known = knows(x[24:], 24, 1e-6)
    once, often = (infer(rows, rows(x[:24]), known, starts) for starts in (1, 4))
    objective = [known.objective(found, rows(x[:24]) - rows(found)).sum() for found in (once, often)]
    assert objective[1] < objective[0]
    # These rows grow with their features, and clipping takes their length away: what is left is the direction.
    assert float(torch.cosine_similarity(often, x[:24]).min()) > 0.999


def test_each_target_has_the_prior_and_noise_of_its_own_adversary() -> None:
    x, weight = people(), drawn(8, 5, seed=4)
    whose = torch.arange(40) % 2
    known = Knowledge([prior_of(x[40:]), prior_of(x[40:] + 9)], torch.tensor([0.1, 7.0], dtype=x.dtype), whose)
    released = x[:40] @ weight.T + 0.1 * drawn(40, 8, seed=6)
    found = infer(lambda x: x @ weight.T, released, known)
    for number, prior in enumerate(known.priors):
        mine = whose == number
        gap = released[mine] - prior.mean @ weight.T
        alone = linear_estimate(prior, float(known.noise[number]), weight.expand(20, 8, 5), gap)
        assert torch.allclose(found[mine], alone, atol=1e-9)


def exchanged(model: str, **training: object) -> Training:
    """A short run whose rows all left in one last evaluation."""
    name, options = MODELS[model]
    graph = small_graph(24, 70)
    method = "sync-sgd+fwd-bwd-le"
    return run_method(method, graph, SILOS, 3, name, model_options=options, epochs=3, **training).training


def left_rows(run: Training, layer: int) -> tuple[Tensor, Tensor]:
    """Which nodes of the context have left, and as what."""
    node, first = torch.full((sum(s.n + s.h for s in run.federation.silos),), -1), [0, 0]
    for silo in run.federation.silos:
        node[first[0] : first[0] + silo.n] = torch.arange(silo.n) + first[1]
        first = [first[0] + silo.n + silo.h, first[1] + silo.n]
    at = (run.wire.releases.get(COUNTS, Kind.EMBEDDINGS, layer) > 0).nonzero().flatten()
    return node[at], run.wire.releases.get(LEFT, Kind.EMBEDDINGS, layer)[at]


@pytest.mark.parametrize("model", MODELS)
def test_the_adversary_computes_the_rows_that_left(model: str) -> None:
    run = exchanged(model)
    context = Context(run)
    for layer in (0, 1):
        node, rows = left_rows(run, layer)
        assert len(node) > 8
        assert torch.allclose(context.rows(layer)[node], rows, atol=1e-10)
        alone = context.around(node, layer)
        assert torch.allclose(alone(context.features(node)), rows, atol=1e-10)


@pytest.mark.parametrize("model", ["sage", "directed"])
def test_targets_do_not_see_each_other_change(model: str) -> None:
    context = Context(exchanged(model))
    source, target = context.stack.ends[:, 0]
    both = torch.stack([source, target])  # neighbours: each lies in the other's copy
    compute, x = context.around(both, 2), context.features(both)
    moved = x.clone()
    moved[0] += 1
    before, after = compute(x), compute(moved)
    assert not torch.allclose(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_neighbourhoods_hold_no_more_than_asked() -> None:
    context = Context(exchanged("sage"))
    targets = torch.tensor([3, 3, 0])
    for hops in (0, 1):
        stack, place = neighbourhoods(context.stack, targets, hops, False)
        sizes = [1 + len(_sources(context, t) - {t}) * hops for t in targets.tolist()]
        assert stack.rows == sum(sizes) and len(place.unique()) == 3
        assert torch.equal(stack.keys[place], context.stack.keys[targets])


def _sources(context: Context, node: int) -> set[int]:
    ends = context.stack.ends
    return set(ends[0][ends[1] == node].tolist())


def test_together_splits_targets_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(exchanged("sage"))
    targets = torch.arange(10)
    assert [len(some) for some in context.together(targets, 1)] == [10]
    monkeypatch.setattr("isthmus.audit.context._COPIES", 8)
    parts = list(context.together(targets, 1))
    assert len(parts) > 2 and torch.equal(torch.cat(parts), targets)


def test_misfit_is_measured_on_other_silos_rows_and_the_prior_on_their_features() -> None:
    run = exchanged("sage")
    adversary = Adversary(Context(run))
    node, rows = left_rows(run, 0)
    mine = adversary.owner[node] == 1
    wrong = torch.where(mine[:, None], rows + 0.5, rows)
    misfits = adversary.misfits(Released(0, node, torch.ones(len(node)), wrong))
    assert misfits[1] < 1e-8 < 0.1 < float(misfits[[0, 2]].min())
    others = adversary.context.features((adversary.owner != 1).nonzero().flatten())
    prior = adversary.priors[1]
    assert torch.allclose(prior.mean, others.mean(0))
    exact = others.T.cov(correction=0)
    assert torch.allclose(prior.root @ prior.root.T, exact + RIDGE * exact.diagonal().mean() * torch.eye(5))


def test_sample_is_the_same_nodes_at_every_layer() -> None:
    left = Released(0, torch.arange(5, 40), torch.arange(35), drawn(35, 2))
    chosen = left.sample(10, 50, seed=3)
    fewer = left.only(torch.arange(20)).sample(10, 50, seed=3)
    assert len(chosen.node) == 10 and torch.equal(chosen.releases, chosen.node - 5)
    assert set(chosen.node[chosen.node < 25].tolist()) <= set(fewer.node.tolist())
    assert not torch.equal(chosen.node, left.sample(10, 50, seed=4).node)


def test_near_neighbours_by_hand() -> None:
    context = Context(exchanged("sage"))
    everyone = context.features(torch.arange(24))
    apart = (everyone[:, None] - everyone[None]).square().mean(2).fill_diagonal_(9e9)
    assert near_distance(context, torch.tensor([2, 7])) == pytest.approx(float(apart[[2, 7]].amin(1).mean()))


def test_clipped_rows_are_computed_as_clipped() -> None:
    run = exchanged("sage")
    adversary = Adversary(Context(run))
    node, rows = left_rows(run, 0)
    short = float(rows.norm(dim=1).median())
    left = Released(0, node, torch.ones(len(node)), clipped(rows, short), short)
    assert float(adversary.misfits(left).max()) < 1e-8
    assert float(adversary.misfits(replace(left, clip=torch.inf)).min()) > 1e-3


def inferred(adversary: Adversary, left: Released, added: float = 0.0, seed: int = 0) -> Tensor:
    misfits = torch.full((3,), 1e-6, dtype=torch.float64)
    return adversary.infer(left, misfits, added, seed, lambda done: None)


def test_added_noise_is_drawn_and_clipping_is_undone() -> None:
    run = exchanged("sage")
    adversary = Adversary(Context(run))
    node, rows = left_rows(run, 0)
    left, true = Released(0, node, torch.ones(len(node)), rows), adversary.context.features(node)
    assert torch.equal(inferred(adversary, left, seed=0), inferred(adversary, left, seed=1))
    assert not torch.allclose(inferred(adversary, left, 1e-3, seed=0), inferred(adversary, left, 1e-3, seed=1))
    short = float(rows.norm(dim=1).median())
    half = replace(left, rows=clipped(rows, short), clip=short)
    assert error(inferred(adversary, half), true) < 0.5 * error(
        inferred(adversary, replace(half, clip=torch.inf)), true
    )
