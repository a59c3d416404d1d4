"""Masks: what a masked model computes, which parameters have one, and that layers need not know."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.engine.learner import CLASSIFIER
from isthmus.engine.masked import MaskedClassifier
from isthmus.engine.parameter_sets import ParameterSets
from isthmus.engine.settings import TrainConfig
from isthmus.graph.graph import Schema
from isthmus.methods.method import Method
from isthmus.methods.phase import one_phase
from isthmus.nn.masks import is_mask, mask_of, masked
from isthmus.nn.model import GNN, MODELS
from isthmus.nn.sets import drop_masks, unmasked
from isthmus.testing.runs import open_of, small_silos
from isthmus.train.loop import train

SCHEMA = Schema(5, ("a", "b", "c"), edge_features=2)
ALONE = Method("masked", "masked models of silos alone", phases=one_phase(), models={CLASSIFIER: MaskedClassifier(0.5)})


def built(name: str, threshold: float = 1e-3) -> GNN:
    net = MaskedClassifier(threshold).build(SCHEMA, MODELS[name], TrainConfig(batch=4), {})
    assert isinstance(net, GNN)
    net.reset(1)
    return net


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_has_a_mask_of_ones_and_no_vector_has_one(name: str) -> None:
    net = built(name)
    parameters = dict(net.named_parameters())
    sides = {prefix: getattr(part, "sides", 1) for prefix, part in net.named_modules()}
    for full, p in parameters.items():
        prefix, _, last = full.rpartition(".")
        if is_mask(full):
            assert p.shape == parameters[f"{prefix}.{last.removeprefix('mask_')}"].shape and bool((p == 1).all())
        else:
            matrix = p.dim() - (sides[prefix] > 1) >= 3
            assert (f"{prefix}.{mask_of(last)}" in parameters) == matrix, full
    assert sum(map(is_mask, parameters)) >= 3


@pytest.mark.parametrize("name", MODELS)
def test_weights_start_as_they_do_without_masks(name: str) -> None:
    plain = GNN(MODELS[name], SCHEMA, 4)
    plain.reset(1)
    ours = dict(built(name).named_parameters())
    for full, p in plain.named_parameters():
        assert torch.equal(ours[full], p), full


def test_a_masked_weight_is_the_product_and_small_entries_are_off() -> None:
    weight, mask = torch.tensor([2.0, 3.0, 5.0, 7.0]), torch.tensor([1.0, -0.5, 0.09, -0.1])
    assert masked(weight, mask, 0.1).tolist() == [2.0, -1.5, 0.0, 0.0]
    assert torch.equal(masked(weight, mask, 0.0), weight * mask)


def test_gradients_are_those_of_the_product_also_where_a_weight_is_off() -> None:
    weight, mask = (torch.tensor(each, requires_grad=True) for each in ([2.0, 3.0], [0.5, 0.01]))
    masked(weight, mask, 0.1).dot(torch.tensor([10.0, 100.0])).backward()
    assert weight.grad is not None and mask.grad is not None
    assert weight.grad.tolist() == [5.0, 0.0] and mask.grad.tolist() == [20.0, 300.0]


@pytest.mark.parametrize("name", ["gcn", "sage", "gin", "gat", "pna", "multi-pna"])
def test_a_masked_model_is_the_plain_model_with_masked_weights(name: str) -> None:
    """Whatever the layer, and with a set of masks for each silo: logits are those of the products, without masks."""
    options = {"batch": 4, "fanout": (3,)} if name == "multi-pna" else {}
    silos = small_silos()
    ours = open_of(ALONE, silos, name, **options)
    with torch.no_grad():
        for full, p in ours.learner.classifier.sets.parameters.items():
            if is_mask(full):
                p.copy_(torch.rand(p.shape, generator=torch.Generator().manual_seed(len(full)), dtype=p.dtype))
    theirs = open_of(Method("plain", "", phases=one_phase()), silos, name, **options)
    products = ours.learner.unmasked()
    assert products.keys() == theirs.learner.everything().keys()
    for full, live in theirs.learner.everything().items():
        live.copy_(products[full])
    found, wanted = (each.stage.scorer.logits(2)[0] for each in (ours, theirs))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    raw = ours.learner.everything()
    assert not torch.equal(products["enter.weight"], raw["enter.weight"])


def test_masks_are_not_pulled_to_zero_by_weight_decay() -> None:
    """They step along the gradient alone, each silo's own; weights are decayed."""
    training = open_of(ALONE, small_silos(), optimiser="sgd", lr=1.0, weight_decay=0.5)
    sets = training.learner.classifier.sets
    sets.zero_gradients()
    sets.load_gradients(torch.zeros_like(sets.flat_gradients()))
    before = {name: p.detach().clone() for name, p in sets.parameters.items()}
    training.learner.classifier.step([True] * sets.count)
    for name, p in sets.parameters.items():
        torch.testing.assert_close(p.detach(), before[name] if is_mask(name) else 0.5 * before[name])


def test_a_saved_model_needs_no_masks(tmp_path: Path) -> None:
    result = train(open_of(ALONE, small_silos()))
    isthmus.save(result, tmp_path / "model.safetensors", silo=1)
    stored = load_file(tmp_path / "model.safetensors")
    net = GNN(result.training.stage.site.model, result.training.federation.schema)
    assert stored.keys() == ParameterSets(net, 1, 1).everything().keys()
    live: dict[str, Tensor] = result.training.learner.everything()
    kept = torch.nn.functional.hardshrink(live["head.mask_weight"][1], 0.5)
    assert torch.equal(stored["head.weight"][0], live["head.weight"][1] * kept)
    assert torch.equal(unmasked(net)["head.weight"], dict(net.named_parameters())["head.weight"].detach())


def test_masks_that_are_dropped_leave_the_plain_model() -> None:
    net, plain = built("multi-pna"), GNN(MODELS["multi-pna"], SCHEMA, 4)
    drop_masks(net)
    assert [*dict(net.named_parameters())] == [*dict(plain.named_parameters())]
    assert net.enter is not None and net.enter.weight is dict(net.named_parameters())["enter.weight"]


def test_a_threshold_at_or_above_one_is_refused() -> None:
    with pytest.raises(IsthmusError, match=r"threshold is 1.0; it must lie in \[0, 1\)"):
        MaskedClassifier(1.0)
