"""A study runs every row and seed, goes on where it stopped, and says what failed."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import psutil
import pytest

from isthmus import cli
from isthmus.studies import catalogue, engine, page, plots
from isthmus.studies.study import Study, StudyRow, Value, mean_column, score_column
from isthmus.train import loop as train
from tests.helpers.command import Outcome, isthmus, metrics, refuse, same_run, snapshot, succeed

COLUMNS = (score_column("acc", "accuracy"), score_column("F1", "macro_f1"))
TOO_MANY = {"method": "fedavg", "data": {"silos": 99}}  # resolves, and cannot be split
BASE: dict[str, Any] = {
    "data": {"name": "blocks", "silos": 3, "nodes": 64, "degree": 3, "features": 4, "classes": 3},
    "model": {"name": "gcn", "hidden": 8},
    "train": {"epochs": 6, "batch": 16, "pooled": True},
}
TINY = Study(
    name="tiny",
    title="Three methods on a small graph",
    summary="for tests",
    source="Nobody 1999, Table 1",
    measure="per cent",
    columns=(*COLUMNS, mean_column("mean", COLUMNS)),
    rows=(
        StudyRow("Alone", {"method": "local"}, {"acc": Value(40.0, 1.0), "F1": Value(30.0), "mean": Value(35.0)}),
        StudyRow("Fed & Avg", {"method": "fedavg"}, {"acc": Value(50.0), "F1": Value(45.0), "mean": Value(47.5)}),
        StudyRow("Ours", {"method": "centralised"}),
    ),
    base=BASE,
    silos=3,
)
BROKEN = Study(
    "broken", "One row fails", "", "", "%", TINY.columns, (StudyRow("Bad", TOO_MANY), *TINY.rows[:2]), BASE, seeds=1
)
LONG = {**BASE, "train": {**BASE["train"], "epochs": 150}}
SLOW = Study("slow", "Long runs", "", "", "%", TINY.columns, TINY.rows[:2], LONG, seeds=1)
ROWS = ("alone", "fed-avg", "ours")


@pytest.fixture(autouse=True)
def studies(monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    """Add the studies above to the catalogue; draw nothing, since drawing takes longer than training."""
    monkeypatch.setattr(catalogue, "STUDIES", catalogue.STUDIES | {s.name: s for s in (TINY, BROKEN, SLOW)})
    monkeypatch.setattr(plots, "plot_files", lambda findings: {})
    monkeypatch.setattr(page, "beside", lambda findings: "")


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Let Ctrl-C reach the tests, also where whoever started them ignores it (a shell does so in the background)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny study after a run without interruption."""
    out = tmp_path_factory.mktemp("whole") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "STUDIES", {"tiny": TINY})
        patch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)
        patch.setattr(plots, "plot_files", lambda findings: {})
        patch.setattr(page, "beside", lambda findings: "")
        succeed("reproduce", "tiny", "--out", out)
    return out


def lines(out: Path) -> dict[tuple[str, str], dict[str, str]]:
    """The lines of ``results.csv`` by row and column."""
    with open(out / "results.csv") as file:
        return {(line["row"], line["column"]): line for line in csv.DictReader(file)}


def runs(out: Path) -> list[Path]:
    return [out / row / f"seed-{seed}" for row in ROWS for seed in (0, 1)]


def test_every_row_and_seed_is_an_ordinary_run(whole: Path) -> None:
    for run in runs(whole):
        for name in ("config.toml", "metrics.json", "metrics.jsonl", "ledger.parquet", "model.safetensors"):
            assert (run / name).is_file(), run / name
    assert [metrics(run)["seed"] for run in runs(whole)] == [0, 1] * 3
    assert [metrics(run)["method"] for run in runs(whole)] == ["local"] * 2 + ["fedavg"] * 2 + ["centralised"] * 2


def test_results_are_means_over_seeds_and_their_distance_to_the_paper(whole: Path) -> None:
    found = lines(whole)
    assert len(found) == 9
    accuracy = [100 * metrics(whole / "fed-avg" / f"seed-{seed}")["test"]["accuracy"] for seed in (0, 1)]
    line = found["Fed & Avg", "acc"]
    assert float(line["ours"]) == pytest.approx(fmean(accuracy), abs=1e-5)
    assert float(line["ours_std"]) == pytest.approx(stdev(accuracy), abs=1e-5)
    assert float(line["difference"]) == pytest.approx(fmean(accuracy) - 50.0, abs=1e-5)
    assert (line["paper"], line["paper_std"], line["seeds"]) == ("50.0", "", "2")
    pooled = [100 * metrics(whole / "fed-avg" / f"seed-{seed}")["test_pooled"]["macro_f1"] for seed in (0, 1)]
    assert float(found["Fed & Avg", "F1"]["pooled"]) == pytest.approx(fmean(pooled), abs=1e-5)
    both = [float(found["Alone", name]["ours"]) for name in ("acc", "F1")]
    assert float(found["Alone", "mean"]["ours"]) == pytest.approx(fmean(both), abs=1e-5)
    ours = found["Ours", "mean"]
    assert (ours["paper"], ours["difference"]) == ("", "") and float(ours["ours"]) > 0


def test_results_json_says_what_ran_and_where(whole: Path) -> None:
    found = json.loads((whole / "results.json").read_text())
    assert found["command"].startswith("isthmus reproduce tiny --out")
    assert (found["seeds"], found["epochs"], found["nodes"], found["silos"]) == (2, 6, 64, 3)
    assert found["complete"] is True and found["hardware"][0]["device"] == "cpu"
    assert [row["row"] for row in found["rows"]] == [row.label for row in TINY.rows]
    cell, line = found["rows"][0]["columns"]["acc"], lines(whole)["Alone", "acc"]
    assert cell["difference"] == float(line["difference"]) and cell["paper_std"] == 1.0
    ours = [row["columns"]["mean"]["ours"] for row in found["rows"][:2]]
    assert found["order"]["pairs"] == 1
    assert found["order"]["swapped"] == ([] if ours[0] < ours[1] else [["Alone", "Fed & Avg"]])


def test_the_page_shows_every_number_and_user_text_stays_text(whole: Path) -> None:
    text = (whole / "report.html").read_text()
    assert "Fed &amp; Avg" in text and "Fed & Avg" not in text.replace("Fed &amp; Avg", "")
    for line in lines(whole).values():
        assert f"{float(line['ours']):.2f}" in text, line
    assert "http" not in text


def test_a_finished_study_is_taken_as_it_is(whole: Path) -> None:
    before = {run: snapshot(run) for run in runs(whole)}
    said = succeed("reproduce", "tiny", "--out", whole)
    assert {run: snapshot(run) for run in runs(whole)} == before
    assert "47.50" in said.out and "start" not in said.err
    assert max(map(len, said.out.splitlines()[:-1])) <= 100


def interrupt_at(monkeypatch: pytest.MonkeyPatch, call: int, number: int = signal.SIGINT) -> None:
    """Send this process a signal at the ``call``-th training step."""
    inner, count = train.step, 0

    def step(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == call:
            os.kill(os.getpid(), number)
        inner(*arguments)

    monkeypatch.setattr(train, "step", step)


@pytest.mark.parametrize("call", [1, 4, 20])
def test_an_interrupted_study_goes_on_to_the_same_results(
    call: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tiny"
    with monkeypatch.context() as patch:
        interrupt_at(patch, call)
        refuse_with_progress("reproduce", "tiny", "--out", out, says=["Interrupted", "same command"])
    said = succeed("reproduce", "tiny", "--out", out).err
    assert ("from its checkpoint" in said) == (call > 2)
    for ours, theirs in zip(runs(out), runs(whole), strict=True):
        same_run(ours, theirs)
    assert (out / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()


def test_a_study_that_is_asked_to_end_begins_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 4, signal.SIGTERM)
    refuse_with_progress("reproduce", "tiny", "--out", tmp_path / "tiny", says=["Interrupted", "same command"])
    assert len(list((tmp_path / "tiny").rglob("config.toml"))) == 1


def refuse_with_progress(*arguments: Any, says: list[str]) -> Outcome:
    """The outcome of a command that must fail with exit code 2 and all of ``says`` in its last line."""
    outcome = isthmus(*arguments)
    assert outcome.code == 2, outcome
    last = outcome.err.strip().splitlines()[-1]
    assert last.startswith("isthmus: ") and all(word in last for word in says), last
    return outcome


def test_runs_of_another_configuration_are_refused_and_replaced_when_told(tmp_path: Path) -> None:
    out, row = tmp_path / "tiny", ("--rows", "alone", "--seeds", 1)
    succeed("reproduce", "tiny", "--out", out, *row)
    before = snapshot(out / "alone")
    says = ["train.epochs is 6 there and 2 here", "--out", "--overwrite"]
    refuse("reproduce", "tiny", "--out", out, "--epochs", 2, says=says)
    refuse("reproduce", "tiny", "--out", out, "--set", "train.lr=0.5", says=["train.lr is 0.01 there and 0.5 here"])
    assert snapshot(out / "alone") == before
    succeed("reproduce", "tiny", "--out", out, *row, "--epochs", 2, "--overwrite")
    assert metrics(out / "alone" / "seed-0")["epochs"] == 2
    assert "Trained for 2 epochs, where the study has 6." in (out / "report.html").read_text()
    kept = snapshot(out / "alone")
    succeed("reproduce", "tiny", "--out", out, *row, "--epochs", 2, "--overwrite")  # equal runs stay
    assert snapshot(out / "alone") == kept


def test_overwriting_some_rows_keeps_the_finished_runs_of_all_others(tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    succeed("reproduce", "tiny", "--out", out, "--seeds", 1, "--rows", "alone", "--rows", "ours", "--epochs", 1)
    before = snapshot(out)
    other = ("reproduce", "tiny", "--out", out, "--seeds", 1, "--epochs", 2, "--rows", "alone")
    says = [f"'{out / 'ours' / 'seed-0'}' holds a run of another configuration", "ask for this row too", "--out"]
    refuse(*other, "--overwrite", says=says)
    refuse(*other, says=["--out", "--overwrite"])
    assert snapshot(out) == before
    succeed(*other, "--overwrite", "--rows", "ours")
    assert [metrics(out / row / "seed-0")["epochs"] for row in ("alone", "ours")] == [2, 2]


def test_a_longer_place_or_another_device_is_no_other_run(whole: Path) -> None:
    succeed("reproduce", "tiny", "--out", whole, "--set", "system.threads=2", "--set", "train.checkpoint_every=3")


def test_some_rows_now_and_the_others_later(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "tiny"
    succeed("reproduce", "tiny", "--out", out, "--rows", "Fed & Avg", "--rows", "ours")
    assert [path.exists() for path in runs(out)] == [False, False, True, True, True, True]
    found = lines(out)
    assert found["Alone", "acc"]["ours"] == "" and found["Alone", "acc"]["paper"] == "40.0"
    assert "Not finished yet: Alone." in (out / "report.html").read_text()
    succeed("reproduce", "tiny", "--out", out)
    assert (out / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()
    refuse("reproduce", "tiny", "--rows", "fedavg", says=["Unknown row 'fedavg'", "Did you mean 'fed-avg'"])


def test_a_setting_for_the_rows_that_were_asked_for_may_mean_nothing_to_others(tmp_path: Path) -> None:
    out, of_fedavg = tmp_path / "tiny", ("--set", "sync.local_epochs=2")
    succeed("reproduce", "tiny", "--out", out, "--seeds", 1, "--rows", "fed-avg", *of_fedavg)
    assert [path.exists() for path in runs(out)][:4] == [False, False, True, False]
    refuse("reproduce", "tiny", "--out", out, "--seeds", 1, *of_fedavg, says=["no option sync.local_epochs"])


def test_finished_runs_keep_their_models_and_no_checkpoints(whole: Path) -> None:
    assert all(
        (run / "model.safetensors").is_file() or (run / "model-silo-0.safetensors").is_file() for run in runs(whole)
    )
    assert not list(whole.rglob("checkpoint"))


def test_json(whole: Path) -> None:
    said = succeed("reproduce", "tiny", "--out", whole, "--json").out
    assert json.loads(said) == json.loads((whole / "results.json").read_text())


def test_a_failing_row_stops_no_other_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "broken"
    outcome = refuse_with_progress("reproduce", "broken", "--out", out, says=["Failed: Bad, seed 0", "again"])
    assert "FAILED Bad, seed 0" in outcome.err and "between 99 silos" in outcome.err
    assert "failed" in outcome.out and lines(out)["Alone", "acc"]["ours"] != ""
    found = json.loads((out / "results.json").read_text())
    assert "between 99 silos" in found["rows"][0]["error"] and found["complete"] is False
    assert "Bad failed" in (out / "report.html").read_text()
    monkeypatch.setitem(catalogue.STUDIES, "broken", TINY)
    succeed("reproduce", "broken", "--out", out, "--seeds", 1, "--rows", "ours")


# Children


def until(there: Callable[[], Any], process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    """Wait until ``there()`` is true; fail if the process ends before."""
    deadline = time.monotonic() + seconds
    while not there():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def begun(out: Path) -> int:
    """The number of rows that have a checkpoint."""
    return sum(any((out / row).glob("seed-0/checkpoint/epoch-*")) for row in ("alone", "fed-avg"))


@pytest.mark.hosts
def test_children_end_with_a_killed_parent_and_their_runs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "slow"
    options = ["reproduce", "slow", "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen([sys.executable, "-m", __name__, *options], stderr=subprocess.DEVNULL)
    until(lambda: begun(out) == 2, process)
    children = psutil.Process(process.pid).children()
    assert len(children) == 2
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_PATIENCE", 0.1)
        refuse("reproduce", "slow", "--out", out, says=["at work", "--out"])
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    said = succeed("reproduce", "slow", "--out", out).err
    assert "start  Alone, seed 0, from its checkpoint" in said
    assert json.loads((out / "results.json").read_text())["complete"] is True
    assert [metrics(out / row / "seed-0")["epochs"] for row in ("alone", "fed-avg")] == [150, 150]


@pytest.mark.hosts
def test_a_child_that_dies_is_told_and_stops_no_other(tmp_path: Path) -> None:
    out = tmp_path / "broken"

    def kill() -> None:
        for _ in range(3000):
            for child in psutil.Process().children():
                if any(str(out / "alone") in file.path for file in child.open_files()):
                    child.kill()
                    return
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    outcome = refuse_with_progress(
        "reproduce", "broken", "--out", out, "--jobs", 3, says=["Bad, seed 0", "Alone, seed 0"]
    )
    killer.join()
    assert "FAILED Alone, seed 0" in outcome.err and "killed by signal 9" in outcome.err
    assert "between 99 silos" in outcome.err and "exit code 2" in outcome.err
    assert "done   Fed & Avg, seed 0" in outcome.err
    assert lines(out)["Alone", "acc"]["ours"] == "" and lines(out)["Fed & Avg", "acc"]["ours"] != ""
    outcome = refuse_with_progress("reproduce", "broken", "--out", out, says=["Failed: Bad, seed 0."])
    assert lines(out)["Alone", "acc"]["ours"] != "" and "Fed & Avg" not in outcome.err


@pytest.mark.hosts
def test_a_child_that_ends_before_it_answers_is_told_with_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    options = ("--seeds", 1, "--rows", "alone", "--rows", "ours", "--jobs", 2, "--out", tmp_path / "out")
    outcome = refuse_with_progress("reproduce", "tiny", *options, says=["Failed: Alone, seed 0"])
    assert "exit code 3" in outcome.err and "signal" not in outcome.err


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    catalogue.STUDIES |= {study.name: study for study in (TINY, BROKEN, SLOW)}
    cli.main()
