"""One silo scores alone along its own edges, or together with the others as on the graph of all."""

import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from tests.commands.test_score import N, graph
from tests.helpers.command import refuse, succeed
from tests.helpers.hosts import on_hosts

pytestmark = pytest.mark.usefixtures("no_report")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of three silos with a common model, and their parts."""
    root = tmp_path_factory.mktemp("together")
    data = graph(root / "graph")
    succeed("split", data, "--silos", 3, "--split", "random", "--out", root / "parts")
    options = ("--method", "fedavg", "--model", "gcn", "--epochs", 4, "--set", "model.hidden=8", "--dtype", "float64")
    succeed("run", "--data", root / "parts", *options, "--out", root / "run")
    return root


def by_id(path: Path) -> dict[str, float]:
    table = (csv.read_csv if path.suffix == ".csv" else pq.read_table)(path)
    return dict(zip(table["id"].to_pylist(), table["probability:class-1"].to_pylist(), strict=True))


def test_together_silos_score_as_on_the_graph_of_all_and_alone_they_do_not(run: Path, tmp_path: Path) -> None:
    score = ("score", run / "run", "--data", run / "parts")
    succeed(*score, "--out", tmp_path / "whole.parquet")
    succeed(*score, "--together", "--out", tmp_path / "together.csv")
    whole, together = by_id(tmp_path / "whole.parquet"), by_id(tmp_path / "together.csv")
    assert len(together) == N and together == pytest.approx(whole, abs=1e-10)
    lines = pq.read_table(tmp_path / "together-ledger.parquet").to_pylist()
    assert any(line["kind"] == "embeddings" and line["purpose"] == "test, across" for line in lines)
    alone: dict[str, float] = {}
    for silo in ("silo-0", "1", "silo-2"):
        said = succeed(*score, "--silo", silo, "--out", tmp_path / f"{silo}.parquet").out
        assert "edges that leave it were left out" in said
        alone |= by_id(tmp_path / f"{silo}.parquet")
    assert alone.keys() == whole.keys() and alone != pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ('[leave]\nothers = "refuse"', "[leave] others"),
        ("[leave.embeddings]\nto = []", "[leave.embeddings] to"),
        ('[run]\nmodels = ["gat"]', "[run] models"),
        ('[run]\ncolumns = ["nothing"]', "[run] columns"),
        ("bytes = 1000", "bytes"),
        ("[budget.row]\nepsilon = 1.0\ndelta = 1e-5", "[budget.row] epsilon"),
    ],
)
def test_a_policy_holds_for_rows_that_leave_to_be_scored(policy: str, says: str, run: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    shutil.copytree(run / "parts", parts)
    (parts / "silo-1" / "policy.toml").write_text(policy)
    together = ("score", run / "run", "--data", parts, "--together", "--out", tmp_path / "out" / "together.csv")
    refuse(*together, says=["The policy of silo-1 refuses", says])
    assert not (tmp_path / "out").exists()
    (parts / "silo-1" / "policy.toml").write_text("bytes = 10_000_000")
    succeed(*together)
    assert (parts / "silo-1" / "account.jsonl").is_file()


def test_a_bank_needs_no_part_but_its_own(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "parts"
    mine.mkdir()
    (mine / "federation.toml").write_text((run / "parts" / "federation.toml").read_text())
    shutil.copytree(run / "parts" / "silo-1", mine / "silo-1")
    succeed("score", run / "run", "--data", mine, "--silo", "silo-1", "--out", tmp_path / "a.csv")
    assert by_id(tmp_path / "a.csv")
    refuse("score", run / "run", "--data", mine, "--silo", "silo-9", says=["Unknown silo 'silo-9'", "silo-0, silo-1"])


@pytest.mark.parametrize("command", ["score", "check"])
def test_a_number_that_no_part_has_is_refused(run: Path, command: str) -> None:
    given = ("score", run / "run", "--data", run / "parts") if command == "score" else ("check", run / "parts")
    refuse(*given, "--silo", 3, says=["no part of silo 3", "there are 3", "silo-0, silo-1, silo-2"])
    refuse(*given, "--silo", "²", says=["Unknown silo '²'"])


def test_together_too_no_method_is_taken(run: Path) -> None:
    given = ("score", run / "run", "--data", run / "parts", "--together")
    refuse(*given, "--set", "method=local", says=["method means nothing to score"])


def as_party(host: int, root: str, parts: str, port: int) -> dict[str, Any]:
    """One of three silos scores together with the others, each by name."""
    for name in ("RANK", "WORLD_SIZE"):
        os.environ.pop(name)
    out = Path(parts) / f"by-name-{host}.csv"
    place = ("--silo", f"silo-{host}", "--meet", f"127.0.0.1:{port}", "--out", out)
    said = succeed("score", Path(root) / "run", "--data", parts, *place).out
    ledger = pq.read_table(out.with_name(f"by-name-{host}-ledger.parquet")).to_pylist()
    return {"rows": by_id(out), "said": said, "ledger": [(line["sender"], line["kind"]) for line in ledger]}


@pytest.mark.hosts
def test_over_hosts_each_silo_gets_predictions_for_its_own_nodes(run: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    parts = tmp_path / "parts"
    shutil.copytree(run / "parts", parts)
    (parts / "silo-1" / "policy.toml").write_text("bytes = 10_000_000")
    found = on_hosts(3, as_party, str(run), str(parts), port)
    succeed("score", run / "run", "--data", run / "parts", "--out", tmp_path / "whole.parquet")
    rows = {key: value for each in found for key, value in each["rows"].items()}
    assert sum(len(each["rows"]) for each in found) == N
    assert rows == pytest.approx(by_id(tmp_path / "whole.parquet"), abs=1e-10)
    for host, each in enumerate(found):
        assert (f"silo-{host}", "embeddings") in each["ledger"]
        assert "not authenticated, not encrypted" in each["said"]
    assert '"bytes"' in (parts / "silo-1" / "account.jsonl").read_text()


def test_files_of_no_known_format_are_refused(run: Path, tmp_path: Path) -> None:
    score = ("score", run / "run", "--data", run / "parts")
    refuse(*score, "--out", tmp_path / "a.xlsx", says=["'.xlsx'", ".csv, .parquet"])
    refuse(*score, "--together", "--silo", "silo-0", says=["--meet"])
    refuse("score", run / "run", "--data", run / "graph", "--together", says=["isthmus split"])
