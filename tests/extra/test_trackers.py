"""TensorBoard and MLflow hold what a run told, offline; skipped where they are missing (pip install isthmus[track])."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from torch import arange

import isthmus
from isthmus.graph.cut import split_graph
from tests.helpers.command import SMALL, history, succeed
from tests.helpers.small import small_graph

pytestmark = pytest.mark.extra


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    """Refuse every connection to another machine."""
    usual = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "localhost", "::1"), address
        usual(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect)


def test_tensorboard_holds_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in ("a", "b"):
        succeed(*SMALL, "--track", f"tensorboard:{tmp_path / 'tb'}", "--out", tmp_path / name)
    first, second = sorted((tmp_path / "tb").iterdir())
    assert first.name == "fedavg-seed-0" and second.name == "fedavg-seed-0-2"
    events = EventAccumulator(str(first))
    events.Reload()
    steps = [line for line in history(tmp_path / "a") if "valid" not in line]
    scored = [line for line in history(tmp_path / "a") if "valid" in line]
    loss, valid = events.Scalars("loss"), events.Scalars("valid/accuracy")
    assert [(each.step, each.value) for each in loss] == [(line["step"], pytest.approx(line["loss"])) for line in steps]
    expected = [(line["epoch"], pytest.approx(line["valid"]["accuracy"])) for line in scored]
    assert [(each.step, each.value) for each in valid] == expected
    metrics = json.loads((tmp_path / "a" / "metrics.json").read_text())
    assert events.Scalars("test/accuracy")[0].value == pytest.approx(metrics["test"]["accuracy"])
    assert events.Scalars("bytes/total")[0].value == pytest.approx(metrics["bytes"]["total"])


def test_mlflow_holds_the_run(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    succeed(*SMALL, "--seeds", 2, "--track", f"mlflow:{tmp_path / 'ml'}", "--out", tmp_path / "a")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "ml").as_uri())
    [experiment] = [each for each in client.search_experiments() if each.name == "isthmus"]
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {"fedavg #0, seed 0", "fedavg #1, seed 1"}
    for seed, run in enumerate(runs[name] for name in sorted(runs)):
        folder = tmp_path / "a" / f"seed-{seed}"
        metrics = json.loads((folder / "metrics.json").read_text())
        assert run.info.status == "FINISHED" and run.data.params["train.epochs"] == "4"
        assert run.data.metrics["test/accuracy"] == pytest.approx(metrics["test"]["accuracy"])
        told = client.get_metric_history(run.info.run_id, "loss")
        assert [each.value for each in told] == [line["loss"] for line in history(folder) if "valid" not in line]


@pytest.mark.parametrize("kind", ["tensorboard", "mlflow"])
def test_from_python(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind)
    silos = split_graph(small_graph(30, 140), arange(30) % 3, 3)
    follower = isthmus.tracker(f"{kind}:{tmp_path / 'one'}", "mine")
    isthmus.fit(silos, settings={"train.epochs": 2, "model.hidden": 4}, watcher=follower)
    isthmus.fit(silos, settings={"train.epochs": 2, "system.track": f"{kind}:{tmp_path / 'two'}"})
    assert any((tmp_path / "one").rglob("*")) and any((tmp_path / "two").rglob("*"))
