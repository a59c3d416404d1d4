"""FedGCN: what sums of features that crossed once are worth, beside centralised training."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.engine.forward import forward, layers
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.features import SparseRows, weighted_sums
from isthmus.graph.graph import Graph
from isthmus.graph.merged import merge
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.exchange.base import Nothing
from isthmus.methods.exchange.fedgcn import FeatureSums
from isthmus.methods.method import Method
from isthmus.nn.model import MODELS
from isthmus.nn.norm import Pass
from isthmus.sample.batches import Batch, Seeds
from isthmus.train.loop import train
from isthmus.train.passes import Work
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from tests.helpers.small import assert_same, losses, run_method, small_graph

THREE = torch.arange(30) % 3
GRAPH = small_graph(30, 140)
ALL = {"batch": 4, "fanout": (-1,)}
SAMPLED = {"batch": 4, "fanout": (2,)}


def joint(hops: int = 2) -> Method:
    """The exchange with Sync-SGD, whose only difference from centralised training is what the exchange lacks."""
    return catalogue.sync_sgd().with_phase("train", exchange=FeatureSums(hops=hops))


def open_run(
    method: Method, graph: Graph = GRAPH, owner: Tensor = THREE, model: str = "gcn", training: Any = None, **config: Any
) -> Training:
    parts = split_graph(graph, owner, int(owner.max()) + 1)
    parts = [merge(parts)] if method.merged else parts
    federation = open_federation(LocalWire(len(parts), method.chain), parts, 3)
    made = replace(MODELS[model], **{"hidden": 8, "dropout": 0.4, "layers": 2, **config})
    chosen = TrainConfig(**{"epochs": 5, "lr": 0.05, **(training or {})})
    return Training(federation, method, made, chosen, 3, dtype=torch.float64)


def first_seeds(run: Training) -> Seeds:
    return next(iter(run.stage.epoch_seeds(run.progress)))


def first_work(run: Training) -> Work:
    [work] = run.stage.works(first_seeds(run), 0)
    return work


def passed(run: Training, work: Work) -> Tensor:
    """The logits of a pass in training."""
    this = run.stage.site.passing(training=True, step=work.batch.step)
    return forward(run.stage.site.net, work.exchange, work.batch, this)


def rows_by_layer(run: Training, work: Work, this: Pass) -> Iterator[Tensor]:
    return layers(run.stage.site.net, work.exchange, work.batch, this)


def by_key(keys: Tensor, rows: Tensor) -> Tensor:
    """Rows in the order of public keys, which do not depend on who owns what."""
    return rows.detach()[torch.argsort(keys)]


def logits(run: Training) -> Tensor:
    work = first_work(run)
    return by_key(work.batch.seed_rows.keys, passed(run, work))


def first_layer(run: Training) -> Tensor:
    """The first layer's rows of all owned nodes."""
    work, stack = first_work(run), run.stage.layout.stack
    batch = work.batch
    h = next(rows_by_layer(run, work, Pass(True, run.seed, batch.step)))
    known = len(h) == len(batch.layout.read[1])
    rows = batch.layout.read[1] if known else batch.layout.held[1]
    mine = stack.owned[rows]
    return by_key(stack.keys[rows][mine], h[mine])


def differ(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() > 1e-3)


CONFIGS: dict[str, dict[str, Any]] = {
    "embedding": {},
    "raw features": {"embed": False},
    "no head": {"head": False},
    "layer norm": {"norm": "layer"},
    "batch norm": {"norm": "batch"},
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_two_hops_and_two_layers_are_centralised_training(config: dict[str, Any], sparse: bool) -> None:
    graph = replace(GRAPH, x=SparseRows.from_dense(GRAPH.x * (GRAPH.x > 0.3))) if sparse else GRAPH
    whole, parts = (open_run(method, graph, **config) for method in (catalogue.get("centralised"), joint()))
    torch.testing.assert_close(logits(parts), logits(whole), rtol=1e-10, atol=1e-10)
    assert_same(train(whole), train(parts))


@given(st.integers(0, 2**16), st.integers(1, 4), st.integers(2, 14))
@settings(max_examples=25, deadline=None)
def test_two_hops_equal_centralised_for_any_split(seed: int, silos: int, nodes: int) -> None:
    graph = small_graph(nodes, 3 * nodes, seed)
    graph = replace(graph, split=torch.ones_like(graph.split))
    owner = torch.randint(0, silos, (nodes,), generator=torch.Generator().manual_seed(seed))
    whole, parts = (open_run(method, graph, owner) for method in (catalogue.get("centralised"), joint()))
    torch.testing.assert_close(logits(parts), logits(whole), rtol=1e-10, atol=1e-10)


def test_one_hop_knows_the_first_layer_and_not_the_second() -> None:
    whole, parts = open_run(catalogue.get("centralised")), open_run(joint(hops=1))
    torch.testing.assert_close(first_layer(parts), first_layer(whole), rtol=1e-10, atol=1e-10)
    assert differ(logits(parts), logits(whole))


def test_one_hop_and_one_layer_are_centralised_training() -> None:
    whole, parts = (open_run(method, layers=1) for method in (catalogue.get("centralised"), joint(hops=1)))
    torch.testing.assert_close(logits(parts), logits(whole), rtol=1e-10, atol=1e-10)
    assert_same(train(whole), train(parts))


def test_after_the_known_hops_a_far_end_counts_in_degrees_and_adds_nothing() -> None:
    """The last layer beside one written by hand: sums over neighbours at home, degrees of the whole graph."""
    for hops in (1, 2):
        run = open_run(joint(hops), layers=hops + 1, dropout=0.0, head=False)
        work, stack = first_work(run), run.stage.layout.stack
        *_, h, out = rows_by_layer(run, work, Pass(False))
        owned, layer, (source, target) = stack.owned, run.stage.site.net.layers[-1], stack.ends
        known = torch.zeros(stack.rows, 8, dtype=torch.float64)
        known[work.batch.layout.held[hops]] = h.detach()
        scale = stack.in_degree.add(1).double().rsqrt()[:, None]
        z = torch.where(owned[:, None], known @ layer.lin.weight[0].detach() * scale, 0)
        inside = owned[source] & owned[target]
        total = z.index_add(0, target[inside], z[source[inside]]) * scale
        torch.testing.assert_close(out.detach(), total[owned] + layer.bias[0].detach(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("training", [{}, ALL], ids=["full", "all neighbours"])
def test_without_cross_edges_it_is_fedavg(hops: int, training: dict[str, Any]) -> None:
    graph = small_graph(30, 140, inner=THREE)
    mine = compose(catalogue.get("fedgcn"), {"exchange": {"hops": hops}, "sync": {"local_steps": 2}})
    plain = mine.with_phase("train", exchange=Nothing())
    results = [train(open_run(method, graph, training=training)) for method in (plain, mine)]
    assert_same(*results, sets=(0, 1, 2))


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("hops", [1, 2])
def test_batches_with_all_neighbours_are_the_whole_graph(hops: int, trim: bool) -> None:
    """The seeds of a batch get the same logits from their neighbourhoods as from the whole graph."""
    run = open_run(joint(hops), layers=3, training={**ALL, "trim": trim})
    for seeds in run.stage.epoch_seeds(run.progress):
        [few] = run.stage.works(seeds, 0)
        all_of_it = replace(few, batch=run.stage.passes.across["train"].batcher.whole(seeds, 0))
        found, expected = (passed(run, work) for work in (few, all_of_it))
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_a_sampled_batch_does_not_depend_on_the_split_and_has_the_whole_first_layer() -> None:
    sampled = {"batch": 4, "fanout": (2, 9)}
    one, three = (open_run(joint(), owner=owner, training=sampled) for owner in (THREE * 0, THREE))
    work, stack = first_work(three), three.stage.layout.stack
    batch = work.batch
    h = next(rows_by_layer(three, work, Pass(True, three.seed, batch.step)))
    rows = batch.layout.read[1]
    keys, key = stack.keys[stack.owned].sort().values, stack.keys[rows]
    whole = first_layer(open_run(joint()))[torch.searchsorted(keys, key)]
    torch.testing.assert_close(h.detach(), whole, rtol=1e-10, atol=1e-10)
    degree = stack.in_degree[batch.layout.held[2]]
    assert torch.equal(batch.blocks[1].count, degree.clamp(max=2)) and int(degree.max()) > 2
    assert_same(train(one), train(three))


@pytest.mark.parametrize("hops", [1, 2])
def test_features_cross_before_training_and_never_again(hops: int) -> None:
    options = {"exchange": {"hops": hops}, "sync": {"local_steps": 2}}
    result = run_method("fedgcn", GRAPH, THREE, 3, "gcn", options, epochs=4)
    lines = [line for line in result.training.wire.ledger.table().to_pylist() if line["kind"] == "aggregates"]
    assert {(line["epoch"], line["step"]) for line in lines} == {(0, 0)}
    assert "embeddings" not in result.bytes and "adjoints" not in result.bytes
    source, target = GRAPH.edge_index
    crosses = THREE[source] != THREE[target]
    there = {(int(u), int(THREE[v])) for u, v in zip(source[crosses], target[crosses], strict=True)}  # read by
    back = {(int(v), int(THREE[u])) for u, v in zip(source[crosses], target[crosses], strict=True)}  # added to by
    rows = len(back) + (len(there) if hops == 2 else 0)
    assert sum(line["rows"] for line in lines) == rows
    assert result.bytes["aggregates"] == rows * (5 + 1) * 8


def test_what_arrives_over_one_edge_is_the_neighbours_features() -> None:
    """The disclosure sheet says so: a sum over one neighbour is that neighbour, up to its degree."""
    graph = replace(small_graph(2, 0), edge_index=torch.tensor([[0], [1]]))
    graph = replace(graph, edge_attr=torch.zeros(1, 2), edge_time=torch.zeros(1, dtype=torch.int64))
    graph = replace(graph, split=torch.ones_like(graph.split))
    run = open_run(joint(hops=1), graph, torch.tensor([0, 1]))
    own = graph.x[1].double() / 2**0.5
    torch.testing.assert_close(run.stage.exchange.sums.x[1] - own, graph.x[0].double(), rtol=1e-12, atol=1e-12)


def test_gradients_of_halo_rows_are_full() -> None:
    """Cut off the halo rows' first layer, and parameters get other gradients."""
    runs = [open_run(joint()) for _ in range(2)]
    found = []
    for run, cut in zip(runs, (False, True), strict=True):
        work = first_work(run)
        enter = work.exchange.enter

        def shortened(*given: Any, enter: Any = enter, run: Training = run, batch: Batch = work.batch) -> Any:
            ready, h = enter(*given)
            owned = run.stage.layout.stack.owned[batch.layout.read[1]]
            return ready, torch.where(owned[:, None], h, h.detach())

        if cut:
            work.exchange.enter = shortened
        passed(run, work).square().sum().backward()
        found.append(run.stage.site.net.enter.weight.grad.clone())
    assert differ(*found)


@pytest.mark.parametrize("silos", [1, 4])
@pytest.mark.parametrize("training", [{}, SAMPLED], ids=["full", "sampled"])
def test_one_silo_and_an_empty_one(silos: int, training: dict[str, Any]) -> None:
    owner = torch.zeros(30, dtype=torch.int64) if silos == 1 else torch.where(THREE == 2, 3, THREE)  # silo 2 has none
    result = run_method("fedgcn", GRAPH, owner, silos, "gcn", {"sync": {"local_steps": 1}}, **training)
    assert len(losses(result)) >= 3
    if silos == 1 and not training:
        assert_same(run_method("centralised", GRAPH, owner, 1, "gcn"), result)


def test_sums_of_sparse_rows_stay_sparse() -> None:
    x = (GRAPH.x * (GRAPH.x > 0.3)).double()
    source, target = GRAPH.edge_index
    weight = torch.linspace(0.1, 1, len(source), dtype=torch.float64)
    found = weighted_sums(SparseRows.from_dense(x), source, target, weight, 31)
    expected = torch.zeros(31, 5, dtype=torch.float64).index_add(0, target, weight[:, None] * x[source])
    assert isinstance(found, SparseRows)
    torch.testing.assert_close(found.dense(), expected)
    torch.testing.assert_close(weighted_sums(x, source, target, weight, 31), expected)
    sparse = replace(GRAPH, x=SparseRows.from_dense(GRAPH.x * (GRAPH.x > 0.3)))
    assert isinstance(open_run(joint(), sparse).stage.exchange.sums.x, SparseRows)


@pytest.mark.parametrize(
    ("model", "config", "says"),
    [
        *((name, {}, f"not for {name}; use model.name=gcn") for name in ("sage", "gin", "gat", "pna", "mlp")),
        ("gcn", {"directed": True}, "a directed gcn"),
        ("gcn", {"ego": True}, "ego ids"),
        ("gcn", {"layers": 1}, r"exchange\.hops=1"),
    ],
)
def test_models_for_which_sums_do_not_stand_are_refused(model: str, config: dict[str, Any], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        open_run(catalogue.get("fedgcn"), model=model, training=SAMPLED, **config)


def test_labels_on_edges_are_refused() -> None:
    with pytest.raises(IsthmusError, match=r"Labels lie on edges.*ce-fedgnn"):
        open_run(catalogue.get("fedgcn"), small_graph(30, 140, edge_task=True))


@pytest.mark.parametrize("hops", [0, 3])
def test_hops_are_one_or_two(hops: int) -> None:
    with pytest.raises(IsthmusError, match="over 1 hop or over 2"):
        compose(catalogue.get("fedgcn"), {"exchange": {"hops": hops}})
