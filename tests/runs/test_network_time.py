"""The time over a network: trips are counted alike everywhere, and seconds follow from the ledger alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from isthmus.commands.run import Request, configure
from isthmus.core.kinds import FINAL, SERVER, Kind, Purpose
from isthmus.federation.boundary import build_boundary, make_route
from isthmus.report.network import price
from isthmus.report.report import write_report
from isthmus.runs.folder import RunFolder
from isthmus.runs.network_time import LinkConfig, Usage, link_times, phases, used
from isthmus.train import loop as train
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire
from tests.helpers.command import SMALL, metrics, refuse, same_run, succeed
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.killing import at, killed
from tests.helpers.reports import read
from tests.helpers.small import run_method, small_graph

THREE = torch.arange(24) % 3
FULL = (*SMALL, "--method", "sync-sgd+fwd-bwd-le")
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fedavg", {"batch": 4}),
    ("sync-sgd+fwd-bwd-le", {"batch": 4, "fanout": (2,)}),
    ("fedavg+fwd-bwd-le", {"batch": 4, "fanout": (2,)}),
    ("ce-fedgnn", {"options": {"sync": {"local_steps": 2}}}),
    ("optimes", {}),
)


def legs(wire: Wire) -> int:
    """One-way trips so far."""
    return sum(wire.ledger.leg_table()["legs"].to_pylist())


@pytest.mark.parametrize("silos", [1, 2, 5])
def test_a_call_is_one_leg_whatever_the_number_of_silos(silos: int) -> None:
    wire, taken = LocalWire(silos), []
    calls = (
        lambda: wire.post(Kind.IDS, {(i, SERVER): torch.zeros(3) for i in range(silos)}),
        lambda: wire.post(Kind.IDS, {}),  # others may have had something to send
        lambda: wire.share(Kind.METRICS, torch.zeros(silos, 2)),
        lambda: wire.total(Kind.STATISTICS, torch.zeros(silos, 2)),
        lambda: wire.total_of_hosts(Kind.GRADIENTS, torch.zeros(7)),
    )
    for call in calls:
        before = legs(wire)
        call()
        taken.append(legs(wire) - before)
    assert taken == [1, 1, 2, 2, 2]


def test_rows_take_one_leg_and_their_adjoints_another() -> None:
    run = run_method("sync-sgd+fwd-bwd-le", small_graph(24, 120), THREE, 3).training
    wire, stack = run.wire, run.stage.site.stack
    boundary = build_boundary(wire, run.federation.plan, stack)
    before = legs(wire)
    asked = wire.ask(boundary, boundary.halo)
    assert legs(wire) == before + 1
    owned, rows = stack.owned.nonzero().flatten(), torch.arange(stack.rows)
    h = torch.randn(len(owned), 8, dtype=torch.float64, requires_grad=True)
    y = wire.linear(h, make_route([asked], owned, rows, wire), Kind.EMBEDDINGS, adjoint=True)
    assert legs(wire) == before + 2
    wire.close(y.sum()).backward()
    assert legs(wire) == before + 3


def test_a_step_of_full_exchange_and_its_validation() -> None:
    result = run_method("sync-sgd+fwd-bwd-le", small_graph(24, 120), THREE, 3)
    table = result.training.wire.ledger.leg_table().to_pylist()
    found = {(line["epoch"], line["step"], line["purpose"]): line["legs"] for line in table}
    for epoch in (1, 2, 3):
        assert found[epoch, epoch, "step"] == 2 + 2 + 2  # two layers there, two back, gradients up and down
        assert found[epoch, epoch, "validation"] == 2 + 2  # two layers, scores up and down
        assert found[epoch, epoch, "losses"] == 2
    assert {purpose for *_, purpose in found} == {"setup", "step", "validation", "losses", "end", "test, as trained"}


def count(wire: Wire | None = None) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Legs and lines of each case."""
    done = []
    for method, training in CASES:
        if wire is not None:
            wire.ledger.__init__()  # type: ignore[misc]
        ledger = run_method(method, small_graph(24, 120), THREE, 3, wire=wire, **training).training.wire.ledger
        done.append((ledger.leg_table().drop_columns("busiest").to_pylist(), ledger.step_table().to_pylist()))
    return done


@pytest.mark.hosts
def test_every_host_counts_the_legs_of_one_process() -> None:
    for (alone, lines), *each in zip(count(), *on_hosts(2, on_wire, 3, count), strict=True):
        assert all(there == alone for there, _ in each)
        by_purpose = [sums(part) for part in (lines, [line for _, part in each for line in part])]
        assert by_purpose[0] == by_purpose[1]


def sums(lines: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    """Bytes by kind and purpose."""
    found: dict[tuple[Any, ...], int] = {}
    for line in lines:
        key = (line["epoch"], line["step"], line["purpose"], line["kind"])
        found[key] = found.get(key, 0) + line["bytes"]
    return found


def test_a_phase_lasts_as_long_as_its_busiest_party() -> None:
    wire = LocalWire(3)
    wire.post(Kind.IDS, {(0, 1): torch.zeros(10), (0, 2): torch.zeros(5), (1, 2): torch.zeros(20)})  # four bytes each
    with wire.ledger.during(Purpose.STEP):
        wire.total(Kind.GRADIENTS, torch.zeros(3, 25))
        wire.post(Kind.IDS, {})
    found = used(phases(wire.ledger.step_table(), wire.ledger.leg_table()), "purpose")
    assert found == {"setup": Usage(140, 100, 1), "step": Usage(600, 300, 3)}  # silo 2 receives; the server does both
    times = link_times(LinkConfig(mbps=0.001, latency_ms=500), found, computing=2.0)
    assert times["transfer_seconds"] == pytest.approx(400 * 8 / 1000)
    assert times["latency_seconds"] == pytest.approx(1.0) and times["round_trips"] == 2
    assert times["seconds"] == pytest.approx(2 + 3.2 + 1)
    assert times["parts"]["training"]["bytes"] == 600


def test_the_final_scores_are_told_apart() -> None:
    usage = {"setup": Usage(1, 1, 2), "validation": Usage(2, 2, 4), "end": Usage(10**9, 10**9, 1000)}
    times = link_times(LinkConfig(), usage, 0.0)
    assert times["round_trips"] == 3 and times["parts"]["end"]["round_trips"] == 500
    assert times["seconds"] == pytest.approx(0.003, rel=1e-3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("link") / "run"
    succeed(*FULL, "--out", folder)
    return folder


def test_a_run_tells_its_time_over_the_link(finished: Path) -> None:
    found = json.loads((finished / "metrics.json").read_text())
    link, legs = found["link"], pq.read_table(finished / "legs.parquet").to_pylist()
    assert (link["mbps"], link["latency_ms"]) == (1000, 1)
    assert 2 * link["round_trips"] == sum(line["legs"] for line in legs if line["purpose"] not in FINAL)
    assert sum(part["bytes"] for part in link["parts"].values()) == found["bytes"]["total"]
    assert link["seconds"] == sum(link[f"{part}_seconds"] for part in ("compute", "transfer", "latency"))
    assert link["compute_seconds"] == pytest.approx(found["seconds"] - found["seconds_on_wire"])
    assert len(found["seconds_by_epoch"]) == 4


def test_the_link_changes_no_result_and_may_change_on_resume(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    succeed("run", "--out", tmp_path / "run", "--resume", "--set", "link.mbps=10", "--set", "link.latency_ms=40")
    before, after = metrics(finished), metrics(tmp_path / "run")
    assert after["link"]["transfer_seconds"] == pytest.approx(100 * before["link"]["transfer_seconds"])
    assert after["link"]["latency_seconds"] == pytest.approx(40 * before["link"]["latency_seconds"])
    assert {key for key in before if before[key] != after[key]} == {"link"}
    assert "mbps = 10.0" in (tmp_path / "run" / "config.toml").read_text()
    plain, slow = (configure(Request(None, {}, sets)) for sets in ((), ("link.mbps=3",)))
    assert plain.digest() == slow.digest() and plain != slow


def test_a_killed_run_counts_what_a_whole_one_counts(finished: Path, tmp_path: Path) -> None:
    """In full batches too, where halo rows are asked for once."""
    killed(at(train, "step", 3), *FULL, "--out", tmp_path / "run")
    succeed("run", "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", finished)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert len(found["seconds_by_epoch"]) == 4
    assert sum(found["seconds_by_epoch"]) == pytest.approx(found["seconds"], abs=1e-4)


def test_merged_data_waits_for_no_network(tmp_path: Path) -> None:
    succeed(*SMALL, "--method", "centralised", "--out", tmp_path / "run")
    link = json.loads((tmp_path / "run" / "metrics.json").read_text())["link"]
    assert link["round_trips"] == 0 and link["seconds"] == link["compute_seconds"] > 0


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("mbps", "0", "must be at least 0.001"),
        ("mbps", "-3", "must be at least 0.001"),
        ("mbps", "inf", "finite"),
        ("mbps", "fast", "type float"),
        ("latency_ms", "-0.1", "must be 0 or more"),
        ("speed", "1", "latency_ms, mbps"),
    ],
)
def test_links_that_do_not_exist(key: str, value: str, says: str, finished: Path, tmp_path: Path) -> None:
    refuse(*SMALL, "--out", tmp_path / "run", "--set", f"link.{key}={value}", says=[key, says])
    refuse("report", finished, "--set", f"link.{key}={value}", says=[key, says])
    assert not (tmp_path / "run").exists()


# In the report


def test_every_validation_has_its_price(finished: Path) -> None:
    folder = RunFolder.open(finished)
    fast, slow = price(folder, LinkConfig(1000, 0)), price(folder, LinkConfig(1, 10))
    assert fast is not None and slow is not None and fast.bytes is not None
    assert len(fast.seconds) == len(fast.bytes) == len(fast.valid) == 4
    assert all(values == sorted(set(values)) for values in (fast.seconds, fast.bytes, slow.seconds))
    assert all(a < b for a, b in zip(fast.seconds, slow.seconds, strict=True))
    end = sum(line["bytes"] for line in folder.ledger.to_pylist() if line["purpose"] in FINAL)
    assert fast.bytes[-1] == folder.metrics["bytes"]["total"] - end
    link = folder.metrics["link"]
    assert price(folder, LinkConfig()).seconds[-1] == pytest.approx(link["seconds"], abs=1e-4)  # type: ignore[union-attr]


def test_the_report_of_another_link(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    succeed("report", tmp_path / "run", "--set", "link.mbps=5", "--set", "link.latency_ms=70")
    page = read(tmp_path / "run" / "report.html")
    assert "How long it takes over a network" in page.text and "a link of 5 Mbit/s and 70 ms a round trip" in page.text
    rows = {line[0]: line[1:] for line in page.table("", "Bytes", "Round trips")}
    trips = [rows[name][1] for name in ("before training", "training", "validation", "until training ended")]
    assert [float(text) for text in trips][-1] == metrics(finished)["link"]["round_trips"]
    assert "against emulated seconds, and against bytes" in page.text
    refuse("report", tmp_path / "run", "--set", "train.lr=1", says=["train", "link.mbps"])
    (tmp_path / "run" / "legs.parquet").unlink()  # a run of an older version
    assert "over a network" not in read(write_report(RunFolder.open(tmp_path / "run"))).text


def test_runs_on_one_link_and_on_several(finished: Path, tmp_path: Path) -> None:
    succeed(*SMALL, "--out", tmp_path / "a", "--seeds", 2, "--set", "link.mbps=5")
    seeds = json.loads((tmp_path / "a" / "metrics.json").read_text())["link"]
    assert seeds["seconds"] > seeds["compute_seconds"] > 0
    read(tmp_path / "a" / "report.html")
    succeed("compare", finished, tmp_path / "a", "--out", tmp_path / "both")
    assert "different links" in read(tmp_path / "both" / "comparison.html").text
    succeed("compare", tmp_path / "a", "--out", tmp_path / "one")
    assert "a link of 5 Mbit/s and 1 ms" in read(tmp_path / "one" / "comparison.html").text


def test_no_validations_no_curves(tmp_path: Path) -> None:
    succeed(*SMALL, "--epochs", 0, "--out", tmp_path / "run")
    page = read(tmp_path / "run" / "report.html")
    assert "How long it takes over a network" in page.text and "against emulated seconds" not in page.text
    assert isinstance(RunFolder.open(tmp_path / "run").legs, pa.Table)
