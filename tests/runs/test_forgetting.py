"""Forgetting a run: nothing of single nodes is left, scores and ledger stay, and it says what it deleted."""

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from isthmus.runs.folder import FORGOTTEN, LOCK
from isthmus.train import loop
from tests.helpers.command import SMALL, isthmus, refuse, snapshot, succeed
from tests.helpers.killing import at, killed

NOISY: tuple[Any, ...] = ("--method", "optimes", "--set", "protect.sigma=0.1", "--set", "protect.clip=1")
KEPT = ("config.toml", "metrics.json", "metrics.jsonl", "ledger.parquet", "steps.parquet", "legs.parquet")


@pytest.mark.usefixtures("no_report")
def test_rows_are_deleted_and_what_they_cost_is_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeed(*SMALL, *NOISY, "--out", run)
    before = snapshot(run)
    gone = {name for name in before if name.startswith("checkpoint/") or name.startswith("released")}
    assert "released.safetensors" in gone and len(gone) > 5
    (done,) = json.loads(succeed("forget", run, "--json").out)
    assert done["deleted"].keys() == {"released.safetensors", "checkpoint"}
    assert done["bytes"] == sum(len(before[name]) for name in gone)
    after = snapshot(run)
    told = json.loads(after.pop(FORGOTTEN))
    assert after == {name: content for name, content in before.items() if name not in gone}
    assert set(KEPT) <= after.keys() and told["deleted"] == ["released.safetensors", "checkpoint"]
    assert "holds no rows of nodes" in succeed("forget", run).out and snapshot(run)[FORGOTTEN]
    succeed("compare", run, "--out", tmp_path / "comparison")
    assert told["when"] in succeed("status", run).out
    refuse("run", "--out", run, "--resume", says=["isthmus forget", "cannot go on", "--overwrite"])
    refuse("audit", run, says=["released.safetensors' is missing"])


@pytest.mark.usefixtures("no_report")
def test_what_goes_on_or_could_is_not_forgotten_by_accident(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed(at(loop, "step", 3), *SMALL, *NOISY, "--out", run)
    (run / LOCK).unlink()  # left by the process that was killed
    before = snapshot(run)
    refuse("forget", run, says=["has not finished", "--unfinished"])
    with open(run / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refuse("forget", run, "--unfinished", says=["in use by another process"])
    (run / LOCK).unlink()
    assert snapshot(run) == before
    said = succeed("forget", run, "--unfinished").out
    assert "checkpoint (checkpoints, with rows before noise" in said and not (run / "checkpoint").exists()


@pytest.mark.usefixtures("no_report")
def test_of_a_folder_of_runs_those_that_are_old(tmp_path: Path) -> None:
    for name in ("old", "new"):
        succeed(*SMALL, *NOISY, "--epochs", 1, "--seeds", 2, "--out", tmp_path / "runs" / name)
    for path in (tmp_path / "runs" / "old").rglob("metrics.json"):
        os.utime(path, (0, 0))
    done = json.loads(succeed("forget", tmp_path / "runs", "--older-than", 30, "--json").out)
    with_rows = sorted(Path(each["folder"]).name for each in done if each["deleted"])
    assert with_rows == ["seed-0", "seed-1"] and len(done) == 3
    assert all((tmp_path / "runs" / "new" / seed / "released.safetensors").exists() for seed in ("seed-0", "seed-1"))
    refuse("forget", tmp_path / "runs", "--older-than", -1, says=["--older-than is -1"])
    refuse("forget", tmp_path / "nothing", says=["holds no run"])


@pytest.mark.usefixtures("no_report")
def test_rows_in_folders_of_parties_are_deleted(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    succeed(*SMALL, *NOISY, "--epochs", 1, "--hosts", 2, "--seeds", 2, "--out", runs / "seeds")
    shutil.copytree(runs / "seeds" / "seed-0", runs / "alone")
    assert [*runs.glob("alone/parties/*/released*")] and [*runs.glob("seeds/seed-1/parties/*/released*")]
    succeed("forget", runs)
    assert not [*runs.rglob("released*"), *runs.rglob("checkpoint"), *runs.rglob("parts")]


@pytest.mark.usefixtures("no_report")
def test_runs_that_have_not_finished_stand_in_no_others_way(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    succeed(*SMALL, *NOISY, "--epochs", 1, "--out", runs / "a")
    succeed(*SMALL, *NOISY, "--epochs", 1, "--seeds", 2, "--out", runs / "b")
    for name in ("c", "d"):
        shutil.copytree(runs / "a", runs / name)
    (runs / "b" / "metrics.json").unlink()  # its second seed may need the first
    (runs / "c" / "metrics.json").unlink()
    said = isthmus("forget", runs)
    assert said.code == 2 and "4 of 6 runs were left as they are" in said.err
    assert said.err.count("has not finished") == 2 and f"'{runs / 'b'}'" in said.err and f"'{runs / 'c'}'" in said.err
    assert [line.split(": ")[0] for line in said.out.splitlines()] == [str(runs / "a"), str(runs / "d")]
    kept = {path.parent.relative_to(runs) for path in runs.rglob("released.safetensors")}
    assert kept == {Path("b/seed-0"), Path("b/seed-1"), Path("c")}
    with open(runs / "b" / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refuse("forget", runs / "b" / "seed-0", "--unfinished", says=["b' is in use by another process"])
    assert len(json.loads(succeed("forget", runs, "--unfinished", "--json").out)) == 6
    assert not [*runs.rglob("released.safetensors")]
