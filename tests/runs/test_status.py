"""How a run stands, from its folder: finished, going on, cut off, damaged; and the log of what happened."""

import fcntl
import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.launch.live_status import Live
from isthmus.runs.folder import LOCK
from isthmus.runs.status import FILE, status_of
from isthmus.train import loop
from tests.helpers.command import SMALL, isthmus, losses, refuse, same_run, succeed
from tests.helpers.killing import at, killed

pytestmark = pytest.mark.usefixtures("no_report")


def told(run: Path, **changes: Any) -> None:
    """Change what host 0 has told."""
    path = run / FILE.format(0)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_finished_run_and_its_log(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "log.jsonl"
    succeed(*SMALL, "--out", run, "--log", log)
    found = json.loads(succeed("status", run, "--json").out)
    host = found["hosts"][0]
    assert (found["state"], found["checkpoints"], found["damaged"]) == ("finished", {"0": 4}, [])
    assert (host["state"], host["epoch"], host["epochs"], host["step"]) == ("finished", 4, 4, 4)
    assert host["loss"] == pytest.approx(losses(run)[-1], abs=0.5) and host["steps_per_second"] > 0
    assert "host 0 (silo-0, silo-1, silo-2): finished, epoch 4/4" in succeed("status", run).out
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["start", "training", *["epoch"] * 4, "end"]
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == [1, 2, 3, 4]
    assert {"time", "party", "event"} <= set.intersection(*(set(line) for line in lines))
    numbers = [value for line in lines for key, value in line.items() if key not in ("time", "party", "event", "state")]
    assert all(isinstance(value, int | float) for value in numbers)  # nothing of the data
    succeed(*SMALL, "--out", tmp_path / "silent")
    same_run(run, tmp_path / "silent", also=["metrics.jsonl"])
    assert "system.log" not in refuse(*SMALL, "--out", run, "--resume", "--seed", 1)  # a log changes no result


def test_a_finished_run_that_is_resumed_stands_as_it_did(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for options in ((), ("--set", "train.patience=1", "--epochs", 50, "--overwrite")):  # one that ends before its time
        succeed(*SMALL, *options, "--out", run)
        before = status_of(run)
        succeed("run", "--out", run, "--resume")
        after = status_of(run)
        assert after.hosts[0].loss is not None and after.hosts[0].steps_per_second > 0
        new = {name: getattr(after.hosts[0], name) for name in ("pid", "started", "updated")}
        assert after == replace(before, hosts=[replace(before.hosts[0], **new, crossed=after.hosts[0].crossed)])


def test_a_run_with_seeds_stands_as_the_seed_that_told_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, plain, found = tmp_path / "run", loop.step, list[Any]()

    def looked(stage: Any, progress: Any, seeds: Any) -> None:
        found.append(status_of(run))
        plain(stage, progress, seeds)

    monkeypatch.setattr(loop, "step", looked)
    succeed(*SMALL, "--epochs", 2, "--seeds", 2, "--out", run)
    assert [(each.state, each.seed, len(each.hosts)) for each in found] == [
        ("running", seed, 1) for seed in ("seed-0", "seed-0", "seed-1", "seed-1")
    ]
    assert [each.checkpoints for each in found] == [{}, {0: 1}] * 2
    assert status_of(run).state == "finished" and "run: finished, seed-1" in succeed("status", run).out
    (run / "metrics.json").unlink()
    assert status_of(run).state == "cut off"


def crossed_at_steps(monkeypatch: pytest.MonkeyPatch) -> dict[int, dict[str, int]]:
    """By step, the bytes of each kind that hosts tell of while they run, filled in later."""
    monkeypatch.setattr("isthmus.launch.live_status._RENEWED", 0.0)
    monkeypatch.setattr("isthmus.launch.live_status.Live._keep", lambda live: None)
    told, on_step = dict[int, dict[str, int]](), Live.on_step

    def noted(live: Live, *given: Any) -> None:
        on_step(live, *given)
        crossed = live.now["crossed"]
        told[crossed["step"]] = {kind: counts[2] for kind, counts in crossed["kinds"].items()}

    monkeypatch.setattr(Live, "on_step", noted)
    return told


def test_what_has_crossed_is_told_as_it_leaves_also_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, run = crossed_at_steps(monkeypatch), tmp_path / "run"
    command = (*SMALL, "--method", "sync-sgd+fwd-bwd-le", "--set", "train.checkpoint_every=3")
    succeed(*command, "--epochs", 4, "--out", run)
    assert sorted(told) == [1, 2, 3, 4] and all(told[i]["embeddings"] < told[i + 1]["embeddings"] for i in (1, 2, 3))
    whole = dict(told)
    told.clear()
    shutil.rmtree(run)
    killed(at(loop, "step", 4), *command, "--epochs", 4, "--out", run)
    assert told == {}  # by another process
    succeed(*command, "--epochs", 4, "--out", run, "--resume")
    assert told == {step: whole[step] for step in (4,)}


def test_a_run_that_goes_on_was_cut_off_or_failed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed(at(loop, "step", 3), *SMALL, "--out", run)
    found = status_of(run)
    now = datetime.now(UTC)
    assert found.hosts[0].state == found.state == "running" and found.checkpoints == {0: 2}  # not silent for long yet
    told(run, updated=(now - timedelta(seconds=60)).isoformat())
    assert status_of(run).state == status_of(run).hosts[0].state == "cut off"
    with open(run / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert status_of(run).state == "running"
        (run / FILE.format(0)).rename(tmp_path / "aside")
        assert status_of(run).state == "starting"
    (tmp_path / "aside").rename(run / FILE.format(0))
    told(run, state="failed", why="silo-2 sent nonsense", updated=now.isoformat())
    said = succeed("status", run).out
    assert "run: failed" in said and "Host 0 ended: silo-2 sent nonsense" in said


def test_who_is_waited_for_and_why_a_run_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, plain = tmp_path / "run", loop.step

    def third(stage: Any, progress: Any, seeds: Any) -> None:
        if progress.step == 2:
            raise ZeroDivisionError("of 4711 accounts")
        plain(stage, progress, seeds)

    monkeypatch.setattr(loop, "step", third)
    with pytest.raises(ZeroDivisionError):
        isthmus(*SMALL, "--out", run, "--log", tmp_path / "log.jsonl")
    host = status_of(run).hosts[0]
    assert (host.state, host.why, host.step) == ("failed", "ZeroDivisionError", 2)
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["error"] == "ZeroDivisionError" and "4711" not in (tmp_path / "log.jsonl").read_text()
    told(run, waiting_for=["silo-1"])
    assert "waits for silo-1" in succeed("status", run).out


def test_hosts_that_wait_for_a_moment_are_not_told(tmp_path: Path) -> None:
    """At every step each waits for the slowest; what is told is who holds the others up."""
    wire: Any = SimpleNamespace(host=0, who=["silo-0", "silo-1"], waiting_for=lambda: ["silo-1"])
    live, told = Live(wire, tmp_path, ""), list[Any]()
    steps = iter([1, 2, 2, 3])

    def wait(seconds: float) -> bool:
        told.append(live.now["waiting_for"])
        live.now["step"] = next(steps, None)
        return live.now["step"] is None

    live._stop.wait = wait  # type: ignore[method-assign]
    live._keep()
    assert told == [[], [], [], ["silo-1"], []]


@pytest.mark.parametrize("words", ["", "{", "[]", '{"epoch": "many"}', '{"colour": 1}', '{"waiting_for": 3}', "\xff"])
def test_damaged_folders_are_told_as_far_as_they_go(words: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    (tmp_path / FILE.format(0)).write_bytes(words.encode("latin-1"))
    (tmp_path / "metrics.json").write_text("{")
    (tmp_path / "checkpoint" / "epoch-000003").mkdir(parents=True)
    (tmp_path / "checkpoint" / "epoch-000003" / "host-1.json").touch()
    found = status_of(tmp_path)
    assert found.damaged[0].startswith("status-host-0.json") and found.damaged[-1] == "metrics.json"
    assert found.checkpoints == {1: 3} and found.state == "cut off" and os.listdir(tmp_path)
    assert "Damaged: metrics.json" in succeed("status", tmp_path).out


def test_what_is_no_run_has_no_status(tmp_path: Path) -> None:
    refuse("status", tmp_path, says=["is not a run", "config.toml"])
