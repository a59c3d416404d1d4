"""The one door: nothing passes beside it, and everything that passes is counted."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from isthmus.core.kinds import ROWS, Kind
from isthmus.core.parcel import Parcel
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.methods import catalogue
from isthmus.nn.model import MODELS
from isthmus.protect.base import Chain, Mechanism
from isthmus.protect.events import Event
from isthmus.protect.secrets import Noise
from isthmus.train.loop import train
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from tests.helpers.small import parameters, run_method, small_graph

THREE = torch.arange(24) % 3


@pytest.mark.parametrize("halo", ["drop", "placeholder"])
@pytest.mark.parametrize("model", ["gcn", "gat", "multi-pna"])
def test_nan_in_one_silo_does_not_reach_another(model: str, halo: str) -> None:
    """Rows of silo 2 were never sent to silos 0 and 1, which therefore train exactly as before."""
    graph = small_graph(24, 120)
    spoilt = replace(graph, x=torch.where((THREE == 2)[:, None], torch.nan, graph.x))
    training = {"batch": 4, "fanout": (3,), "epochs": 2}
    options = {"exchange": {"halo": halo}}
    clean = parameters(run_method("local", graph, THREE, 3, model, options=options, **training))
    beside = parameters(run_method("local", spoilt, THREE, 3, model, options=options, **training))
    for name in clean:
        assert torch.equal(clean[name][:2], beside[name][:2]), name
    assert not torch.equal(clean["head.weight"][2], beside["head.weight"][2])


def test_a_parcel_is_a_copy() -> None:
    wire, rows = LocalWire(2), torch.ones(3, 2)
    got = wire.post(Kind.FEATURES, {(0, 1): rows})
    rows.zero_()
    assert bool((got[0, 1] == 1).all())


@pytest.mark.parametrize("kind", ROWS)
def test_rows_of_nodes_are_no_letters(kind: Kind) -> None:
    """Whose they are would not be known, and how often they left would not be counted."""
    wire = LocalWire(2)
    with pytest.raises(AssertionError, match="rows of nodes"):
        wire.post(kind, {(0, 1): torch.ones(3, 2)})
    assert wire.ledger.by_kind() == {}


def test_every_message_is_in_the_ledger() -> None:
    wire = LocalWire(3)
    wire.ledger.epoch, wire.ledger.step = 2, 7
    wire.post(Kind.FEATURES, {(0, 1): torch.zeros(4, 5), (0, 2): torch.zeros(1, 5, dtype=torch.float64)})
    wire.total(Kind.GRADIENTS, torch.zeros(3, 10))
    table = wire.ledger.table().to_pylist()
    sent = {(row["sender"], row["receiver"], row["kind"]): (row["rows"], row["bytes"]) for row in table}
    assert sent["silo-0", "silo-1", "features"] == (4, 80)
    assert sent["silo-0", "silo-2", "features"] == (1, 40)
    assert all(sent[f"silo-{i}", "server", "gradients"] == (1, 40) for i in range(3))
    assert all(sent["server", f"silo-{i}", "gradients"] == (1, 40) for i in range(3))
    assert len(table) == 8
    assert all((row["epoch"], row["step"], row["event"]) == (2, 7, "unprotected") for row in table)
    assert wire.ledger.by_kind() == {"gradients": 240, "features": 120}


def test_fedavg_sends_its_parameters_up_and_down_once_a_round() -> None:
    result = run_method("fedavg", small_graph(24, 120), THREE, 3, epochs=5, options={"sync": {"local_epochs": 2}})
    numbers = sum(p[0].numel() for p in result.training.learner.classifier.sets.parameters.values())
    rounds = 3  # after epochs 2, 4, and the last
    assert result.bytes["parameters"] == rounds * 3 * 2 * numbers * 8


def test_local_training_sends_neither_parameters_nor_gradients() -> None:
    crossed = run_method("local", small_graph(24, 120), THREE, 3).bytes
    assert set(crossed) == {"ids", "schema", "statistics", "metrics"}


def test_scores_leave_a_silo_only_when_pooled_metrics_are_asked_for() -> None:
    graph = small_graph(24, 120)
    apart, pooled = run_method("fedavg", graph, THREE, 3), run_method("fedavg", graph, THREE, 3, pooled=True)
    assert "scores" not in apart.bytes and "scores" in pooled.bytes
    alone = torch.zeros(24, dtype=torch.int64)
    one = run_method("sync-sgd", small_graph(24, 120, inner=THREE), alone, 1, pooled=True)
    many = run_method("sync-sgd", small_graph(24, 120, inner=THREE), THREE, 3, pooled=True)
    assert many.test.pooled_dict() == pytest.approx(one.test.pooled_dict())  # pooled scores do not depend on the split


@dataclass(frozen=True)
class Halved(Event):
    """What the mechanism below says of itself."""

    name: ClassVar[str] = "halved"

    @property
    def unit(self) -> str:
        return "silo"


@dataclass(frozen=True)
class Halve(Mechanism):
    """A mechanism of its own: halves what it seals, and says so."""

    def separates(self, kind: Kind) -> bool:
        return kind == Kind.GRADIENTS

    def seal(self, parcel: Parcel, noise: Noise) -> tuple[Tensor, Event | None, Tensor | None]:
        assert len(parcel.origin.silo) == len(parcel.origin.row) == len(parcel.rows)
        done = parcel.rows / 2, Halved(), None
        return done if parcel.kind == Kind.GRADIENTS else super().seal(parcel, noise)


def test_protection_acts_on_every_payload_and_is_recorded() -> None:
    graph, losses = small_graph(24, 120), []
    for protect in (Chain(), Chain((Halve(),))):
        wire = LocalWire(3, protect)
        federation = open_federation(wire, split_graph(graph, THREE, 3))
        settings = TrainConfig(epochs=3, optimiser="sgd", lr=0.1 if protect == Chain() else 0.2, weight_decay=0.0)
        model = replace(MODELS["gcn"], hidden=8, dropout=0.0)
        result = train(Training(federation, catalogue.get("sync-sgd"), model, settings, dtype=torch.float64))
        losses.append([line["loss"] for line in result.history])
        table = wire.ledger.table().to_pylist()
        events = {row["event"] for row in table if row["kind"] == "gradients"}
        assert events == {"unprotected" if protect == Chain() else "halved/silo"}
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)  # half the gradient at twice the rate


def test_totals_are_differentiable_and_their_adjoints_are_counted() -> None:
    wire, x = LocalWire(3), torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    wire.close((wire.total(Kind.STATISTICS, x) ** 2).sum()).backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, 2 * x.detach().sum(0).expand(3, 4))
    assert wire.ledger.by_kind()["statistics"] == 2 * 3 * 2 * 32  # up and down, forward and backward


def test_a_silo_holds_content_of_its_own_nodes_only() -> None:
    graph = small_graph(24, 30)
    for silo in split_graph(graph, THREE, 3):
        assert silo.n + silo.h < graph.n
        assert len(silo.x) == len(silo.y) == len(silo.split) == silo.n
        assert silo.edge_index.shape[1] < graph.m
