"""FedSage+ and FedDEP without prototypes: their limits, what silos tell each other, what crosses and when."""

import pytest
import torch
from torch import Tensor

from isthmus.core.errors import PeerError
from isthmus.core.random import normals
from isthmus.engine.forward import forward
from isthmus.graph.cut import split_graph
from isthmus.graph.features import SparseRows
from isthmus.graph.silo import Silo
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.methods.exchange.base import Nothing
from isthmus.methods.exchange.mended import LiveMended
from isthmus.methods.method import Method
from isthmus.methods.nearest_rows import ask_others
from isthmus.methods.objective.asked_reconstruction import LiveAskedReconstruction
from isthmus.testing.runs import resumed, small_silos, uneven_silos, walk
from isthmus.train.loop import train
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from tests.helpers.small import losses, open_of, small_graph

GRAPH, THREE = small_graph(60, 300), torch.arange(60) % 3
FULL, SAMPLED = {}, {"batch": 6, "fanout": (2,)}
BOTH = pytest.mark.parametrize("how", [FULL, SAMPLED], ids=["full", "sampled"])
DURING = ("step", "round", "validation", "losses")  # purposes of what crosses while something learns
FIRST = {"fedsage+": "generate", "feddep-no-prototypes": "encode"}


def short(name: str = "fedsage+", epochs: int = 1, **asked: object) -> Method:
    """A method whose first phase lasts for ``epochs`` epochs, and what else is asked."""
    return compose(compose(catalogue.get(name), {"phase": {FIRST[name]: {"epochs": epochs}}}), asked)


def opened(method: Method | None = None, parts: list[Silo] | None = None, **training: object) -> Training:
    parts = split_graph(GRAPH, THREE, 3) if parts is None else parts
    method = method or short()
    return open_of(method, parts, method.model, **{"epochs": 3, **training})


# ---- limits


@BOTH
def test_without_generated_nodes_it_is_fedavg(how: dict[str, object]) -> None:
    """No generated node is kept when graphs are mended: the classifier learns along a silo's own edges."""
    never = short(phase={"train": {"exchange": {"rate": 0.0}}})
    plain = never.with_phase("train", exchange=Nothing())
    a, b = (train(opened(method, **how)) for method in (never, plain))
    torch.testing.assert_close(losses(a), losses(b), rtol=1e-12, atol=0)
    ours = a.training.learner.classifier.sets.everything()
    for name, tensor in b.training.learner.classifier.sets.everything().items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-12, atol=0)


def test_with_generated_nodes_it_is_another_model() -> None:
    """The generator is made to believe that two neighbours of every node are missing."""
    first = []
    for rate in (0.0, 1.0):
        run = at_training(short(phase={"train": {"exchange": {"rate": rate}}}))
        first.append(next(run.progress.last_loss for _ in walk(run)))
    assert abs(first[0] - first[1]) > 1e-6


def at_training(method: Method) -> Training:
    """A run at the beginning of its last phase, whose generator believes that every node misses two neighbours."""
    run = opened(method)
    for _ in walk(run):
        pass
    generator = run.learner.models["generator"].module
    generator.number.weight.data.fill_(0.0)
    generator.number.bias.data.fill_(2.0)
    run.go_on(1)
    return run


def test_generated_nodes_are_neighbours_like_any_other() -> None:
    """Layers on the mended graph against a dense graph to which rows and edges were added by hand (SAGE, mean)."""
    run = at_training(short())
    site, exchange = run.stage.site, run.stage.exchange
    assert isinstance(exchange, LiveMended)
    seeds = next(iter(run.stage.epoch_seeds(run.progress)))
    work = run.stage.works(seeds, run.progress.step)[0]
    with torch.no_grad():
        got = forward(site.net, exchange, work.batch, site.passing(training=False))
    rows, beside = exchange.state["rows"], exchange.state["beside"]
    assert len(rows) == 2 * 60
    stack, net = site.stack, site.net
    x = stack.x.dense() if isinstance(stack.x, SparseRows) else stack.x
    added = torch.arange(60, 180)
    source = torch.cat([stack.ends[0], added, beside])
    target = torch.cat([stack.ends[1], beside, added])
    edges = torch.zeros(180, 180, dtype=x.dtype)
    edges.index_put_((target, source), torch.ones(len(source), dtype=x.dtype), accumulate=True)
    mean = edges / edges.sum(1, keepdim=True).clamp(min=1)
    silo = torch.cat([stack.silo_of(torch.arange(60)), stack.silo_of(beside)])
    h = _each(net.enter, torch.cat([x, rows]), silo)
    for layer in net.layers:  # y_v = W_near mean_u(h_u) + W_own h_v + b
        h = (_each(layer.near, mean @ h, silo) + _each(layer.own, h, silo)).relu()
    torch.testing.assert_close(got, _each(net.head, h, silo)[seeds.index], rtol=1e-10, atol=1e-12)


def _each(linear: torch.nn.Module, h: Tensor, silo: Tensor) -> Tensor:
    """Rows times the weights of the silo that each of them belongs to."""
    with torch.no_grad():
        out = torch.einsum("ni,nio->no", h, linear.weight[silo])
        return out if linear.bias is None else out + linear.bias[silo]


# ---- what silos tell each other


def test_what_others_tell_is_the_gradient_of_distances_seen_in_one_place() -> None:
    tables = [normals(i, torch.arange(4 + i), 5) for i in range(4)]
    rows = [normals(10 + i, torch.arange(3 * i), 5) for i in range(4)]
    told = ask_others(LocalWire(4), rows, tables)
    for i, mine in enumerate(rows):
        z = mine.clone().requires_grad_()
        away = [torch.cdist(z, table).square().min(1).values for j, table in enumerate(tables) if j != i]
        total = torch.stack(away).sum(0)
        total.sum().backward()
        torch.testing.assert_close(told[i].away, total.detach(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(told[i].gradient, z.grad, rtol=1e-10, atol=1e-12)
        assert told[i].silos.tolist() == [3.0] * len(mine)


def test_what_others_tell_gives_their_rows_away() -> None:
    """2 (z - x) is told of a z that is known: the receiver has x. Reports say so; this is why."""
    table, z = normals(1, torch.arange(6), 5), normals(2, torch.arange(3), 5)
    told, _ = ask_others(LocalWire(2), [z, z[:0]], [table[:0], table])
    recovered = z - told.gradient / 2
    assert float(torch.cdist(recovered, table).min(1).values.max()) < 1e-12


def test_silos_without_nodes_answer_nothing() -> None:
    z = normals(2, torch.arange(3), 5)
    told, _ = ask_others(LocalWire(2), [z, z[:0]], [z, z[:0]])
    assert told.silos.tolist() == [0.0] * 3 and not bool(told.gradient.any())


class Sloppy(LocalWire):
    """A wire on which one kind of letter arrives changed."""

    spoil: str = ""

    def post_together(self, kind: object, letters: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        got = super().post_together(kind, letters)
        return {ends: x * torch.nan for ends, x in got.items()} if str(kind) == self.spoil else got


@pytest.mark.parametrize("kind", ["generated", "row-gradients"])
def test_rows_that_are_no_numbers_are_refused_with_the_name_of_their_sender(kind: str) -> None:
    wire, z = Sloppy(2), normals(2, torch.arange(3), 5)
    wire.spoil = kind
    with pytest.raises(PeerError, match="silo-[01]|silo [01]"):
        ask_others(wire, [z, z], [z, z])


# ---- what crosses


@pytest.mark.parametrize("name", list(FIRST))
@BOTH
def test_rows_and_gradients_cross_while_generators_learn_and_parameters_afterwards(
    name: str, how: dict[str, object]
) -> None:
    """Nothing else of nodes ever does, and no raw feature of anybody."""
    run = opened(short(name), **how)
    train(run)
    lines = run.wire.ledger.table().to_pylist()
    crossed = {line["kind"] for line in lines if line["purpose"] in DURING}
    assert crossed == {"generated", "row-gradients", "parameters", "metrics"}
    when = {(line["kind"], line["purpose"]) for line in lines if line["kind"] not in ("metrics", "statistics")}
    assert {("generated", "step"), ("row-gradients", "step"), ("parameters", "round")} <= when
    assert not {"features", "embeddings", "partials", "aggregates", "adjoints", "prototypes"} & {k for k, _ in when}
    to = {line["receiver"] for line in lines if line["kind"] in ("generated", "row-gradients")}
    assert to <= {f"silo-{i}" for i in range(3)}


@pytest.mark.parametrize("name", list(FIRST))
@BOTH
def test_it_resumes_bit_for_bit_in_either_phase(name: str, how: dict[str, object]) -> None:
    whole, again = resumed(lambda: opened(short(name, epochs=2), epochs=4, **how), [1, 2, 3])
    for epoch, result in again.items():
        assert losses(result) == losses(whole)[-len(losses(result)) :], epoch
        for key, tensor in whole.training.learner.everything().items():
            assert torch.equal(tensor, result.training.learner.everything()[key]), (epoch, key)


ODD = {"one": small_silos(1, 20), "uneven": uneven_silos(), "many": small_silos(9, 45)}


@pytest.mark.parametrize("name", list(FIRST))
@pytest.mark.parametrize("silos", list(ODD))
def test_odd_federations_train(name: str, silos: str) -> None:
    result = train(opened(short(name), ODD[silos]))
    assert all(loss == loss for loss in losses(result))


def test_rows_of_the_encoder_stand_for_nodes_where_there_is_one() -> None:
    run = opened(short("feddep-no-prototypes"))
    for _ in walk(run):
        pass
    run.go_on(1)
    objective = run.stage.objective
    assert isinstance(objective, LiveAskedReconstruction)
    table, _ = objective.own_table()
    assert isinstance(table, Tensor) and bool(torch.isclose(table.norm(dim=1), torch.ones(len(table)).double()).all())
