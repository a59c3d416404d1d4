"""One process or several: the same numbers."""

import gc
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from isthmus.data.members import member_names
from isthmus.data.parts import read_part
from isthmus.data.write_parts import write_parts
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.methods import catalogue
from isthmus.methods.catalogue import names
from isthmus.nn.model import MODELS
from isthmus.train.loop import train
from isthmus.train.training import Training
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.packing import pack, unpack
from isthmus.wire.wire import Wire
from tests.helpers.command import losses as run_losses
from tests.helpers.command import metrics, succeed
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import losses, numbers, run_method, small_graph

FIVE = torch.arange(30) % 5
FIVE[FIVE == 3] = 0  # silo 3 owns nothing: a host with an empty silo takes part in every collective
NOISE = {f"{what}{kind}": 0.5 for what in ("clip", "sigma") for kind in ("", "_adjoints", "_parameters", "_gradients")}
GROWING: dict[str, dict[str, object]] = {"sync": {"local_steps": 2, "growth": 1.5, "corrections": 2}}
SOME: dict[str, dict[str, object]] = {"schedule": {"every": 2, "silos": 3}}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((method, "sage", {}) for method in names() if method not in ("centralised", "fedgcn", "pretrained-fedavg")),
    ("pretrained-fedavg", "sage", {"options": {"phase": {"pretrain": {"epochs": 1}}}}),
    *(("fedgcn", "gcn", training) for training in ({}, {"batch": 4, "fanout": (2,)})),
    *((method, "sage", {"batch": 4, "fanout": (2,)}) for method in ("fedavg", "sync-sgd")),
    ("sync-sgd", "multi-pna", {"batch": 3, "fanout": (2,), "epochs": 2}),
    ("sync-sgd+fwd-bwd-le", "gcn", {"batch": 4, "fanout": (2,)}),
    ("sync-sgd+fwd-bwd-le", "multi-pna", {"batch": 3, "fanout": (2,), "epochs": 2}),
    ("sync-sgd+fwd-bwd-le", "gat", {"batch": 1, "fanout": (2,), "epochs": 1}),
    ("sync-sgd", "gcn", {"batch": 1, "fanout": (2,), "epochs": 1}),  # every batch lies in one silo
    *((method, "sage", {"options": {"protect": NOISE}}) for method in ("ce-fedgnn", "sync-sgd+fwd-bwd-le", "optimes")),
    ("fedavg+fwd-bwd-le", "sage", {"batch": 4, "fanout": (2,), "options": {"protect": NOISE}}),
    *(("swift-fedgnn", model, {"batch": 3, "fanout": (2,), "options": SOME}) for model in ("gcn", "pna")),
    ("sync-sgd+fwd-bwd-le", "sage", {"batch": 4, "fanout": (2,), "options": SOME}),
    ("llcg", "gcn", {"batch": 4, "fanout": (2,), "options": GROWING}),
    ("fedgnn-g", "gin", {"options": {"protect": NOISE, "exchange": {"fewest": 2}}}),
    *((method, "gcn", {"options": {"protect": {"name": "server-masks"}}}) for method in ("fedavg", "sync-sgd")),
    ("hifgl", "gcn", {"options": {"sync": {"name": "sync-sgd"}}}),
    ("hifgl", "gcn", {"options": {"exchange": {"fewest": 3}, "protect": {"name": "nothing"}}}),
]


def run_cases(wire: Wire | None = None) -> list[tuple[list[float], dict[str, Any], dict[str, int]]]:
    graph = small_graph(30, 140)
    done = []
    for method, model, training in CASES:
        if wire is not None:
            wire.ledger.__init__()  # type: ignore[misc]
        result = run_method(method, graph, FIVE, 5, model, wire=wire, **training)
        done.append((losses(result), result.test.as_dict(), result.bytes))
    return done


def own_part_only(host: int, parts: str) -> tuple[int, int]:
    """Train from parts on disk; the rows of every tensor of a run are those of this host's silos."""
    wire = DistributedWire(3, timeout=60)
    silo = read_part(Path(parts), member_names(Path(parts)), host)
    federation = open_federation(wire, [silo])
    run = Training(federation, catalogue.get("fedavg"), MODELS["sage"], TrainConfig(epochs=1))
    train(run)
    gc.collect()
    largest = max(
        x.shape[0] for x in gc.get_objects() if type(x) is torch.Tensor and x.dim() and x.dtype == torch.float32
    )
    wire.close_down()
    return silo.n, largest


@pytest.mark.hosts
def test_a_host_of_one_silo_holds_nothing_of_the_size_of_the_whole_graph(tmp_path: Path) -> None:
    graph = small_graph(3000, 3000)
    write_parts(split_graph(graph, torch.arange(3000) % 3, 3), tmp_path / "parts")
    for owned, largest in on_hosts(3, own_part_only, str(tmp_path / "parts")):
        assert owned == 1000
        assert largest < 2500  # the edges that touch owned nodes; the graph has 3000 nodes and 3600 edges


@pytest.mark.hosts
def test_losses_scores_and_bytes_do_not_depend_on_the_number_of_hosts() -> None:
    """Two hosts for five silos. One host for each silo, and the server alone on one: tests/goldens."""
    expected = run_cases()
    for outcome in zip(*on_hosts(2, on_wire, 5, run_cases), expected, CASES, strict=True):
        *each, (loss, score, by_kind), case = outcome
        for hosted_loss, hosted_score, _ in each:
            torch.testing.assert_close(numbers(hosted_loss), numbers(loss), rtol=1e-11, atol=0, msg=str(case))
            assert hosted_score == pytest.approx(score, rel=1e-11, nan_ok=True)
        total = {kind: sum(bytes_.get(kind, 0) for _, _, bytes_ in each) for kind in by_kind}
        assert total == by_kind, case


@pytest.mark.hosts
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("method", ["llcg-every-step", "hifgl"])
def test_the_server_may_live_on_a_host_of_its_own(method: str, tmp_path: Path) -> None:
    """It reads no part, nobody else sees what it sees, and the ledgers that hosts send it are in the ledger."""
    data = ("--silos", 3, "--set", "data.nodes=64", "--set", "data.degree=3")
    succeed("split", "blocks", *data, "--out", tmp_path / "parts")
    options = ("--method", method, "--data", tmp_path / "parts", "--epochs", 4, "--dtype", "float64")
    for name, hosts in (("one", 1), ("four", 4)):
        succeed("run", *options, "--hosts", hosts, "--out", tmp_path / name)
    one, four = metrics(tmp_path / "one"), metrics(tmp_path / "four")
    assert one["server"] == {"host": 0, "beside": ["silo-0", "silo-1", "silo-2"]}
    assert four["server"] == {"host": 0, "beside": []}
    assert run_losses(tmp_path / "four") == pytest.approx(run_losses(tmp_path / "one"), rel=1e-11)
    assert four["test"]["accuracy"] == one["test"]["accuracy"] and four["silo_nodes"] == one["silo_nodes"]
    sent = four["bytes"].pop("ledger")
    assert {**one["bytes"], "total": one["bytes"]["total"] + sent} == four["bytes"]
    lines = pq.read_table(tmp_path / "four" / "ledger.parquet").to_pylist()
    assert sum(line["bytes"] for line in lines) == four["bytes"]["total"]
    letters = [line for line in lines if line["kind"] == "ledger" and line["rows"]]  # beside them empty verdicts
    there = {(f"silo-{i}", "server") for i in range(3)}  # and back: what each silo has received
    assert {(line["sender"], line["receiver"]) for line in letters} == there | {(b, a) for a, b in there}
    assert sum(line["bytes"] for line in letters) == sent > 0


@pytest.mark.hosts
@pytest.mark.usefixtures("no_report")
def test_rows_that_left_are_audited_beside_a_server_without_silos(tmp_path: Path) -> None:
    """The server's host keeps parameters of its own, and has made no row with them."""
    small = ("--data", "blocks", "--silos", 3, "--set", "data.nodes=64", "--set", "data.degree=3")
    noisy = ("--set", "protect.sigma=0.5", "--set", "protect.clip=5", "--set", "protect.secrets=seed")
    found = []
    for hosts in (1, 4):
        out = tmp_path / str(hosts)
        succeed(
            "run",
            *small,
            *noisy,
            "--method",
            "optimes",
            "--epochs",
            2,
            "--dtype",
            "float64",
            "--hosts",
            hosts,
            "--out",
            out,
        )
        told = json.loads(succeed("audit", out, "--json", "--targets", 8).out)
        found.append(told["attack_error"])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_parcels_survive_packing() -> None:
    parcels = {
        (0, 3): torch.arange(6, dtype=torch.int64).reshape(2, 3),
        (-1, 2): torch.randn(4),
        (1, -1): torch.zeros(0, 5, dtype=torch.float64),
        (2, 0): torch.tensor([1, 2, 255], dtype=torch.uint8),
        (4, 1): torch.randn(2, 2, 2, dtype=torch.float64),
    }
    again = unpack(pack(parcels), range(-1, 5), range(-1, 5))
    assert again.keys() == parcels.keys()
    assert all(torch.equal(again[key], parcels[key]) and again[key].dtype == parcels[key].dtype for key in parcels)
    assert unpack(pack({}), (), ()) == {}
