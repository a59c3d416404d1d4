"""Linear against the obvious loop, and parameter sets: stacking, starting values, errors."""

import copy

import pytest
import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import SparseRows
from isthmus.nn import GAT, BatchNorm, Linear, Rows, Stackable, per_row, product, reset, row_sums, stack_sets
from isthmus.nn.linear import _grouped, _padded

PTRS = [(0, 7), (0, 3, 3, 7), (0, 0, 7), (0, 2, 7, 7), (0, 0, 0), (0, 0)]


def rows(ptr: tuple[int, ...]) -> Rows:
    return Rows(ptr, torch.arange(ptr[-1]))


def obvious(x: Tensor, weight: Tensor, bias: Tensor | None, ptr: tuple[int, ...]) -> Tensor:
    out = []
    for i, (begin, end) in enumerate(zip(ptr, ptr[1:], strict=False)):
        s = i if len(weight) > 1 else 0
        out.append(x[begin:end] @ weight[s] + (0 if bias is None else bias[s]))
    return torch.cat(out)


@pytest.mark.parametrize("ptr", PTRS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("own_sets", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_linear_equals_the_obvious_loop(
    ptr: tuple[int, ...], bias: bool, own_sets: bool, sparse: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    layer = Linear(4, 3, bias).to(dtype)
    stack_sets(layer, len(ptr) - 1 if own_sets else 1, len(ptr) - 1)
    for p in layer.parameters():
        nn.init.normal_(p)
    other = copy.deepcopy(layer)
    dense = torch.randn(ptr[-1], 4, dtype=dtype).relu()
    x = SparseRows.from_dense(dense) if sparse else dense.clone().requires_grad_()
    y = dense.clone().requires_grad_()
    found, expected = layer(x, rows(ptr)), obvious(y, other.weight, other.bias, ptr)
    (found**2).sum().backward()
    (expected**2).sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(layer.weight.grad, other.weight.grad)
    if bias:
        torch.testing.assert_close(layer.bias.grad, other.bias.grad)
    if isinstance(x, Tensor):
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("frozen", ["x", "weight", "bias"])
def test_only_what_needs_a_gradient_gets_one(frozen: str) -> None:
    layer, x = Linear(4, 3), torch.randn(7, 4, requires_grad=True)
    stack_sets(layer, 2, 2)
    tensors = {"x": x, "weight": layer.weight, "bias": layer.bias}
    tensors[frozen].requires_grad_(False)
    layer(x, rows((0, 3, 7))).sum().backward()
    assert {name for name, t in tensors.items() if t.grad is None} == {frozen}


def test_sparse_matrices_are_made_once() -> None:
    layer, x = Linear(4, 3), SparseRows.from_dense(torch.eye(7, 4))
    for _ in range(2):
        layer(x, rows((0, 7))).sum().backward()
    made = dict(x.cache)
    assert len(made) == 2
    layer(x, rows((0, 7))).sum().backward()
    assert all(x.cache[key] is made[key] for key in made) and len(x.cache) == 2


@pytest.mark.parametrize("ptr", PTRS, ids=str)
def test_per_row_and_row_sums_are_transposes(ptr: tuple[int, ...]) -> None:
    p = torch.randn(len(ptr) - 1, 3, dtype=torch.float64, requires_grad=True)
    x = torch.randn(ptr[-1], 3, dtype=torch.float64, requires_grad=True)
    left = (per_row(p, rows(ptr)) * x).sum()
    right = (p * row_sums(x, rows(ptr))).sum()
    torch.testing.assert_close(left, right)
    for a, b in zip(torch.autograd.grad(left, (p, x)), torch.autograd.grad(right, (p, x)), strict=True):
        torch.testing.assert_close(a, b)


def test_second_derivatives_exist_along_sparse_maps() -> None:
    x = SparseRows.from_dense(torch.eye(7, 4).double())
    weight = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda w: product(x, w, None, rows((0, 7))).square(), [weight])


def test_stacking_copies_parameters_by_set_and_buffers_by_silo() -> None:
    model = nn.ModuleDict({"norm": BatchNorm(4), "lin": Linear(4, 3)})
    stack_sets(model, 1, 3)
    assert model["lin"].weight.shape == (1, 4, 3) and model["norm"].mean.shape == (3, 4)
    model = nn.ModuleDict({"norm": BatchNorm(4), "lin": Linear(4, 3)})
    before = model["lin"].weight.detach().clone()
    stack_sets(model, 3, 3)
    torch.testing.assert_close(model["lin"].weight.data, before.expand(3, -1, -1))
    assert model["norm"].scale.shape == (3, 4) and isinstance(model["lin"].weight, nn.Parameter)


def test_stacking_names_what_it_cannot_stack() -> None:
    with pytest.raises(IsthmusError, match=r"'inner.0' is a Linear.*isthmus.nn.Linear"):
        stack_sets(nn.ModuleDict({"inner": nn.Sequential(nn.Linear(2, 2))}), 2, 2)
    with pytest.raises(IsthmusError, match="BatchNorm1d"):
        stack_sets(nn.Sequential(nn.BatchNorm1d(3, affine=False)), 1, 2)
    with pytest.raises(IsthmusError, match="2 parameter sets for 3 silos"):
        stack_sets(Linear(2, 2), 2, 3)
    with pytest.raises(IsthmusError, match="must be 1"):
        stack_sets(_Flat(), 2, 2)
    stacked = Linear(2, 2)
    stack_sets(stacked, 3, 3)
    with pytest.raises(IsthmusError, match="rows of 2 silos"):
        stacked(torch.ones(4, 2), rows((0, 1, 4)))


class _Flat(Stackable):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones(3))


def test_starting_values_follow_from_seed_and_name_alone() -> None:
    one, other = GAT(5, 8, 3), GAT(5, 8, 3).double()
    stack_sets(other, 3, 3)
    torch.manual_seed(1)
    reset(one, 7)
    torch.manual_seed(2)
    reset(other, 7)
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.data.expand(3, *p.shape[1:]), q.data.float())
    assert not torch.equal(one.from_source, one.from_target)
    before, bound = one.lin.weight.detach().clone(), (6 / (5 + 8)) ** 0.5
    assert 0.8 * bound < float(before.abs().max()) <= bound and not bool(one.bias.any())
    reset(one, 8)
    assert not torch.equal(before, one.lin.weight)


@pytest.mark.parametrize("ptr", [(0, 3, 3, 7), (0, 2, 4), (0, 0, 0)])
@pytest.mark.parametrize("biased", [False, True])
def test_padded_products_equal_grouped_ones(ptr: tuple[int, ...], biased: bool) -> None:
    """What a GPU does in one batched product is what a CPU does set by set; empty sets included."""
    held = rows(ptr)
    assert held.padding is not None
    sets = len(ptr) - 1
    leaves = [torch.randn(ptr[-1], 5), torch.randn(sets, 5, 4), torch.randn(sets, 4)][: 2 + biased]
    leaves = [x.double().requires_grad_() for x in leaves]
    bias = leaves[2] if biased else None
    padded = _padded(leaves[0], leaves[1], bias, held.padding)
    grouped = _grouped(leaves[0], leaves[1], bias, held)
    torch.testing.assert_close(padded, grouped)
    found, expected = (torch.autograd.grad(y.square().sum(), leaves) for y in (padded, grouped))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_very_unequal_silos_are_not_padded() -> None:
    """Nine silos of one row beside one of ninety would make ten times ninety rows."""
    assert rows((*range(10), 99)).padding is None
