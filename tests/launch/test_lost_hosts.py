"""Hosts that are lost within a round: the others roll it back, go on without them, and let them in again."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.helpers.command import history, losses, metrics, succeed

DATA = ("--silos", 3, "--set", "data.nodes=96", "--set", "data.degree=3")
RUN = (
    "--epochs", "80", "--dtype", "float64", "--set", "federation.absent=stale", "--set", "system.timeout=6",
    "--set", "train.evaluate_every=40", "--set", "train.checkpoint_every=5",
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Hosts:
    """Three hosts of one silo each, as processes that were started one by one; host 0 holds the store.

    They meet by number, or ``by_name`` with a token.
    """

    def __init__(self, folder: Path, *options: str, by_name: bool = False) -> None:
        self.folder, self.options, self.port, self.by_name = folder, options, free_port(), by_name
        (folder / "token").write_text("0123456789abcdef0123456789abcdef")
        (folder / "token").chmod(0o600)
        succeed("split", "blocks", *DATA, "--out", folder / "parts")
        self.processes = [self.start(host) for host in range(3)]

    def start(self, host: int, resume: bool = False) -> subprocess.Popen[bytes]:
        place = {"RANK": str(host), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
        if self.by_name:
            place = {}
        mine = ("--silo", f"silo-{host}", "--meet", f"127.0.0.1:{self.port}", "--token", str(self.folder / "token"))
        end = (*(mine if self.by_name else ()), *(("--resume",) if resume else ()))
        command = (sys.executable, "-m", "isthmus", "run", "--data", str(self.folder / "parts"), *RUN, *self.options)
        out = ("--out", str(self.folder / "run" if host == 0 else self.folder / f"run-{host}"))
        environment = {**os.environ, **place, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        with open(self.said(host), "w") as said:
            return subprocess.Popen([*command, *out, *end], env=environment, stdout=said, stderr=subprocess.STDOUT)

    def said(self, host: int) -> Path:
        return self.folder / f"host-{host}.txt"

    def await_epoch(self, epoch: int) -> None:
        """Wait until the server's host has told of an epoch."""
        told = self.folder / "run" / "metrics.jsonl"
        while not (told.is_file() and f'"epoch": {epoch},' in told.read_text()):
            self.pause()

    def await_words(self, words: str) -> None:
        """Wait until the server's host has said some words."""
        while words not in self.said(0).read_text():
            self.pause()

    def pause(self) -> None:
        assert self.processes[0].poll() is None, self.said(0).read_text()
        time.sleep(0.02)

    def outcome(self, host: int) -> tuple[int, str]:
        return self.processes[host].wait(timeout=60), self.said(host).read_text()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.mark.hosts
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(("method", "how"), [("sync-sgd+fwd-bwd-le", signal.SIGKILL), ("fedavg", signal.SIGSTOP)])
def test_the_others_go_on_without_a_host_that_is_killed_or_stopped(method: str, how: int, tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, "--method", method)
    try:
        hosts.await_epoch(5)
        hosts.processes[2].send_signal(how)
        for host in (0, 1):
            code, text = hosts.outcome(host)
            assert code == 0, text
        lines, found = history(tmp_path / "run"), metrics(tmp_path / "run")
        steps = [line["step"] for line in lines if "valid" not in line]
        assert steps == list(range(1, len(steps) + 1)) and lines[-1]["epoch"] == 80
        assert any("silo-2 missed" in note for note in found["notes"])
        assert any("was rolled back and taken again: silo-2 was lost" in note for note in found["notes"])
        assert all(loss is not None for loss in losses(tmp_path / "run"))
    finally:
        hosts.close()


@pytest.mark.hosts
@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(("method", "by_name"), [("sync-sgd+fwd-bwd-le", False), ("ce-fedgnn", True)])
def test_a_killed_host_comes_back_and_all_wait_for_it_where_too_few_are_left(
    method: str, by_name: bool, tmp_path: Path
) -> None:
    """With ``least`` of three the others wait; once it is back, all go on and end with the parameters of all.

    Who met by name comes back by name.
    """
    hosts = Hosts(tmp_path, "--method", method, "--set", "federation.least=3", by_name=by_name)
    try:
        hosts.await_epoch(8)
        hosts.processes[2].send_signal(signal.SIGKILL)
        hosts.processes[2].wait()
        hosts.await_words("Waiting in round")
        hosts.processes[2] = hosts.start(2, resume=True)
        for host in (0, 1, 2):
            code, text = hosts.outcome(host)
            assert code == 0, text
        found = metrics(tmp_path / "run")
        assert any("Waiting in round" in note and "silo-2" in note for note in found["notes"])
        assert [line["step"] for line in history(tmp_path / "run") if "valid" not in line][-1] == 80
        models = [load_file(path) for path in sorted(tmp_path.glob("run*/checkpoint/epoch-000080/host-*.safetensors"))]
        assert len(models) == 3
        for name in [name for name in models[0] if name.startswith("model/") and "layers" in name]:
            assert all(bool((each[name][0] == models[0][name][0]).all()) for each in models), name
    finally:
        hosts.close()
