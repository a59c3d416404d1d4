"""What every party is left with after a run on several hosts: model, scores, ledger, releases and report of its own."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file

from isthmus.launch.party_files import folder_name
from isthmus.report.report import write_report
from isthmus.runs.folder import RunFolder
from tests.helpers.command import succeed
from tests.helpers.reports import read

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("no_report")]
DATA = ("--data", "blocks", "--silos", 3, "--set", "data.nodes=64", "--set", "data.degree=3", "--epochs", 3)
NAMES = ["silo-0", "silo-1", "silo-2"]
WHO = {"silo-0": {"silo-0", "server"}, "silo-1": {"silo-1"}, "silo-2": {"silo-2"}}


def lines(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(line.values()) for line in pq.read_table(folder / "ledger.parquet").to_pylist())


def told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


@pytest.fixture(scope="module")
def optimes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with noise on three hosts, whose silos send rows to each other and parameters through the server."""
    out = tmp_path_factory.mktemp("parties") / "run"
    noisy: list[str] = ["--set", "protect.secrets=seed"]
    for kind in ("", "_parameters"):
        noisy += ["--set", f"protect.sigma{kind}=5", "--set", f"protect.clip{kind}=5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)
        succeed("run", *DATA, *noisy, "--method", "optimes", "--hosts", 3, "--out", out)
    return out


def test_every_party_has_the_lines_of_what_it_sent_and_received_and_no_others(optimes: Path) -> None:
    everything = lines(optimes)
    sender, receiver = 3, 4
    for name, who in WHO.items():
        own = lines(optimes / "parties" / name)
        assert own == [line for line in everything if line[sender] in who or line[receiver] in who]
        assert any(line[sender] not in who for line in own)  # what it received from others is there
        steps = pq.read_table(optimes / "parties" / name / "steps.parquet").to_pylist()
        assert sum(line["bytes"] for line in steps) == sum(line[-1] for line in own)
    assert any({line[sender], line[receiver]} == {"silo-1", "silo-2"} for line in everything)
    assert not any("silo-2" in (line[sender], line[receiver]) and line[sender] == "silo-1"
                   for line in lines(optimes / "parties" / "silo-0"))  # fmt: skip


def test_every_party_has_the_model_its_scores_and_the_means_that_all_were_told(optimes: Path) -> None:
    whole, model = told(optimes), load_file(optimes / "model.safetensors")
    for name in NAMES:
        folder = optimes / "parties" / name
        own = told(folder)
        assert own["party"]["silos"] == [name] and own["party"]["server"] == (name == "silo-0")
        assert list(own["test"]["silos"]) == list(own["silo_nodes"]) == [name]
        assert own["test"]["silos"][name] == whole["test"]["silos"][name]
        assert set(own["party"]["told_everybody"]) <= set(own)
        for key in ("steps", "best_epoch", "drift", "schema"):
            assert own[key] == whole[key]
        assert {k: v for k, v in own["test"].items() if k != "silos"} == {
            k: v for k, v in whole["test"].items() if k != "silos"
        }
        mine = load_file(folder / "model.safetensors")
        assert all((mine[key] == model[key]).all() for key in model) and mine.keys() == model.keys()
        assert (folder / "metrics.jsonl").read_bytes() == (optimes / "metrics.jsonl").read_bytes()


def test_releases_and_guarantees_are_those_of_a_partys_own_silos(optimes: Path) -> None:
    whole = told(optimes)
    for host, name in enumerate(NAMES):
        folder = optimes / "parties" / name
        suffix = f"-host-{host}" if host else ""
        assert pq.read_table(folder / "releases.parquet").equals(pq.read_table(optimes / f"releases{suffix}.parquet"))
        assert (folder / "releases.parquet").stat().st_mode & 0o077 == 0
        everything, *rest = told(folder)["privacy"]
        assert 0 < everything["epsilon"] <= whole["privacy"][0]["epsilon"]
        rows = next(each for each in rest if each["of"] == "embeddings")
        assert rows["silos"].keys() <= {name}
    worst = max(told(optimes / "parties" / name)["privacy"][0]["epsilon"] for name in NAMES)
    assert worst == whole["privacy"][0]["epsilon"]


def test_a_partys_report_is_about_what_it_sent_and_received(optimes: Path) -> None:
    page = read(write_report(RunFolder.open(optimes / "parties" / "silo-2")))
    assert "These are the results of silo-2." in page.text
    assert "Received nothing" not in page.text
    assert "silo-1 saw" in page.text and "From silo-0" in page.text
    whole = read(write_report(RunFolder.open(optimes)))
    assert "These are the results of" not in whole.text and "Each of silo-0 to silo-2 saw" in whole.text


def test_a_partys_disclosure_sheet_is_about_what_it_sent_and_received(optimes: Path, tmp_path: Path) -> None:
    whole, mine = (
        json.loads(succeed("disclose", folder, "--json", "--out", tmp_path / f"{name}.html").out)
        for name, folder in (("whole", optimes), ("mine", optimes / "parties" / "silo-2"))
    )
    assert (whole["party"], mine["party"]) == ("", "silo-2")
    assert (whole["signatures"], mine["signatures"]) == (NAMES, ["silo-2"])
    assert "authenticated by a shared token, not encrypted" in [each["text"] for each in mine["server"]]
    assert "The server ran in the process of silo-0" in mine["server"][0]["text"]
    assert whole["hashes"]["ledger.parquet"] != mine["hashes"]["ledger.parquet"]
    total = {each["kind"]: each["bytes"] for each in whole["leaving"]}
    assert all(0 < each["bytes"] < total[each["kind"]] for each in mine["leaving"])
    assert "Sheet of silo-2: what it sent and received, and no more." in read(tmp_path / "mine.html").text


@pytest.mark.parametrize("method", ["fedavg", "fedper"])
def test_a_server_alone_and_banks_with_models_of_their_own(method: str, tmp_path: Path) -> None:
    succeed("run", *DATA, "--method", method, "--hosts", 4, "--out", tmp_path)
    everything = lines(tmp_path)
    assert sorted(path.name for path in (tmp_path / "parties").iterdir()) == ["server", *NAMES]
    for name in (*NAMES, "server"):
        own = lines(tmp_path / "parties" / name)
        assert own == [line for line in everything if name in line[3:5]]
    for number, name in enumerate(NAMES):
        folder = tmp_path / "parties" / name
        personal = method == "fedper"
        models = sorted(path.name for path in folder.glob("model*"))
        assert models == ([f"model-silo-{number}.safetensors"] if personal else ["model.safetensors"])
        assert (folder / models[0]).read_bytes() == (tmp_path / models[0]).read_bytes()
    assert told(tmp_path / "parties" / "server")["privacy"][0]["epsilon"] == 0
    assert told(tmp_path / "parties" / "server")["test"]["silos"] == {}


@pytest.mark.parametrize(
    "name", ["..", ".", "a/b", "/etc", "../..", "a\\b", "x\n", "\U0001f3e6" * 200, "é" * 300, "", "<b>"]
)
def test_no_name_of_a_party_leads_out_of_its_run_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / "parties" / folder_name(f"{name}-and-1-more")
    alone = tmp_path / "parties" / (folder_name(name) or "none")
    for each in (path, alone):
        each.mkdir(parents=True)
        assert each.resolve().parent == tmp_path / "parties"
    assert folder_name("silo-1") == "silo-1" and folder_name("Zürich A.G.") == "Zürich A.G."
