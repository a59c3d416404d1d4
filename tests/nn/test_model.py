"""Whole models: presets, silos together or apart, edge encodings, ego ids, heads, errors."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import SparseRows
from isthmus.graph.graph import Schema
from isthmus.nn import GNN, LAYERS, MODELS, NORMS, PNA, Block, Directed, EdgeEncoder, ModelConfig, Pass, Rows
from isthmus.nn.directed import both_sides
from isthmus.nn.ego import Ego
from isthmus.nn.sets import stack_sets
from isthmus.testing import close, join, random_block, turned

SCHEMA = Schema(features=5, labels=tuple("abcdefg"), edge_features=3)
TRAIN = Pass(training=True, seed=1, step=2)
BATCH = 4


def both_ways(nodes: int, edges: int, seed: int = 0, alone: int = 1) -> Block:
    block = random_block(nodes, edges, seed, alone)
    block.reverse = turned(block)
    return block


def inputs(block: Block, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(block.sources), 5, generator=generator, dtype=torch.float64)
    ego = torch.full((len(x),), -1).index_copy(0, torch.tensor([0, 2]), torch.tensor([3, 1]))
    return x, ego


def logits(model: GNN, x: Tensor | SparseRows, ego: Tensor, block: Block, this_pass: Pass = TRAIN) -> Tensor:
    """What the training loop does, on one block for all layers."""
    h, edge = model.embed(x, block.sources, ego), None
    for place in range(model.config.layers):
        edge = model.edges(place, h, block, edge)
        h = model.finish(place, model.convolve(place, h, block, edge), block.targets, this_pass)
    return model.readout(h, block.targets)


def build(config: ModelConfig, schema: Schema = SCHEMA, seed: int = 1) -> GNN:
    model = GNN(config, schema, BATCH).double()
    model.reset(seed)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_presets_learn(name: str) -> None:
    block = both_ways(9, 24)
    model = build(replace(MODELS[name], hidden=8, dropout=0.1))
    out = logits(model, *inputs(block), block)
    out.square().sum().backward()
    assert out.shape == (9, 7) and all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("embed", [True, False])
def test_without_a_head_the_last_layer_gives_the_logits(name: str, embed: bool) -> None:
    block = both_ways(9, 24)
    model = build(ModelConfig(name, hidden=8, norm="batch", head=False, embed=embed))
    x, ego = inputs(block)
    out = logits(model, x.relu(), ego, block)
    assert out.shape == (9, 7) and bool((out < 0).any()) and len(model.norms) == 1
    close(logits(model, SparseRows.from_dense(x.relu()), ego, block), out)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("name", "updates"), [("pna", False), ("gat", False), ("sage", False), ("pna", True), ("gat", True)]
)
def test_silos_with_sets_of_their_own_equal_separate_models(name: str, norm: str, updates: bool) -> None:
    rich, ports = name == "pna", 0 if name == "sage" else 4
    config = ModelConfig(
        name, layers=3, hidden=8, dropout=0.3, norm=norm, directed=rich, ports=ports, ego=rich, edge_updates=updates
    )
    blocks = [both_ways(6, 11, 1), both_ways(4, 5, 2), both_ways(8, 20, 3)]
    data = [inputs(block, i) for i, block in enumerate(blocks)]
    apart = [build(config, seed=i) for i in range(3)]
    for i, model in enumerate(apart):
        model.set_degree(torch.tensor([1.0 + i]), torch.tensor([0.7 + i]))
    parts = [logits(model, *each, block) for model, each, block in zip(apart, data, blocks, strict=True)]
    torch.cat(parts).square().sum().backward()

    together = build(config)
    stack_sets(together, 3, 3)
    together.set_degree(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.7, 1.7, 2.7]))
    named = [dict(model.named_parameters()) for model in apart]
    for key, p in together.named_parameters():
        p.data = torch.cat([each[key].data for each in named])
    x, ego = (torch.cat(each) for each in zip(*data, strict=True))
    out = logits(together, x, ego, join(blocks))
    out.square().sum().backward()
    torch.testing.assert_close(out, torch.cat(parts), rtol=1e-9, atol=1e-9)
    for key, p in together.named_parameters():
        grads = torch.cat([each[key].grad for each in named])
        torch.testing.assert_close(p.grad, grads, rtol=1e-8, atol=1e-9 * float(grads.abs().max()))


@pytest.mark.parametrize("name", LAYERS)
def test_agreeing_silos_are_one_graph(name: str) -> None:
    """One shared set and agreed moments: where one silo ends and the next begins makes no difference."""
    config = ModelConfig(name, hidden=8, dropout=0.3, norm="batch")
    block = join([random_block(6, 11, 1), random_block(4, 5, 2), random_block(8, 20, 3)])
    whole = Rows((0, len(block.targets)), block.targets.keys)
    one = replace(block, sources=whole, targets=whole, cache={})
    agreed = replace(TRAIN, total=lambda sums: sums.sum(0))
    x, ego = inputs(block)
    split, model = build(config), build(config)
    stack_sets(split, 1, 3)
    torch.testing.assert_close(
        logits(split, x, ego, block, agreed), logits(model, x, ego, one, TRAIN), rtol=1e-9, atol=1e-9
    )
    rest = Pass(training=False)
    torch.testing.assert_close(
        logits(split, x, ego, block, rest), logits(model, x, ego, one, rest), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(("name", "updates"), [*((name, False) for name in LAYERS), ("gin", True), ("pna", True)])
def test_no_parameter_is_cancelled_by_the_batch_norm_after_it(name: str, updates: bool, directed: bool) -> None:
    """A gradient that is 0 but for rounding would be blown up by Adam to full steps."""
    block = both_ways(30, 200, alone=0)
    assert int(block.count.min()) > 0  # one isolated node would already tell a constant from nothing
    config = ModelConfig(name, layers=3, hidden=8, dropout=0.0, norm="batch", directed=directed, edge_updates=updates)
    model = build(config)
    logits(model, *inputs(block), block).pow(3).sum().backward()
    for key, p in model.named_parameters():
        assert float(p.grad.abs().max()) > 1e-6, key


def test_directed_is_the_sum_of_two_layers() -> None:
    block = both_ways(9, 20)
    model = Directed(PNA, 5, 8, 3).double()
    model.set_degree(torch.tensor([1.1]), torch.tensor([0.9]))
    x, _ = inputs(block)
    inward, outward = PNA(5, 8, 3).double(), PNA(5, 8, 3).double()
    for side, layer in enumerate((inward, outward)):
        layer.load_state_dict({name: value[:, side] for name, value in model.layer.state_dict().items()})
    back = block.reverse
    alone = inward(x, block, block.attr) + outward(x, back, back.attr)
    close(model(x, block, both_sides(block).attr), alone)
    assert [float(each.delta) for each in (inward, outward)] == pytest.approx([1.1, 0.9])
    assert not torch.equal(inward.post, outward.post)


@pytest.mark.parametrize("sets", [1, 2])
def test_edges_are_encoded_by_attributes_and_ports(sets: int) -> None:
    block = join([random_block(5, 9, 1), random_block(6, 12, 2)])
    encoder = EdgeEncoder(3, ports=4).double()
    stack_sets(encoder, sets, 2)
    encoder.tables.data[-1] += 1
    found = encoder(block).dense()
    for e in range(21):
        s = 1 if sets == 2 and block.dst[e] >= 5 else 0
        near, far = block.ports[e].clamp(max=3).tolist()
        expected = torch.cat((block.attr[e], encoder.tables[s, 0, near], encoder.tables[s, 1, far]))
        assert torch.equal(found[e], expected)
    assert encoder.width == 19 and EdgeEncoder(0, 0)(block) is None and EdgeEncoder(0, 0).width == 0


@pytest.mark.parametrize("sets", [1, 2])
def test_ego_adds_the_row_of_the_slot_to_seeds_only(sets: int) -> None:
    layer = Ego(4, 3)
    stack_sets(layer, sets, 2)
    layer.table.data[-1] += 1
    h, at = torch.zeros(6, 3), Rows((0, 2, 6), torch.arange(6))
    out = layer(h, torch.tensor([-1, 2, -1, 0, 2, -1]), at)
    last = sets - 1
    expected = torch.stack([layer.table[0, 2], layer.table[last, 0], layer.table[last, 2]])
    assert torch.equal(out[[1, 3, 4]], expected) and not bool(out[[0, 2, 5]].any())


def test_edge_head_reads_both_ends_and_the_edge() -> None:
    schema = replace(SCHEMA, target="edge")
    model, block = build(ModelConfig("sage", hidden=8), schema), random_block(9, 20)
    h = torch.randn(9, 8, dtype=torch.float64)
    ends, at = (h[block.src], h[block.dst]), block.edges
    out = model.readout_edges(*ends, block.attr, at)
    head = model.edge_head
    hidden = (torch.cat((*ends, block.attr), 1) @ head.first.weight[0] + head.first.bias[0]).relu()
    close(out, hidden @ head.second.weight[0] + head.second.bias[0])
    assert model.head is None and model.readout(h, block.targets) is h


def test_evaluation_is_free_of_chance() -> None:
    block, model = both_ways(9, 24), build(replace(MODELS["multi-pna"], hidden=8, layers=2))
    data = inputs(block)
    logits(model, *data, block)
    before = copy.deepcopy(model.state_dict())
    one = logits(model, *data, block, Pass(training=False, step=1))
    assert torch.equal(one, logits(model, *data, block, Pass(training=False, step=2)))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_reset_depends_on_nothing_but_the_seed() -> None:
    one, two, three = (GNN(MODELS["multi-pna"], SCHEMA, BATCH) for _ in range(3))
    one.reset(1), two.reset(1), three.reset(2)
    for p, q, r in zip(one.parameters(), two.parameters(), three.parameters(), strict=True):
        assert torch.equal(p, q) and (not bool(p.any()) or bool((p == 1).all()) or not torch.equal(p, r))


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"name": "sagee"}, "Unknown model 'sagee'. Did you mean 'sage'"),
    ({"norm": "bach"}, "Did you mean 'batch'"),
    ({"layers": 0}, "at least one layer"),
    ({"dropout": 1.0}, r"\[0, 1\)"),
    ({"dropout": -0.1}, r"\[0, 1\)"),
    ({"ego": True, "embed": False}, "embed=true"),
    ({"ports": 4}, "ports=4, but sage does not read edges. Use ports=0 or one of: gin, gat, pna"),
    ({"edge_updates": True}, "edge_updates=true, but sage does not read edges.*one of: gin, gat, pna"),
    ({"name": "gin", "layers": 1, "edge_updates": True}, "nobody reads edges; use layers > 1"),
    ({"name": "pna", "options": {"tower": 2}}, "Unknown option of pna 'tower'. Did you mean 'towers'"),
    ({"options": {"aggregate": "min"}}, "Choose from: max, mean"),
    ({"ego": True}, "batch size"),
]


@pytest.mark.parametrize(("fields", "text"), ERRORS, ids=[text for _, text in ERRORS])
def test_configurations_that_cannot_be(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(IsthmusError, match=text):
        GNN(ModelConfig(**fields), SCHEMA)


def test_inputs_that_cannot_be() -> None:
    block, edge_schema = random_block(9, 20), replace(SCHEMA, target="edge")
    x, _ = inputs(block)
    with pytest.raises(IsthmusError, match="head=true"):
        GNN(ModelConfig(head=False), edge_schema)
    with pytest.raises(IsthmusError, match="neither features nor ports to start from"):
        GNN(ModelConfig("pna", edge_updates=True), replace(SCHEMA, edge_features=0))
    with pytest.raises(IsthmusError, match="no edge head"):
        build(ModelConfig()).readout_edges(x, x, None, block.targets)
    model = build(replace(MODELS["multi-pna"], hidden=8))
    with pytest.raises(IsthmusError, match="ego ids"):
        model.embed(x, block.sources)
    with pytest.raises(IsthmusError, match="Ego slot 4"):
        model.embed(x, block.sources, torch.full((9,), 4))
    h = torch.randn(9, 8, dtype=torch.float64)
    with pytest.raises(IsthmusError, match="Block.reverse"):
        model.edges(0, h, block)
    with pytest.raises(IsthmusError, match="two aggregates at each node; exchange rows"):
        model.convolve(0, h, block, None, beyond={})
    updated = build(ModelConfig("pna", hidden=8, edge_updates=True))
    with pytest.raises(IsthmusError, match="both ends of an edge; exchange rows"):
        updated.convolve(0, h, block, updated.edges(0, h, block), beyond={})
    with pytest.raises(IsthmusError, match="outgoing"):
        model.set_degree(torch.ones(1))
    with pytest.raises(IsthmusError, match="port numbers"):
        model.encode(replace(block, ports=None))
    with pytest.raises(IsthmusError, match="3 edge features"):
        model.encode(replace(block, attr=None))
