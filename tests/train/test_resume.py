"""A run that is killed at any moment resumes to the same curve, bit for bit."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from isthmus.data.write_parts import write_parts
from isthmus.launch import host
from isthmus.launch.silos import load_silos
from isthmus.launch.start import Start
from isthmus.runs.config import resolve
from isthmus.runs.folder import LOCK, RunFolder
from isthmus.train import checkpoint
from isthmus.train import loop as train
from isthmus.train.checkpoint import Checkpoints
from isthmus.wire.membership import Membership
from tests.helpers.command import SMALL, Outcome, history, isthmus, losses, metrics, refuse, same_run, snapshot, succeed
from tests.helpers.killing import at, die, killed
from tests.helpers.letters import in_threads

pytestmark = pytest.mark.usefixtures("no_report")

RUNS: dict[str, tuple[Any, ...]] = {
    "fedavg": (),
    "rounds of three epochs": ("--method", "fedprox", "--set", "sync.local_epochs=3", "--set", "objective.mu=0.1"),
    "sampled batches": ("--method", "sync-sgd", "--set", "train.batch=16", "--set", "train.fanout=2"),
    "embeddings and adjoints": (
        "--method",
        "sync-sgd+fwd-bwd-le",
        "--set",
        "train.batch=16",
        "--set",
        "train.fanout=2",
    ),
    "each silo alone": ("--method", "local", "--set", "train.batch=8", "--set", "train.evaluate_every=2"),
    "scored in two ways": ("--set", "score=own,across"),
    "few checkpoints": ("--set", "train.checkpoint_every=2", "--set", "train.optimiser=sgd"),
    "in the middle of a round": (
        "--method",
        "ce-fedgnn",
        "--set",
        "train.batch=8",
        "--set",
        "train.fanout=2",
        "--set",
        "sync.local_steps=5",
        "--set",
        "train.evaluate_every=2",
    ),
    "with noise": (
        "--method",
        "ce-fedgnn",
        "--set",
        "train.batch=8",
        "--set",
        "sync.local_steps=3",
        "--set",
        "protect.sigma=0.3",
        "--set",
        "protect.sigma_parameters=0.01",
    ),
    "sums of features": ("--method", "fedgcn", "--model", "gcn", "--set", "sync.local_steps=3"),
    "a rate that decays": ("--set", "train.decay=0.5", "--set", "train.decay_every=2"),
    "steps": ("--steps", 13, "--set", "train.batch=8"),
    "secret messages": ("--method", "hifgl", "--model", "gcn"),
}


def command(name: str, *options: Any) -> tuple[Any, ...]:
    """The command of one of the runs above, of seven epochs unless it counts steps."""
    length = () if name == "steps" else ("--epochs", 7)
    return (*(x for x in SMALL if x not in ("--epochs", 4)), *length, *RUNS[name], *options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The same run without interruption, by name."""
    root = tmp_path_factory.mktemp("whole")

    def make(name: str) -> Path:
        folder = root / name.replace(" ", "-")
        if not folder.exists():
            succeed(*command(name, "--out", folder))
        return folder

    return make


# Killed at a chosen line


def torn(path: str, content: bytes, commit: int) -> Callable[[], None]:
    """Die with half a line at the end of a log, just before the ``commit``-th checkpoint."""

    def plant() -> None:
        inner, count = Checkpoints.commit, 0

        def deadly(self: Checkpoints, run: Any) -> None:
            nonlocal count
            count += 1
            if count == commit:
                self.root.mkdir(exist_ok=True)
                with open(self.root.parent / path, "ab") as file:
                    file.write(content)
                die()
            inner(self, run)

        Checkpoints.commit = deadly  # type: ignore[method-assign]

    return plant


MOMENTS: dict[str, Callable[[], None]] = {
    "before anything was trained": at(train, "step", 1),
    "in the first epoch, after its lines were logged": at(Checkpoints, "commit", 1),
    "in the first epoch, with tensors and no commit": at(checkpoint, "write_atomic", 2),
    "in the middle of training": at(train, "step", 5),
    "with tensors and no commit": at(checkpoint, "write_atomic", 4),
    "before the tensors": at(checkpoint, "write_atomic", 3),
    "right after a commit": at(checkpoint, "write_atomic", 4, after=True),
    "with half a line in the log": torn("metrics.jsonl", b'{"step": 99, "ep', 2),
    "with half a line in the ledger": torn("checkpoint/ledger-host-0.bin", b"\1\2\3\4\5", 2),
    "after the last epoch": at(host, "leave_behind", 1),
    "before the final metrics": at(RunFolder, "write_json", 1),
}


EVERY_MOMENT = ("rounds of three epochs", "embeddings and adjoints", "few checkpoints")
SOME = ("in the first epoch, after its lines were logged", "in the middle of training", "with tensors and no commit")


@pytest.mark.parametrize(
    ("name", "moment"), [(name, moment) for name in RUNS for moment in (MOMENTS if name in EVERY_MOMENT else SOME)]
)
def test_killed_at_a_chosen_moment(name: str, moment: str, whole: Callable[[str], Path], tmp_path: Path) -> None:
    killed(MOMENTS[moment], *command(name, "--out", tmp_path / "run"))
    assert not (tmp_path / "run" / "metrics.json").exists()
    succeed("run", "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", whole(name), also=["config.toml"])


@pytest.mark.parametrize("name", ["rounds of three epochs", "sampled batches"])
def test_killed_again_and_again(name: str, whole: Callable[[str], Path], tmp_path: Path) -> None:
    steps = metrics(whole(name))["steps"] // 7
    killed(at(train, "step", steps + 1), *command(name, "--out", tmp_path / "run"))
    for _ in range(5):  # one epoch further each time
        killed(at(train, "step", steps + 1), "run", "--out", tmp_path / "run", "--resume")
    assert history(tmp_path / "run")[-1]["epoch"] == 6
    succeed("run", "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", whole(name))


def test_several_seeds_resume(tmp_path: Path) -> None:
    seeds = (*SMALL, "--seeds", 2, "--out")
    succeed(*seeds, tmp_path / "whole")
    killed(at(train, "step", 6), *seeds, tmp_path / "run")  # in the second seed
    succeed("run", "--seeds", 2, "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", tmp_path / "whole")
    assert metrics(tmp_path / "run")["test_std"] == metrics(tmp_path / "whole")["test_std"]


# Resuming what is finished


def test_resuming_a_run_that_stopped_early_stops_there_again(tmp_path: Path) -> None:
    early = ("--set", "train.patience=2", "--set", "train.checkpoint_every=4", "--epochs", 60)
    succeed(*SMALL, *early, "--out", tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "whole")
    assert metrics(tmp_path / "run")["epochs"] < 60
    succeed("run", "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("name", RUNS)
def test_resuming_a_finished_run_changes_nothing(name: str, whole: Callable[[str], Path], tmp_path: Path) -> None:
    shutil.copytree(whole(name), tmp_path / "run")
    before = snapshot(tmp_path / "run")
    succeed("run", "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", whole(name))
    after = snapshot(tmp_path / "run")
    assert {key for key in after if after[key] != before.get(key)} <= {"metrics.json", "status-host-0.json"}


@pytest.mark.parametrize("name", ["fedavg", "sampled batches"])
def test_resuming_with_more_epochs_goes_on(name: str, whole: Callable[[str], Path], tmp_path: Path) -> None:
    succeed(*command(name, "--out", tmp_path / "run"), "--epochs", 3)
    succeed("run", "--out", tmp_path / "run", "--resume", "--epochs", 7)
    for file in ("metrics.jsonl", "model.safetensors", "config.toml"):
        assert (tmp_path / "run" / file).read_bytes() == (whole(name) / file).read_bytes(), file
    refuse("run", "--out", tmp_path / "run", "--resume", "--epochs", 9, "--seed", 1, says=["seed is 0 there"])


@pytest.mark.parametrize("options", [(), ("--seeds", 2), ("--hosts", 2), ("--set", "train.checkpoint_every=2")])
def test_fewer_epochs_than_were_taken_are_refused(options: tuple[Any, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeed(*SMALL, *options, "--epochs", 3, "--out", run)
    again = ("run", "--out", run, "--resume", *(options if "--seeds" in options else ()))
    before = snapshot(run)
    refuse(*again, "--epochs", 2, says=["--epochs is 2", "has taken 3 epochs"])
    assert snapshot(run) == before
    succeed(*again, "--epochs", 4)


@pytest.mark.parametrize("options", [(), ("--method", "pretrained-fedavg", "--set", "phase.pretrain.epochs=1")])
def test_a_run_that_was_cut_off_takes_no_fewer_epochs_than_it_has(options: tuple[Any, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed(at(Checkpoints, "commit", 3, after=True), *SMALL, *options, "--epochs", 5, "--out", run)
    (run / LOCK).unlink()  # left by the process that was killed
    before = snapshot(run)
    refuse("run", "--out", run, "--resume", "--epochs", 2, says=["--epochs is 2", "has taken 3 epochs"])
    assert snapshot(run) == before
    succeed("run", "--out", run, "--resume", "--epochs", 4)
    assert history(run)[-1]["epoch"] == 4


# Processes


def until(happens: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = happens()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError(f"nothing happened within {seconds} s")


def epochs_logged(folder: Path) -> int:
    log = folder / "metrics.jsonl"
    return log.read_text().count('"valid"') if log.exists() else 0


@pytest.mark.hosts
def test_a_killed_process_resumes(tmp_path: Path) -> None:
    options = (*command("rounds of three epochs"), "--epochs", 150, "--out")
    succeed(*options, tmp_path / "whole")
    program = [sys.executable, "-m", "isthmus", *map(str, options), str(tmp_path / "run")]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: epochs_logged(tmp_path / "run") > 5)
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "run" / "metrics.json").exists()
    succeed("run", "--out", tmp_path / "run", "--resume")
    same_run(tmp_path / "run", tmp_path / "whole")


HOSTS = (*SMALL, "--epochs", 80, "--dtype", "float64", "--hosts", 2)


def hosts_of(parent: int) -> dict[int, psutil.Process]:
    """The host processes of a run that ``parent`` started, by number."""
    found = {}
    for child in psutil.Process(parent).children():
        try:
            if "isthmus.launch.processes" in child.cmdline():
                found[int(child.environ()["RANK"])] = child
        except (psutil.Error, KeyError):
            continue
    return found


def disturbed(folder: Path, sent: signal.Signals, victim: int, *arguments: Any) -> tuple[Outcome, float]:
    """A run on hosts, one of which gets a signal after a few epochs; and how long the run lived after that."""
    hit: list[float] = []
    stopped: list[psutil.Process] = []

    def disturb() -> None:
        until(lambda: epochs_logged(folder) > 2)
        hosts = hosts_of(os.getpid())
        stopped.append(hosts[victim])
        hosts[victim].send_signal(sent)
        hit.append(time.monotonic())

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        outcome = isthmus(*arguments)
        ended = time.monotonic()
    finally:
        thread.join()
        for process in stopped:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
    return outcome, ended - hit[0]


@pytest.mark.hosts
def test_one_process_torchrun_and_a_run_whose_host_was_killed(tmp_path: Path) -> None:
    data = [word for pair in SMALL if str(pair).startswith("data.") for word in ("--set", str(pair))]
    succeed("split", "blocks", "--silos", 3, *data, "--out", tmp_path / "parts")
    options = ("run", "--data", tmp_path / "parts", "--epochs", 80, "--dtype", "float64", "--set", "model.hidden=8")
    options += ("--set", "train.pooled=true")  # else one process has scores that several do not have
    one, two, run = tmp_path / "one", tmp_path / "two", tmp_path / "run"
    succeed(*options, "--out", one)
    under_torchrun(*options, "--out", two)
    assert losses(two) == pytest.approx(losses(one), rel=1e-12)
    assert metrics(two)["transport"] and not metrics(one)["transport"]
    alone, together = (json.loads((run / "metrics.json").read_text()) for run in (one, two))
    assert alone["seconds_on_wire"] == 0 < together["seconds_on_wire"] < together["seconds"]
    (within, _), (found, sent) = (without_ledgers(run) for run in (one, two))
    assert "ledger" not in metrics(one)["bytes"] and sent > 0
    differ = {key for key, value in within.items() if numbers(value) != pytest.approx(numbers(found[key]))}
    assert within.keys() == found.keys() and differ == {"transport", "hosts", "server", "data_digests", "notes"}

    outcome, took = disturbed(run, signal.SIGKILL, 0, *options, "--hosts", 2, "--out", run)  # the server's host
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert "Host 0 was killed (SIGKILL)" in outcome.err and "--resume" in outcome.err
    assert took < 30
    succeed("run", "--out", run, "--resume")
    same_run(run, two, also=["config.toml"])


def without_ledgers(folder: Path) -> tuple[dict[str, Any], int]:
    """Metrics of a run but for the ledgers that other hosts' silos send to the server at its end; and their bytes."""
    found = metrics(folder)
    sent, end = found["bytes"].pop("ledger", 0), found["link"]["parts"]["end"]
    for told in found["privacy"]:
        told["apart"] = [kind for kind in told["apart"] if kind != "ledger"]
    found["bytes"]["total"] -= sent
    end["bytes"], end["round_trips"] = (
        end["bytes"] - sent,
        end["round_trips"] - (2 if sent else 0),
    )  # three legs up, one down
    for seconds in ("transfer_seconds", "latency_seconds"):
        del end[seconds]
    return found, sent


def under_torchrun(*arguments: Any) -> None:
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "isthmus"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [*program, *map(str, arguments)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def numbers(value: Any) -> list[Any]:
    """The leaves of a nested value."""
    if isinstance(value, dict | list):
        return [x for inner in (value.values() if isinstance(value, dict) else value) for x in numbers(inner)]
    return [value]


@pytest.mark.hosts
def test_a_stalled_host_is_named(tmp_path: Path) -> None:
    folder, timeout = tmp_path / "run", 4
    options = (*HOSTS, "--epochs", 100000, "--set", f"system.timeout={timeout}", "--out", folder)
    outcome, took = disturbed(folder, signal.SIGSTOP, 1, *options)
    assert outcome.code == 2
    assert "Host 1 stopped giving signs of life" in outcome.err and "--resume" in outcome.err
    assert timeout - 1 < took < timeout + 15
    assert not hosts_of(os.getpid())


@pytest.mark.hosts
def test_hosts_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    parent = os.fork()
    if parent == 0:
        isthmus(*HOSTS, "--epochs", 100000, "--out", folder)
        os._exit(0)
    hosts: dict[int, psutil.Process] = {}
    try:
        until(lambda: epochs_logged(folder) > 1)
        hosts = hosts_of(parent)
        assert sorted(hosts) == [0, 1]
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        gone, alive = psutil.wait_procs(hosts.values(), timeout=10)
        assert not alive
    finally:
        for process in hosts.values():
            if process.is_running():
                process.kill()


@pytest.mark.hosts
def test_a_host_with_a_bad_part_is_told_apart(tmp_path: Path) -> None:
    succeed(
        "split", "blocks", "--silos", 2, "--set", "data.nodes=64", "--set", "data.degree=3", "--out", tmp_path / "p"
    )
    (tmp_path / "p" / "silo-1" / "edges.parquet").write_bytes(b"not a table")
    options = ("run", "--data", tmp_path / "p", "--hosts", 2, "--epochs", 2, "--out", tmp_path / "run")
    refuse(*options, says=["silo-1/edges.parquet", "cannot be read"])
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_hosts_that_were_killed_after_their_last_epoch_say_again_what_they_had_to_say(tmp_path: Path) -> None:
    """The note on stale rows is made from a run's whole history, which each host of a folder in common has kept."""
    data = {"name": "blocks", "nodes": 48, "degree": 3, "silos": 3}
    steep = {"epochs": 3, "lr": 1.0, "optimiser": "adam"}
    config = resolve({"method": "ce-fedgnn", "data": data, "train": steep, "system": {"hosts": 2}})
    write_parts(load_silos(config.data, merged=False), tmp_path / "parts")

    def run(resume: bool) -> tuple[Any, Any]:
        folder = RunFolder(tmp_path, shared=True)
        in_threads(Membership.dealt(3, 2), lambda wire: host.run_over(wire, Start(config, folder, resume)))
        return pq.read_table(tmp_path / "ledger.parquet"), metrics(tmp_path)["notes"]

    ledger, notes = run(resume=False)
    assert any(note.startswith("STALE ROWS") for note in notes)
    assert run(resume=True) == (ledger, notes)
