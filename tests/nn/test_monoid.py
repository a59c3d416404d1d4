"""Aggregates: against the obvious loop, exact merging for every split of the edges, gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.nn import MAX, MEAN, MOMENTS, SUM, Block, Message, Monoid
from isthmus.nn.maps import gather, gather_targets, select, sum_edges, sum_rows
from isthmus.testing import random_block, some_edges

MONOIDS = {"sum": SUM, "mean": MEAN, "max": MAX, "moments": MOMENTS}
KINDS = ["rows", "weighted", "trained", "values", "both"]


def message(block: Block, kind: str, seed: int = 0) -> Message:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        # Small whole numbers: sums are exact in any order, and ties are common.
        return torch.randint(-3, 4, shape, generator=generator).double().requires_grad_()

    rows, values, weight = draw(len(block.sources), 3), draw(len(block.src), 3), draw(len(block.src))
    return {
        "rows": Message(rows=rows),
        "weighted": Message(rows=rows, weight=weight.detach()),
        "trained": Message(rows=rows, weight=weight, values=values),
        "values": Message(values=values),
        "both": Message(rows=rows, values=values, weight=weight.detach()),
    }[kind]


def part_of(whole: Message, kept: Tensor) -> Message:
    return Message(
        rows=whole.rows,
        values=None if whole.values is None else whole.values[kept],
        weight=None if whole.weight is None else whole.weight[kept],
    )


@pytest.mark.parametrize("name", MONOIDS)
@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(1, 6), edges=st.integers(0, 15), seed=st.integers(0, 99), kind=st.sampled_from(KINDS),
    data=st.data(),
)  # fmt: skip
def test_parts_merge_to_the_whole(name: str, nodes: int, edges: int, seed: int, kind: str, data: st.DataObject) -> None:
    monoid, block = MONOIDS[name], random_block(nodes, edges, seed)
    whole = message(block, kind, seed)
    kept = torch.tensor(data.draw(st.lists(st.booleans(), min_size=edges, max_size=edges)), dtype=torch.bool)
    parts = []
    for half in (kept, ~kept):
        parts.append(monoid.reduce(part_of(whole, half), some_edges(block, half)))
    merged, expected = monoid.merge(*parts), monoid.reduce(whole, block)
    assert merged.keys() == expected.keys()
    for key in expected:
        assert torch.equal(merged[key], expected[key])
    assert torch.isfinite(monoid.finish(merged)).all()


def obvious(monoid: Monoid, whole: Message, block: Block) -> Tensor:
    """One target after the other, one edge after the other."""
    each = []
    for e in range(len(block.src)):
        one = torch.zeros(3, dtype=torch.float64)
        if whole.rows is not None:
            one = one + (1 if whole.weight is None else whole.weight[e]) * whole.rows[block.src[e]]
        each.append(one if whole.values is None else one + whole.values[e])
    out = []
    for v in range(len(block.targets)):
        mine = [each[e] for e in range(len(each)) if block.dst[e] == v]
        out.append(_aggregate(monoid, torch.stack(mine)) if mine else None)
    width = 12 if monoid is MOMENTS else 3
    found = torch.stack([torch.zeros(width, dtype=torch.float64) if row is None else row for row in out])
    return found.view(1, -1, 4, 3) if monoid is MOMENTS else found


def _aggregate(monoid: Monoid, each: Tensor) -> Tensor:
    if monoid is SUM:
        return each.sum(0)
    if monoid is MEAN:
        return each.mean(0)
    if monoid is MAX:
        return each.amax(0)
    variance = each.square().mean(0) - each.mean(0).square()
    deviation = torch.where(variance > 1e-5, variance.clamp(min=1e-5).sqrt(), 0.0)
    return torch.cat((each.mean(0), each.amin(0), each.amax(0), deviation))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MONOIDS)
def test_reduce_equals_the_obvious_loop(name: str, kind: str) -> None:
    monoid, block = MONOIDS[name], random_block(6, 14, 3)
    whole = message(block, kind, 3)
    leaves = [t for t in (whole.rows, whole.values, whole.weight) if t is not None and t.requires_grad]
    found, expected = monoid.finish(monoid.reduce(whole, block)), obvious(monoid, whole, block)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    for a, b in zip(
        torch.autograd.grad((found * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("edges", [0, 6])
def test_maps_are_linear_with_right_transposes(edges: int) -> None:
    block, weight = random_block(5, edges), torch.randn(edges, dtype=torch.float64)
    for along, size in ((gather, 5), (gather_targets, 5), (sum_edges, edges), (sum_rows, 5)):
        x = torch.randn(size, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda y, f=along: f(y, block), [x])
        assert torch.autograd.gradgradcheck(lambda y, f=along: f(y, block).square(), [x])
    x = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: sum_rows(y, block, weight), [x])
    assert torch.autograd.gradcheck(lambda y: select(y, block.dst), [x])


def test_the_same_block_serves_both_number_formats() -> None:
    block = random_block(5, 9)
    x = torch.randn(5, 2, dtype=torch.float64)
    torch.testing.assert_close(sum_rows(x.float(), block).double(), sum_rows(x, block), rtol=1e-6, atol=1e-6)


def test_an_empty_message_is_an_error() -> None:
    with pytest.raises(IsthmusError, match="rows or values"):
        Message()
    with pytest.raises(IsthmusError, match="weight"):
        Message(values=torch.ones(1, 1), weight=torch.ones(1))
