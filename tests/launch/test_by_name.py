"""Three banks, each started by name as a program of its own, in an order that is not that of their numbers."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.helpers.command import losses, refuse, succeed

BANKS = ("silo-2", "silo-0", "silo-1")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("banks")
    succeed(
        "split", "blocks", "--silos", 3, "--set", "data.nodes=64", "--set", "data.degree=3", "--out", root / "parts"
    )
    return root / "parts"


@pytest.mark.hosts
def test_banks_started_by_name_train_as_in_one_process_and_each_has_its_results(parts: Path) -> None:
    root = parts.parent
    options = ("run", "--data", parts, "--method", "fedgcn", "--model", "gcn", "--epochs", 3, "--dtype", "float64")
    (root / "token").write_text("0123456789abcdef0123456789abcdef")
    (root / "token").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    plain = "from unittest.mock import patch; patch('isthmus.report.report.write_report', lambda f: f).start(); "
    program = (sys.executable, "-c", f"{plain}from isthmus.cli import main; main()")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = []
    for name in BANKS:
        mine = ("--silo", name, "--meet", place, "--token", root / "token", "--out", root / name)
        command = [str(word) for word in (*program, *options, *mine)]
        running.append(subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment))
        time.sleep(0.2)
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
    succeed(*options, "--out", root / "alone")
    for name in BANKS:
        assert losses(root / name) == pytest.approx(losses(root / "alone"), rel=1e-11)
        own = json.loads((root / name / "metrics.json").read_text())
        assert own["wire"] == "authenticated by a shared token, not encrypted"
        assert (root / name / "model.safetensors").is_file()
        senders = pq.read_table(root / name / "ledger.parquet")["sender"].to_pylist()
        assert name in senders
    assert "0123456789abcdef" not in "".join(
        path.read_text(errors="ignore") for path in root.rglob("*") if path.is_file() and path.name != "token"
    )


def test_what_a_party_leaves_out_is_named(parts: Path) -> None:
    run = ("run", "--data", parts, "--method", "fedavg")
    refuse(*run, "--silo", "silo-1", says=["--silo is of a party", "--meet HOST:PORT"])
    refuse(*run, "--token", "x", says=["--token is of a party", "--silo NAME or --server"])
    refuse(*run, "--silo", "a", "--server", "--meet", "127.0.0.1:9", says=["two parties"])
    refuse(*run, "--silo", "silo-7", "--meet", "127.0.0.1:9", says=["Unknown silo 'silo-7'", "silo-0, silo-1, silo-2"])
    refuse("run", "--data", "blocks", "--silo", "a", "--meet", "127.0.0.1:9", says=["isthmus split blocks"])
    refuse(*run, "--silo", "silo-1", "--meet", "127.0.0.1:9", "--seeds", 2, says=["--seeds does not work with --silo"])
