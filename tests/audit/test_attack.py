"""Attribute inference: exact where nothing protects, the best estimate under noise, in the context of the run."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from isthmus.audit.attributes import RIDGE, Knowledge, Prior, RowFunction, View, infer, linear_estimate
from isthmus.audit.context import Context, neighbourhoods
from isthmus.audit.history import History
from isthmus.audit.row_attacks import Adversary, Released, near_distance
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


def knows(x: Tensor, targets: int) -> Knowledge:
    return Knowledge([prior_of(x)], torch.zeros(targets, dtype=torch.int64))


def seen(rows: RowFunction, released: Tensor, noise: float) -> list[View]:
    """One view of rows that were released with some noise."""
    return [View(rows, released, torch.full((len(released),), noise, dtype=released.dtype))]


def error(found: Tensor, true: Tensor) -> float:
    return float((found - true).square().mean())


def test_without_noise_features_are_recovered_exactly() -> None:
    x, weight, bias = people(), drawn(8, 5, seed=4), drawn(8, seed=5)
    targets = x[:50]
    views = seen(lambda x: x @ weight.T + bias, targets @ weight.T + bias, 0.0)
    assert float((infer(views, knows(x[50:], 50)) - targets).abs().max()) < 1e-8


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("width", [3, 8])
def test_under_noise_it_is_the_mean_of_what_features_can_still_be(width: int, sigma: float) -> None:
    x, weight = people(), drawn(width, 5, seed=4)
    prior, targets = prior_of(x[200:]), x[:200]
    released = targets @ weight.T + sigma * drawn(200, width, seed=6)
    found = infer(seen(lambda x: x @ weight.T, released, sigma), knows(x[200:], 200))
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
        found.append(error(infer(seen(lambda x: x @ weight.T, released, sigma), knows(x[200:], 200)), targets))
    assert found == sorted(found) and found[0] < 1e-16
    assert found[-1] == pytest.approx(guess, rel=0.01)


def test_a_wrong_idea_of_the_noise_costs() -> None:
    x, weight = people(), drawn(8, 5, seed=4)
    released = x[:200] @ weight.T + drawn(200, 8, seed=6)
    said = [
        error(infer(seen(lambda x: x @ weight.T, released, noise), knows(x[200:], 200)), x[:200])
        for noise in (0.05, 1.0, 20.0)
    ]
    assert said[1] < min(said[0], said[2])


def test_several_views_are_weighed_by_their_noise() -> None:
    """Two views of different maps and noise give the posterior mean; one that never left changes nothing."""
    x, maps = people(), (drawn(3, 5, seed=4), drawn(4, 5, seed=7))
    prior, sigmas = prior_of(x[200:]), (0.5, 2.0)
    rows = [x[:200] @ m.T + s * drawn(200, len(m), seed=i) for i, (m, s) in enumerate(zip(maps, sigmas, strict=True))]
    views = [
        View(lambda x, m=m: x @ m.T, row, torch.full((200,), s, dtype=x.dtype))  # type: ignore[misc]
        for m, row, s in zip(maps, rows, sigmas, strict=True)
    ]
    both = torch.cat(maps)
    noise = torch.diag(torch.tensor([0.25] * 3 + [4.0] * 4, dtype=x.dtype))
    covariance = prior.root @ prior.root.T
    gain = covariance @ both.T @ torch.linalg.inv(both @ covariance @ both.T + noise)
    exact = prior.mean + (torch.cat(rows, 1) - both @ prior.mean) @ gain.T
    assert torch.allclose(infer(views, knows(x[200:], 200)), exact, atol=1e-8)
    never = View(lambda x: x @ maps[0].T, 9 * rows[0], torch.full((200,), torch.inf, dtype=x.dtype))
    assert torch.allclose(infer([*views, never], knows(x[200:], 200)), exact, atol=1e-8)


def test_rows_through_relu_and_clipping_are_inverted_as_far_as_they_tell() -> None:
    x, weight = people(), drawn(40, 5, seed=4)

    def rows(x: Tensor) -> Tensor:
        return clipped((x @ weight.T).relu(), 4.0)

    known, noise = knows(x[24:], 24), torch.full((24,), 1e-6, dtype=x.dtype)
    once, often = (infer([View(rows, rows(x[:24]), noise)], known, starts) for starts in (1, 4))
    objective = [known.objective(found, rows(x[:24]) - rows(found), noise).sum() for found in (once, often)]
    assert objective[1] < objective[0]
    # These rows grow with their features, and clipping takes their length away: what is left is the direction.
    assert float(torch.cosine_similarity(often, x[:24]).min()) > 0.999


def test_each_target_has_the_prior_and_noise_of_its_own_adversary() -> None:
    x, weight = people(), drawn(8, 5, seed=4)
    whose = torch.arange(40) % 2
    known = Knowledge([prior_of(x[40:]), prior_of(x[40:] + 9)], whose)
    noise = torch.tensor([0.1, 7.0], dtype=x.dtype)[whose]
    released = x[:40] @ weight.T + 0.1 * drawn(40, 8, seed=6)
    found = infer([View(lambda x: x @ weight.T, released, noise)], known)
    for number, prior in enumerate(known.priors):
        mine = whose == number
        gap = released[mine] - prior.mean @ weight.T
        alone = linear_estimate(prior, noise[mine], weight.expand(20, 8, 5), gap)
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
        alone = context.around(node, layer).rows({})
        assert torch.allclose(alone(context.rows(0)[node]), rows, atol=1e-10)


@pytest.mark.parametrize("model", ["sage", "directed"])
def test_targets_do_not_see_each_other_change(model: str) -> None:
    context = Context(exchanged(model))
    source, target = context.stack.ends[:, 0]
    both = torch.stack([source, target])  # neighbours: each lies in the other's copy
    compute, h = context.around(both, 2).rows({}), context.rows(0)[both]
    moved = h.clone()
    moved[0] += 1
    before, after = compute(h), compute(moved)
    assert not torch.allclose(before[0], after[0])
    assert torch.equal(before[1], after[1])


def test_rows_are_made_by_the_parameters_that_are_given() -> None:
    context = Context(exchanged("sage"))
    node, live = torch.arange(5), context.training.learner.classifier.sets.everything()
    before = {name: live[name].clone() for name in ("layers.0.near.weight", "enter.weight")}
    then = context.around(node, 1)
    old = then.rows(before)
    new = then.rows({name: 2 * value for name, value in before.items()})
    h = context.rows(0)[node]
    assert not torch.allclose(old(h), new(h))
    assert torch.equal(old(h), then.rows(before)(h))  # whichever was asked for last


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


def once(run: Training, layer: int, clip: float = torch.inf, change: Tensor | float = 0.0) -> Released:
    """The last release of every row at a layer, as if it were the only one, made by the parameters of the end."""
    node, rows = left_rows(run, layer)
    history = History(len(node), 3)
    known = {name: value.clone() for name, value in run.learner.classifier.sets.everything().items()}
    history.add(torch.arange(len(node)), clipped(rows + change, clip), known)
    return Released(layer, node, history, clip)


def test_misfit_is_measured_on_other_silos_rows_and_the_prior_on_their_features() -> None:
    run = exchanged("sage")
    adversary = Adversary(Context(run))
    mine = adversary.owner[left_rows(run, 0)[0]] == 1
    (misfits,) = adversary.misfits(once(run, 0, change=0.5 * mine[:, None]))
    assert misfits[1] < 1e-16 < 0.01 < float(misfits[[0, 2]].min())
    others = adversary.context.features((adversary.owner != 1).nonzero().flatten())
    prior = adversary.priors[1]
    assert torch.equal(adversary.priors.means[1], prior.mean) and len(adversary.priors) == 3
    assert torch.allclose(prior.mean, others.mean(0))
    exact = others.T.cov(correction=0)
    assert torch.allclose(prior.root @ prior.root.T, exact + RIDGE * exact.diagonal().mean() * torch.eye(5))


def test_near_neighbours_by_hand() -> None:
    context = Context(exchanged("sage"))
    everyone = context.features(torch.arange(24))
    apart = (everyone[:, None] - everyone[None]).square().mean(2).fill_diagonal_(9e9)
    assert near_distance(context, torch.tensor([2, 7])) == pytest.approx(float(apart[[2, 7]].amin(1).mean()))


def test_clipped_rows_are_computed_as_clipped() -> None:
    run = exchanged("sage")
    adversary = Adversary(Context(run))
    short = float(left_rows(run, 0)[1].norm(dim=1).median())
    left = once(run, 0, clip=short)
    assert float(adversary.misfits(left).max()) < 1e-16
    assert float(adversary.misfits(replace(left, clip=torch.inf)).min()) > 1e-6


def inferred(adversary: Adversary, left: Released, added: float = 0.0, seed: int = 0) -> Tensor:
    misfits = torch.full((1, 3), 1e-12, dtype=torch.float64)
    return adversary.infer(left, misfits, added, seed, lambda done: None)


def test_added_noise_is_drawn_and_clipping_is_undone() -> None:
    run = exchanged("sage")
    adversary = Adversary(Context(run))
    left = once(run, 0)
    true = adversary.context.features(left.node)
    assert error(inferred(adversary, left), true) < 1e-9
    assert torch.equal(inferred(adversary, left, seed=0), inferred(adversary, left, seed=1))
    assert not torch.allclose(inferred(adversary, left, 1e-3, seed=0), inferred(adversary, left, 1e-3, seed=1))
    half = once(run, 0, clip=float(left_rows(run, 0)[1].norm(dim=1).median()))
    unaware = inferred(adversary, replace(half, clip=torch.inf))
    assert error(inferred(adversary, half), true) < 0.5 * error(unaware, true)


def test_behind_a_layer_the_search_in_embeddings_finds_what_a_search_in_features_finds() -> None:
    run = exchanged("sage")
    context = Context(run)
    adversary, left = Adversary(context), once(run, 1)
    found = inferred(adversary, left)
    compute = context.around(left.node, 1).rows({})
    weight = run.learner.classifier.sets.parameters["enter.weight"].detach()[0]
    bias = run.learner.classifier.sets.parameters["enter.bias"].detach()[0]
    views = seen(lambda x: compute(x @ weight + bias), left.history.blocks[0].mean, 1e-6)
    known = Knowledge([adversary.priors[silo] for silo in adversary.priors], adversary.owner[left.node])
    plain = infer(views, known, 3)
    true = context.features(left.node)
    assert error(found, true) < 0.5 * error(adversary.guess(left.node), true)
    assert error(found, true) == pytest.approx(error(plain, true), rel=0.2)
