"""Normalisation against torch's, for one silo, several, and all in agreement; dropout for any placement."""

import copy

import pytest
import torch
from torch import Tensor, nn

from isthmus.nn import BatchNorm, LayerNorm, Pass, Rows, dropout, stack_sets
from isthmus.nn.norm import Norm, rounded

TRAIN, TEST = Pass(training=True), Pass(training=False)


def rows(*ptr: int, owned: Tensor | None = None) -> Rows:
    return Rows(ptr, torch.arange(ptr[-1]) * 7 + 3, owned)


def draw(n: int, width: int = 4) -> Tensor:
    return torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) * 2 + 1


def same(found: Tensor | None, expected: Tensor | None) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def reference(width: int = 4) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(width).double()
    nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    return norm


def like(norm: nn.BatchNorm1d) -> BatchNorm:
    ours = BatchNorm(norm.num_features).double()
    ours.scale.data, ours.shift.data = norm.weight.data[None].clone(), norm.bias.data[None].clone()
    return ours


def agreed(training: bool = True) -> Pass:
    return Pass(training, total=lambda sums: sums.sum(0))


@pytest.mark.parametrize("this_pass", [TRAIN, agreed()], ids=["own", "agreed"])
def test_one_silo_equals_torch(this_pass: Pass) -> None:
    theirs = reference()
    ours = like(theirs)
    for n in (9, 5):
        x, y = draw(n).requires_grad_(), draw(n).requires_grad_()
        found, expected = ours(x, rows(0, n), this_pass), theirs(y)
        found.pow(3).sum().backward()
        expected.pow(3).sum().backward()
        same(found, expected)
        same(x.grad, y.grad)
    same(ours.scale.grad, theirs.weight.grad[None])
    same(ours.shift.grad, theirs.bias.grad[None])
    same(ours.mean, theirs.running_mean[None])
    same(ours.var, theirs.running_var[None])
    theirs.eval()
    same(ours(draw(6), rows(0, 6), TEST), theirs(draw(6)))


@pytest.mark.parametrize("sets", [1, 3])
def test_own_moments_of_three_silos_equal_three_norms(sets: int) -> None:
    theirs = [reference() for _ in range(3)] if sets == 3 else [reference()] * 3
    theirs = [copy.deepcopy(each) for each in theirs]
    ours = like(theirs[0])
    stack_sets(ours, sets, 3)
    if sets == 3:
        ours.scale.data = torch.stack([each.weight.data for each in theirs])
        ours.shift.data = torch.stack([each.bias.data for each in theirs])
    x, y, at = draw(12).requires_grad_(), draw(12).requires_grad_(), rows(0, 3, 8, 12)
    found = ours(x, at, TRAIN)
    expected = torch.cat([norm(part) for norm, part in zip(theirs, y.split([3, 5, 4]), strict=True)])
    found.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    same(found, expected)
    same(x.grad, y.grad)
    same(ours.mean, torch.stack([each.running_mean for each in theirs]))
    same(ours.var, torch.stack([each.running_var for each in theirs]))
    for each in theirs:
        each.eval()
    parts = zip(theirs, draw(12).split([3, 5, 4]), strict=True)
    same(ours(draw(12), at, TEST), torch.cat([norm(part) for norm, part in parts]))


def test_agreed_moments_of_three_silos_equal_one_norm_over_all_rows() -> None:
    theirs = reference()
    ours = like(theirs)
    stack_sets(ours, 1, 4)
    x, y, at = draw(12).requires_grad_(), draw(12).requires_grad_(), rows(0, 3, 8, 8, 12)
    found, expected = ours(x, at, agreed()), theirs(y)
    found.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    same(found, expected)
    same(x.grad, y.grad)
    same(ours.mean, theirs.running_mean.expand(4, -1))
    same(ours.var, theirs.running_var.expand(4, -1))


def test_moments_count_owned_rows_only() -> None:
    owned = torch.tensor([True] * 6 + [False] * 3)
    ours, alone, h = BatchNorm(4).double(), BatchNorm(4).double(), draw(9)
    found = ours(h, rows(0, 9, owned=owned), TRAIN)
    same(found[:6], alone(h[:6], rows(0, 6), TRAIN))
    same(ours.mean, alone.mean)
    assert torch.isfinite(found).all()


def test_a_silo_without_rows_keeps_its_running_moments() -> None:
    ours = BatchNorm(4).double()
    stack_sets(ours, 1, 3)
    h = draw(6).requires_grad_()
    ours(h, rows(0, 0, 5, 6), TRAIN).sum().backward()
    same(ours.mean[0], torch.zeros(4, dtype=torch.float64))
    same(ours.var[0], torch.ones(4, dtype=torch.float64))
    assert torch.isfinite(ours.var).all() and torch.isfinite(h.grad).all() and bool(ours.mean[1:].any())


@pytest.mark.parametrize("sets", [1, 2])
def test_layer_norm_equals_torch(sets: int) -> None:
    theirs = [nn.LayerNorm(4).double() for _ in range(2)]
    ours = LayerNorm(4).double()
    stack_sets(ours, sets, 2)
    for i, each in enumerate(theirs[:sets]):
        nn.init.normal_(each.weight), nn.init.normal_(each.bias)
        ours.scale.data[i], ours.shift.data[i] = each.weight.data, each.bias.data
    h = draw(7)
    expected = torch.cat([theirs[0](h[:3]), theirs[sets - 1](h[3:])])
    same(ours(h, rows(0, 3, 7), TRAIN), expected)


def test_only_batch_norm_takes_away_a_constant() -> None:
    assert BatchNorm.centres and not LayerNorm.centres and not Norm.centres


def test_dropout_follows_the_row_wherever_it_lies() -> None:
    h, whole = torch.ones(40, 10), rows(0, 40)
    here = Pass(True, seed=3, step=5)
    mask = dropout(h, whole, 0.3, 2, here)
    order = torch.randperm(40)
    moved = dropout(h, Rows((0, 13, 40), whole.keys[order]), 0.3, 2, here)
    assert torch.equal(moved, mask[order])
    for other in (Pass(True, seed=4, step=5), Pass(True, seed=3, step=6)):
        assert not torch.equal(dropout(h, whole, 0.3, 2, other), mask)
    assert not torch.equal(dropout(h, whole, 0.3, 1, here), mask)


def test_dropout_keeps_the_expectation_and_rests_in_evaluation() -> None:
    h, at = torch.ones(2000, 30, requires_grad=True), rows(0, 2000)
    out = dropout(h, at, 0.3, 0, TRAIN)
    assert abs(float(out.detach().mean()) - 1) < 0.02
    kept = out.detach()[out.detach() > 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - rounded(0.3))))
    out.sum().backward()
    assert torch.equal(h.grad, out.detach())
    assert dropout(h, at, 0.3, 0, TEST) is h and dropout(h, at, 0.0, 0, TRAIN) is h
