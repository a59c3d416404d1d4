"""Every layer keeps the contract and equals PyG's operator, with isolated nodes and parallel edges."""

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv, PNAConv, SAGEConv
from torch_geometric.utils import scatter

from isthmus.core.errors import IsthmusError
from isthmus.nn import GAT, GCN, GIN, MAX, PNA, SAGE, Block, Dense, Layer, Message
from isthmus.nn.maps import transpose
from isthmus.nn.sage_gcn import SAGEGCN
from isthmus.testing import EDGE, LayerContract, random_block, some_edges

DTYPES = {torch.float64: 1e-12, torch.float32: 1e-5}
Pairs = list[tuple[Callable[[], Tensor | None], Callable[[], Tensor | None]]]


class TestGCN(LayerContract):
    layer = GCN


class TestSAGE(LayerContract):
    layer = SAGE


class TestNarrowingSAGE(LayerContract):
    @staticmethod
    def layer(inputs: int, outputs: int, edge: int) -> Layer:
        return SAGE(inputs, 3, edge)  # fewer outputs than inputs: mapped before the mean


class TestSAGEMax(LayerContract):
    @staticmethod
    def layer(inputs: int, outputs: int, edge: int) -> Layer:
        return SAGE(inputs, outputs, edge, aggregate="max")


class TestSAGEGCN(LayerContract):
    layer = SAGEGCN


class TestNarrowingSAGEGCN(LayerContract):
    @staticmethod
    def layer(inputs: int, outputs: int, edge: int) -> Layer:
        return SAGEGCN(inputs, 3, edge)  # fewer outputs than inputs: mapped before the mean


class TestGIN(LayerContract):
    layer = GIN


class TestGINTrainedEps(LayerContract):
    @staticmethod
    def layer(inputs: int, outputs: int, edge: int) -> Layer:
        return GIN(inputs, outputs, edge, train_eps=True)


class TestGAT(LayerContract):
    layer = GAT


class TestGATMean(LayerContract):
    @staticmethod
    def layer(inputs: int, outputs: int, edge: int) -> Layer:
        return GAT(inputs, outputs, edge, heads=3, concat=False)


class TestPNA(LayerContract):
    layer = PNA


class TestDense(LayerContract):
    layer = Dense


def compare(ours: Layer, theirs: nn.Module, pairs: Pairs, block: Block, dtype: torch.dtype) -> None:
    """Same output, same gradient of inputs, edge encodings and every parameter named in ``pairs``."""
    tolerance = DTYPES[dtype]
    edge = torch.stack((block.src, block.dst))
    grads = []
    for module in (ours, theirs):
        h = torch.randn(len(block.sources), 5, generator=torch.Generator().manual_seed(1)).to(dtype)
        attr = block.attr.to(dtype).clone().requires_grad_()
        h.requires_grad_()
        if module is ours:
            out = ours(h, block, attr if ours.edge else None)
        else:
            out = theirs(h, edge, attr) if ours.edge else theirs(h, edge)
        torch.manual_seed(0)
        (out * torch.randn(out.shape, dtype=torch.float64).to(dtype)).sum().backward()
        grads.append([out, h.grad, attr.grad])
    named = [(mine(), other()) for mine, other in pairs]
    for found, expected in [*zip(*grads, strict=True), *named]:
        if expected is None:
            assert found is None
            continue
        scale = max([1.0, *expected.detach().abs().flatten().tolist()])
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * scale)


def tie(pairs: Pairs, mine: nn.Parameter, other: nn.Parameter, view: Callable[[Tensor], Tensor]) -> None:
    """Give ``mine`` the values of ``other``, seen through ``view``, and remember to compare the gradients."""
    with torch.no_grad():
        mine.copy_(view(other))
    pairs.append((lambda: mine.grad, lambda: view(other.grad)))


def linear(pairs: Pairs, mine: nn.Module, other: nn.Module) -> None:
    tie(pairs, mine.weight, other.weight, lambda w: w.T[None])
    if other.bias is not None:
        tie(pairs, mine.bias, other.bias, lambda b: b[None])


BLOCKS = [random_block(9, 24, 5, alone=2), random_block(30, 90, 6), random_block(5, 0)]


@pytest.fixture(params=range(len(BLOCKS)), ids=["small", "large", "no edges"])
def block(request: pytest.FixtureRequest) -> Block:
    return BLOCKS[request.param]


@pytest.fixture(params=list(DTYPES), ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    torch.manual_seed(3)
    return request.param


def _strip_loops(block: Block) -> Block:
    part = some_edges(block, block.src != block.dst)
    degree = torch.bincount(part.dst, minlength=len(part.targets))
    part.src_degree = part.dst_degree = degree
    return part


def test_gcn(block: Block, dtype: torch.dtype) -> None:
    ours, theirs, pairs = GCN(5, 8).to(dtype), GCNConv(5, 8).to(dtype), []
    nn.init.normal_(theirs.bias)
    tie(pairs, ours.lin.weight, theirs.lin.weight, lambda w: w.T[None])
    tie(pairs, ours.bias, theirs.bias, lambda b: b[None])
    compare(ours, theirs, pairs, _strip_loops(block), dtype)


@pytest.mark.parametrize("aggregate", ["mean", "max"])
@pytest.mark.parametrize("outputs", [8, 3])
def test_sage(block: Block, dtype: torch.dtype, aggregate: str, outputs: int) -> None:
    ours = SAGE(5, outputs, aggregate=aggregate).to(dtype)
    theirs, pairs = SAGEConv(5, outputs, aggr=aggregate).to(dtype), []
    tie(pairs, ours.near.weight, theirs.lin_l.weight, lambda w: w.T[None])
    tie(pairs, ours.own.bias, theirs.lin_l.bias, lambda b: b[None])
    linear(pairs, ours.own, theirs.lin_r)
    compare(ours, theirs, pairs, block, dtype)


@pytest.mark.parametrize("outputs", [3, 5, 8])
def test_sage_gcn_is_the_mean_over_a_node_and_its_neighbours(outputs: int) -> None:
    """On either side of the width from which on rows are multiplied after their mean."""
    block = random_block(12, 40)
    layer = SAGEGCN(5, outputs).double()
    x = torch.randn(12, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert layer.bias is not None
    for v, row in enumerate(layer(x, block)):
        read = torch.cat([x[v : v + 1], x[block.src[block.dst == v]]])
        torch.testing.assert_close(row, read.mean(0) @ layer.lin.weight[0] + layer.bias[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 7, 50])
def test_a_transpose_keeps_the_order_of_rows_within_a_column(columns: int) -> None:
    index = torch.randint(columns, (40,), generator=torch.Generator().manual_seed(2))
    ptr, order = transpose(index, columns)
    assert torch.equal(order, torch.argsort(index, stable=True)) and order.dtype == ptr.dtype == torch.int64
    assert torch.equal(ptr.diff(), torch.bincount(index, minlength=columns)) and ptr[0] == 0
    nothing = transpose(index[:0], columns)
    assert nothing[0].tolist() == [0] * (columns + 1) and nothing[1].tolist() == []


@pytest.mark.parametrize("train_eps", [False, True])
@pytest.mark.parametrize("edge", [0, EDGE])
def test_gin(block: Block, dtype: torch.dtype, edge: int, train_eps: bool) -> None:
    mlp = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8))
    theirs = GINEConv(mlp, train_eps=train_eps, edge_dim=edge) if edge else GINConv(mlp, train_eps=train_eps)
    ours, theirs, pairs = GIN(5, 8, edge, train_eps=train_eps).to(dtype), theirs.to(dtype), []
    tie(pairs, ours.first.weight, mlp[0].weight, lambda w: w.T[None])
    tie(pairs, ours.first_bias, mlp[0].bias, lambda b: b[None])
    linear(pairs, ours.second, mlp[2])
    if train_eps:
        nn.init.constant_(theirs.eps, 0.3)
        tie(pairs, ours.eps, theirs.eps, lambda e: e[None])
    if edge:
        linear(pairs, ours.encode, theirs.lin)
    compare(ours, theirs, pairs, block, dtype)


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("edge", [0, EDGE])
def test_gat(block: Block, dtype: torch.dtype, edge: int, concat: bool) -> None:
    ours = GAT(5, 8, edge, heads=4, concat=concat).to(dtype)
    theirs = GATConv(5, 2 if concat else 8, heads=4, concat=concat, edge_dim=edge or None).to(dtype)
    nn.init.normal_(theirs.bias)
    pairs: Pairs = []
    tie(pairs, ours.lin.weight, theirs.lin.weight, lambda w: w.T[None])
    tie(pairs, ours.from_source, theirs.att_src, lambda a: a)
    tie(pairs, ours.from_target, theirs.att_dst, lambda a: a)
    tie(pairs, ours.bias, theirs.bias, lambda b: b[None])
    if edge:
        tie(pairs, ours.encode.weight, theirs.lin_edge.weight, lambda w: w.T[None])
        tie(pairs, ours.from_edge, theirs.att_edge, lambda a: a)
    compare(ours, theirs, pairs, block, dtype)


@pytest.mark.parametrize("edge", [0, EDGE])
def test_pna(block: Block, dtype: torch.dtype, edge: int) -> None:
    histogram = torch.bincount(block.count)
    if len(histogram) == 1:
        histogram = torch.tensor([3, 2])  # PyG divides by a mean degree of 0
    theirs = PNAConv(
        5, 8, ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"],
        histogram, edge_dim=edge or None, towers=4,
    ).to(dtype)  # fmt: skip
    ours = PNA(5, 8, edge, towers=4).to(dtype)
    ours.set_degree(theirs.aggr_module.avg_deg_log)
    pairs: Pairs = []
    by_tower = [theirs.pre_nns[t][0].weight for t in range(4)]
    for part, mine in enumerate((ours.target, ours.source, *([ours.mix] if edge else []))):
        _towers(pairs, mine.weight, by_tower, lambda w, part=part: w[:, 5 * part : 5 * part + 5].T[None])
    _towers(pairs, ours.target.bias, [theirs.pre_nns[t][0].bias for t in range(4)], lambda b: b[None])
    post = [theirs.post_nns[t][0] for t in range(4)]
    _towers(pairs, ours.own.weight, [p.weight for p in post], lambda w: w[:, :5].T[None])
    _towers(pairs, ours.own.bias, [p.bias for p in post], lambda b: b[None])
    for t in range(4):
        tie(pairs, _Part(ours.post, t), post[t].weight, lambda w: torch.cat(w[:, 5:].T.split(20), 1)[None])
    linear(pairs, ours.out, theirs.lin)
    if edge:
        linear(pairs, ours.encode, theirs.edge_encoder)
    compare(ours, theirs, pairs, block, dtype)


class _Part:
    """One tower of a parameter."""

    def __init__(self, parameter: nn.Parameter, tower: int) -> None:
        self.parameter, self.tower = parameter, tower

    def copy_(self, value: Tensor) -> None:
        self.parameter[:, self.tower] = value

    @property
    def grad(self) -> Tensor:
        return self.parameter.grad[:, self.tower]


def _towers(pairs: Pairs, mine: nn.Parameter, each: list[nn.Parameter], view: Callable[..., Tensor]) -> None:
    with torch.no_grad():
        mine.copy_(torch.cat([view(p) for p in each], -1))
    pairs.append((lambda: mine.grad, lambda: torch.cat([view(p.grad) for p in each], -1)))


def test_ties_share_the_gradient_as_in_pyg() -> None:
    """All rows equal, as in graphs without features: every maximum is a tie."""
    block = random_block(9, 24, 5, alone=2)
    mine, other = (torch.ones(9, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weight = torch.randn(9, 5, dtype=torch.float64)
    (weight * MAX.finish(MAX.reduce(Message(rows=mine), block))).sum().backward()
    (weight * scatter(other[block.src], block.dst, dim_size=9, reduce="max")).sum().backward()
    torch.testing.assert_close(mine.grad, other.grad)


def test_gcn_of_a_sample_is_unbiased() -> None:
    """The mean over all samples of 2 neighbours is the sum over all of them."""
    block = random_block(6, 12, 2, alone=0)
    layer, h = GCN(5, 8).double(), torch.randn(6, 5, dtype=torch.float64)
    target = int(block.count.argmax())
    into = (block.dst == target).nonzero().flatten()
    outs = []
    for pair in combinations(into.tolist(), 2):
        kept = torch.ones(len(block.dst), dtype=torch.bool)
        kept[into] = False
        kept[list(pair)] = True
        outs.append(layer(h, some_edges(block, kept))[target])
    torch.testing.assert_close(torch.stack(outs).mean(0), layer(h, block)[target])


def test_errors_tell_the_next_step() -> None:
    block = random_block(4, 5)
    h = torch.randn(4, 5)
    with pytest.raises(IsthmusError, match="divisor of 7"):
        PNA(5, 7)
    with pytest.raises(IsthmusError, match="divisor of 7"):
        GAT(5, 7)
    with pytest.raises(IsthmusError, match="Did you mean 'mean'"):
        SAGE(5, 8, aggregate="meen")
    with pytest.raises(IsthmusError, match="edge=0"):
        GCN(5, 8, 3)
    with pytest.raises(IsthmusError, match="none came"):
        GIN(5, 8, 3)(h, block)
    with pytest.raises(IsthmusError, match="softmax.*rows"):
        GAT(5, 8)(h, block, beyond={})
    block.src_degree = None
    with pytest.raises(IsthmusError, match="src_degree"):
        GCN(5, 8)(h, block)
    with pytest.raises(IsthmusError, match="2 degree constants for 1 silos"):
        PNA(5, 8).set_degree(torch.ones(2))
