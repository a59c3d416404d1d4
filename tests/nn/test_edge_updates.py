"""Edge updates: the equation edge by edge, what it equals across silos, and that nothing changes without them."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.engine.forward import forward
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import Graph
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.nn import Block, EdgeUpdate, Linear
from isthmus.nn.model import MODELS
from isthmus.nn.norm import Pass
from isthmus.runs.config import resolve
from isthmus.sample.batches import Batch
from isthmus.train.loop import step
from isthmus.train.passes import Work
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import assert_same, losses, numbers, parameters, run_method, small_graph

EXACT = "sync-sgd+fwd-bwd-le"
THREE = torch.arange(30) % 3
FULL: dict[str, Any] = {"epochs": 5}
SAMPLED: dict[str, Any] = {"batch": 4, "fanout": (2,), "steps": 5}
PLAIN: dict[str, Any] = {"edge_updates": True}
RICH: dict[str, Any] = {"edge_updates": True, "directed": True, "ports": 4, "layers": 3}
EDGES, NODES = small_graph(30, 80, edge_task=True), small_graph(30, 80)
Key = tuple[Any, ...]


def open_run(method: str, graph: Graph, options: dict[str, Any], model: str = "pna", **training: Any) -> Training:
    made = compose(catalogue.get(method), options.pop("parts", {}))
    owner = torch.zeros(graph.n, dtype=torch.int64) if made.merged else THREE
    parts = split_graph(graph, owner, int(owner.max()) + 1)
    federation = open_federation(LocalWire(len(parts), made.chain), parts, 3)
    config = replace(MODELS[model], hidden=8, dropout=0.0, **options)
    return Training(federation, made, config, TrainConfig(**training), 3, dtype=torch.float64)


def one_step(run: Training) -> None:
    step(run.stage, run.progress, next(iter(run.stage.epoch_seeds(run.progress))))


def first_work(run: Training) -> Work:
    [work] = run.stage.works(next(iter(run.stage.epoch_seeds(run.progress))), 0)
    return work


def ports_of(block: Block) -> Tensor:
    """The ports of edges; zeros where the model reads none, so that the block has none."""
    return torch.zeros(len(block.src), 2) if block.ports is None else block.ports


class Slowly:
    """The model of one silo, with its edges one by one in dictionaries."""

    def __init__(self, run: Training, batch: Batch) -> None:
        self.run, self.model, self.batch, self.e = run, run.stage.site.net, batch, dict[Key, Tensor]()

    def line(self, linear: Linear, side: int, x: Tensor) -> Tensor:
        own = dict(linear.named_parameters())
        weight, bias = (own[name][0, side] if linear.sides == 2 else own[name][0] for name in ("weight", "bias"))
        return x @ weight + bias

    def begin(self, side: int, attr: Tensor, ports: Tensor) -> Tensor:
        tables, parts = self.model.encoder.tables, [attr]
        if tables is not None:
            parts += [tables[0, end, min(int(port), tables.shape[2] - 1)] for end, port in enumerate(ports)]
        return self.line(self.model.edge_updates.enter, side, torch.cat(parts))

    def update(self, number: int, side: int, e: Tensor, source: Tensor, target: Tensor) -> Tensor:
        mlp: EdgeUpdate = self.model.edge_updates.steps[number]
        inner = self.line(mlp.first, side, torch.cat((source, target, e))).clamp(min=0)
        return e + self.line(mlp.second, side, inner) / 2

    def read(self, layer: int, side: int, block: Block, h: Tensor) -> list[Tensor]:
        """The embeddings of a block's edges, known from layer to layer by their ends and attributes."""
        rows, found, e = self.batch.layout.read[layer], list[Tensor](), dict[Key, Tensor]()
        attr = block.attr if block.attr is not None else torch.zeros(len(block.src), 0, dtype=h.dtype)
        for i, (s, d) in enumerate(zip(block.src, block.dst, strict=True)):
            t = d if block.own is None else block.own[d]
            key = (side, int(rows[s]), int(rows[t]), *attr[i].tolist())
            if layer == 0:
                e[key] = self.begin(side, attr[i], ports_of(block)[i])
            else:
                e[key] = self.update(layer - 1, side, self.e[key], h[s], h[t])
            found.append(e[key])
        self.e |= e
        return found

    def logits(self) -> Tensor:
        batch, model = self.batch, self.model
        h, this = model.embed(batch.x, batch.x_rows, batch.ego), Pass(False)
        seeds = batch.seed_edges and [
            self.begin(0, *each) for each in zip(batch.seed_edges.attr, ports_of(batch.seed_edges), strict=True)
        ]
        for layer, block in enumerate(batch.blocks):
            e = self.read(layer, 0, block, h)
            e += self.read(layer, 1, block.reverse, h) if model.config.directed else []
            pre = model.layers[layer](h, block, torch.stack(e))
            h = model.finish(layer, pre, block.targets, this)
            if seeds:
                ends = (batch.layout.read[-1][end].tolist() for end in batch.ends)
                place = {row: at for at, row in enumerate(batch.layout.read[layer + 1].tolist())}
                seeds = [
                    self.update(layer, 0, e, h[place[u]], h[place[v]]) for e, u, v in zip(seeds, *ends, strict=True)
                ]
        if not seeds:
            return model.readout(h[batch.ends[0]], batch.seed_rows)
        source, target = (h[end] for end in batch.ends)
        return model.readout_edges(source, target, torch.stack(seeds), batch.seed_rows)


def assert_equation_holds(model: str, options: dict, training: dict, graph: Graph) -> None:
    """Logits and gradients are those of the slow loop, at parameters none of which is 0."""
    run = open_run("centralised", graph, dict(options), model, **training)
    work = first_work(run)
    batch, net = work.batch, run.stage.site.net
    named = dict(net.named_parameters())
    generator = torch.Generator().manual_seed(1)
    for p in named.values():
        p.data += 0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype)
    found = forward(net, work.exchange, batch, run.stage.site.passing(training=False))
    expected = Slowly(run, batch).logits()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    ours, theirs = (torch.autograd.grad(each.square().sum(), list(named.values())) for each in (found, expected))
    for name, mine, slow in zip(named, ours, theirs, strict=True):
        torch.testing.assert_close(mine, slow, rtol=1e-9, atol=1e-9 * float(slow.abs().max()), msg=name)
    if "batch" in training and net.config.layers == 3:  # some edges of a layer are gone in the next
        assert len(batch.blocks[2].src) < len(batch.blocks[1].src) < len(batch.blocks[0].src)


@pytest.mark.parametrize("graph", [NODES, EDGES], ids=["nodes", "edges"])
@pytest.mark.parametrize("training", [FULL, SAMPLED], ids=["full", "sampled"])
@pytest.mark.parametrize("options", [PLAIN, RICH, {**RICH, "directed": False}], ids=["plain", "rich", "one-way"])
@pytest.mark.parametrize("model", ["gin", "pna"])
def test_every_edge_is_updated_from_its_two_ends(model: str, options: dict, training: dict, graph: Graph) -> None:
    assert_equation_holds(model, options, training, graph)


@pytest.mark.parametrize("model", ["gin", "pna"])
def test_edges_without_features_start_from_their_ports(model: str) -> None:
    graph = replace(NODES, edge_attr=None, schema=replace(NODES.schema, edge_features=0))
    assert_equation_holds(model, RICH, SAMPLED, graph)


@pytest.mark.parametrize("graph", [NODES, EDGES], ids=["nodes", "edges"])
@pytest.mark.parametrize("training", [FULL, SAMPLED, {**SAMPLED, "trim": False}], ids=["full", "sampled", "untrimmed"])
@pytest.mark.parametrize("options", [PLAIN, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("model", ["gin", "pna"])
def test_exchange_with_adjoints_is_centralised_training(
    model: str, options: dict, training: dict, graph: Graph
) -> None:
    """Dropout and, in batches, ego ids are on; rich is directed with ports and three layers."""
    # A bias whose true gradient is 0 holds nothing but rounding: before a batch normalisation GIN has such where a unit
    # is active on a whole small batch, and on a row of zeros its sign decides a ReLU; Adam would blow up others.
    options = {**options, "ego": "batch" in training, "norm": "batch" if model == "pna" else "none"}
    training = {**training, "optimiser": "sgd"}
    together, apart = (
        run_method(method, graph, THREE, 3, model, model_options=options, **training)
        for method in ("centralised", EXACT)
    )
    assert len(losses(together)) == 5
    assert_same(together, apart)


@given(seed=st.integers(0, 999), silos=st.integers(1, 6), nodes=st.integers(4, 20), edges=st.integers(12, 60))
@settings(max_examples=8, deadline=None)
def test_any_split_of_any_multigraph_is_exact(seed: int, silos: int, nodes: int, edges: int) -> None:
    graph = small_graph(nodes, edges, seed, edge_task=True)
    owner = torch.randint(0, silos, (nodes,), generator=torch.Generator().manual_seed(seed))
    training = {"batch": 3, "fanout": (2,), "steps": 3, "seed": seed, "optimiser": "sgd", "model_options": RICH}
    together = run_method("centralised", graph, owner, silos, "gat", **training)
    assert_same(together, run_method(EXACT, graph, owner, silos, "gat", **training))


def test_what_crosses_does_not_change() -> None:
    crossed = [run_method(EXACT, EDGES, THREE, 3, "pna", model_options=each, **SAMPLED).bytes for each in (RICH, OFF)]
    for kind in ("embeddings", "adjoints", "ids", "ports"):
        assert crossed[0][kind] == crossed[1][kind] > 0


OFF = {**RICH, "edge_updates": False}
BEFORE = {  # losses of the first steps and number of parameters and buffers, from before there were edge updates
    "gin": ([1.816857951975695, 1.0509414668381196, 1.835307282908742], 19),
    "multi-pna": ([1.0924773874321543, 1.1595056149651715, 1.1234810502196293], 35),
}


@pytest.mark.parametrize("model", BEFORE)
def test_without_them_nothing_changes(model: str) -> None:
    graph, options = small_graph(30, 140, edge_task=True), {"ports": 4} if model == "gin" else {}
    absent, off, on = (
        run_method(EXACT, graph, THREE, 3, model, model_options={**options, **each}, **{**SAMPLED, "steps": 3})
        for each in ({}, {"edge_updates": False}, {"edge_updates": True})
    )
    first, count = BEFORE[model]
    assert losses(absent) == losses(off) == pytest.approx(first, rel=1e-10)
    assert len(parameters(off)) == count and not any("edge_updates" in name for name in parameters(off))
    assert abs(losses(on)[0] - losses(off)[0]) > 1e-3
    assert {name for name in parameters(on) if not name.startswith("edge_updates.")} == set(parameters(off))


@pytest.mark.parametrize("graph", [NODES, EDGES], ids=["nodes", "edges"])
@pytest.mark.parametrize("model", ["gin", "gat", "pna"])
def test_every_parameter_learns(model: str, graph: Graph) -> None:
    run = open_run("centralised", graph, dict(RICH), model)
    one_step(run)
    updates = run.stage.site.net.edge_updates
    assert len(updates.steps) == (3 if graph is EDGES else 2)
    for part in (updates.enter, *(each for mlp in updates.steps for each in (mlp.first, mlp.second))):
        for p in part.parameters():
            for side in p.grad.unbind(1) if part.sides == 2 else [p.grad]:
                assert float(side.abs().max()) > 1e-8


@pytest.mark.parametrize("options", [PLAIN, RICH], ids=["plain", "rich"])
def test_silos_with_parameters_of_their_own_train_as_if_each_were_alone(options: dict) -> None:
    graph = small_graph(30, 300, inner=THREE, edge_task=True)
    together = run_method("local", graph, THREE, 3, "pna", model_options=options, **SAMPLED)
    for silo in range(3):
        mine = THREE == silo
        at, kept = mine.cumsum(0) - 1, mine[graph.edge_index[0]]
        edges = {name: getattr(graph, name)[kept] for name in ("edge_attr", "edge_time", "edge_y", "edge_split")}
        nodes = {"ids": graph.ids[mine.numpy()], **{name: getattr(graph, name)[mine] for name in ("x", "y", "split")}}
        part = replace(graph, edge_index=at[graph.edge_index[:, kept]], **edges, **nodes)
        single = run_method(
            "local", part, torch.zeros(part.n, dtype=torch.int64), 1, "pna", model_options=options, **SAMPLED
        )
        for name, tensor in parameters(single).items():
            torch.testing.assert_close(parameters(together)[name][silo], tensor[0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", ["fedavg", "fedavg+fwd-bwd-le", "optimes", "ce-fedgnn"])
def test_methods_with_batches_of_their_own_train_too(method: str) -> None:
    on, off = (
        run_method(method, EDGES, THREE, 3, "pna", model_options=each, **SAMPLED, batches="local")
        for each in (RICH, OFF)
    )
    assert torch.isfinite(numbers(losses(on))).all() and losses(on) != losses(off)
    tables = [each.training.stage.exchange.state for each in (on, off)]
    assert tables[0].keys() == tables[1].keys()  # tables are of nodes, never of edges
    assert {name: t.shape for name, t in tables[0].items()} == {name: t.shape for name, t in tables[1].items()}


def test_ce_fedgnn_of_one_silo_without_averages_is_centralised() -> None:
    alone = torch.zeros(30, dtype=torch.int64)
    plain = {"exchange": {"gamma": 1.0}, "sync": {"beta": 1.0, "local_steps": 1}}
    together = run_method("centralised", EDGES, alone, 1, "pna", model_options=RICH, **SAMPLED)
    assert_same(together, run_method("ce-fedgnn", EDGES, alone, 1, "pna", options=plain, model_options=RICH, **SAMPLED))


def test_the_correction_of_halves_reaches_the_ends_at_every_layer() -> None:
    """All labelled edges cross: what is below the meeting of the ends learns twice as much, the head as before."""
    known = torch.where(THREE[EDGES.edge_index[0]] != THREE[EDGES.edge_index[1]], EDGES.edge_y, -1)
    found = {}
    for correct in (False, True):
        parts = {"exchange": {"correct": correct}, "sync": {"beta": 1.0}}
        options = {**RICH, "layers": 2, "parts": parts}
        run = open_run("ce-fedgnn", replace(EDGES, edge_y=known), options, "gin", optimiser="sgd")
        one_step(run)
        found[correct] = {name: p.grad.clone() for name, p in run.stage.site.net.named_parameters()}
    for name, plain in found[False].items():
        if name.startswith(("layers.", "enter.", "edge_head.", "edge_updates.steps.1.")):
            factor = 2.0 if name.startswith(("layers.", "enter.")) else 1.0
            torch.testing.assert_close(found[True][name], factor * plain, rtol=1e-10, atol=1e-14, msg=name)


def test_the_two_directions_of_an_edge_are_kept_apart() -> None:
    run = open_run("centralised", EDGES, dict(RICH), "gin")
    updates = run.stage.site.net.edge_updates
    assert [part.sides for part in (updates.enter, *updates.steps)] == [2, 2, 2, 1]  # the head reads one direction
    block = first_work(run).batch.blocks[0]
    e = run.stage.site.net.edges(1, torch.randn(30, 8, dtype=torch.float64), block)
    assert isinstance(e, Tensor) and len(e) == 2 * EDGES.m


def test_the_switch_is_a_key_of_the_model() -> None:
    recipe = {"method": "fedavg", "data": {"name": "patterns"}, "model": {"name": "gin", "edge_updates": True}}
    assert resolve(recipe).model.edge_updates and not resolve({**recipe, "model": {"name": "gin"}}).model.edge_updates


def on_wires(wire: Wire | None = None) -> tuple[list[float], dict[str, Any]]:
    training = {**SAMPLED, "model_options": {**RICH, "ego": True}}
    result: Result = run_method(EXACT, EDGES, torch.arange(30) % 5, 5, "pna", wire=wire, **training)
    return losses(result), result.test.as_dict()


@pytest.mark.hosts
def test_three_hosts_give_the_same_losses_and_scores() -> None:
    expected, scores = on_wires()
    for loss, score in on_hosts(3, on_wire, 5, on_wires):
        torch.testing.assert_close(numbers(loss), numbers(expected), rtol=1e-11, atol=0)
        assert score == pytest.approx(scores, rel=1e-11, nan_ok=True)
