"""Rows that are kept for a round drift from what they become: measured by those who hold them, told with scores."""

from typing import Any

import pytest
import torch

from isthmus.methods.exchange.drift import FAR, drift_note
from isthmus.methods.exchange.optimes import LiveOptimES
from isthmus.train.result import Result
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire
from tests.helpers.command import SMALL, metrics, succeed
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import run_method, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3


def run(name: str, **options: Any) -> Result:
    return run_method(name, GRAPH, THREE, 3, "sage", {"sync": {"local_steps": 2}}, epochs=6, **options)


def drifts(result: Result) -> list[list[float | None]]:
    return [line["silo_drift"] for line in result.history if "silo_drift" in line]


def test_drift_is_the_distance_of_new_rows_from_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independently, from the caches before and after each round."""
    expected: list[list[float]] = []
    usual = LiveOptimES.round_end

    def watched(self: LiveOptimES) -> None:
        old = {name: rows.clone() for name, rows in self.state.items() if name.startswith("layer-")}
        usual(self)
        if old:
            silo = self.site.stack.silo_of(self.site.boundary.halo)
            moved, size = (torch.zeros(3, dtype=torch.float64) for _ in range(2))
            for name, rows in old.items():
                moved.index_add_(0, silo, (self.state[name] - rows).square().sum(1))
                size.index_add_(0, silo, self.state[name].square().sum(1))
            expected.append((moved / size).sqrt().tolist())

    monkeypatch.setattr(LiveOptimES, "round_end", watched)
    found = drifts(run("optimes"))
    assert len(found) == 3 and torch.allclose(torch.tensor(found), torch.tensor(expected))


@pytest.mark.parametrize("name", ["ce-fedgnn", "fedgnn-st", "optimes"])
def test_small_steps_drift_less(name: str) -> None:
    slow, fast = (run(name, lr=lr) for lr in (1e-4, 0.05))
    for little, much in zip(drifts(slow)[-1], drifts(fast)[-1], strict=True):
        assert little is not None and much is not None and 0 < little < much


def test_who_keeps_no_rows_has_no_drift() -> None:
    assert not drifts(run("fedavg")) and not drifts(run_method("sync-sgd+fwd-bwd-le", GRAPH, THREE, 3))


def test_a_run_of_stale_rows_says_so() -> None:
    assert drift_note([0.1, None, FAR]) == [] == drift_note([])
    [note] = drift_note([0.5, 0.9, None])
    assert note.startswith("STALE ROWS: what silos read of each other's nodes moved by 70 %")


def test_the_note_is_in_the_report(tmp_path: Any) -> None:
    out = tmp_path / "run"
    stale = ("--method", "optimes", "--set", "sync.local_steps=2", "--set", "train.lr=1.0")
    succeed(*SMALL, *stale, "--out", out)
    assert any(note.startswith("STALE ROWS") for note in metrics(out)["notes"])
    assert f"moved by {100 * metrics(out)['drift']:.0f} % of their size" in (out / "report.html").read_text()
    succeed(*SMALL, "--out", tmp_path / "none")
    assert metrics(tmp_path / "none")["drift"] is None
    assert "of their size" not in (tmp_path / "none" / "report.html").read_text()


def on_host(wire: Wire) -> list[list[float | None]]:
    return drifts(run("ce-fedgnn", wire=wire))


@pytest.mark.hosts
def test_hosts_tell_the_drift_of_one_process() -> None:
    first, *others = on_host(LocalWire(3))
    assert first == [None] * 3  # nothing had arrived before
    for found in on_hosts(3, on_wire, 3, on_host):
        assert found[0] == first
        torch.testing.assert_close(torch.tensor(found[1:]), torch.tensor(others), rtol=1e-6, atol=0)
