"""isthmus audit: what it finds, what it says where there is nothing, and what it does with damaged runs."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from isthmus.audit.findings import attack_text, read_audit
from isthmus.report.compare import write_comparison
from isthmus.report.compared_run import comparison
from isthmus.report.report import write_report
from isthmus.runs.folder import RunFolder
from tests.helpers.command import refuse, succeed
from tests.helpers.reports import THREE, make_run, read

SMALL = (
    "run", "--data", "blocks", "--silos", 3, "--split", "random", "--model", "sage", "--epochs", 3,
    "--set", "data.nodes=96", "--set", "data.degree=4", "--set", "data.features=6", "--set", "data.classes=3",
    "--set", "model.hidden=12",
)  # fmt: skip
EXCHANGE = ("--method", "sync-sgd+fwd-bwd-le")
Make = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def no_reports() -> Any:
    """Drawing takes longer than training on such graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)
        yield


@pytest.fixture(scope="module")
def exchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with layer-wise exchange and no protection, to look at and not to change."""
    folder = tmp_path_factory.mktemp("audit") / "run"
    succeed(*SMALL, *EXCHANGE, "--out", folder)
    return folder


@pytest.fixture
def copied(exchanged: Path, tmp_path: Path) -> Path:
    """The same, to change."""
    return Path(shutil.copytree(exchanged, tmp_path / "run", ignore=shutil.ignore_patterns("audit.json")))


def audited(folder: Path, *options: str | int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(succeed("audit", folder, "--json", "--targets", 24, *options).out)
    assert json.loads((folder / "audit.json").read_text()) == found
    return found


def ratios(found: dict[str, Any], layer: int) -> list[float]:
    return [each["ratio"] for each in found["findings"] if each["layer"] == layer]


def test_unprotected_input_rows_give_features_away_and_noise_takes_them_back(exchanged: Path) -> None:
    found = audited(exchanged, "--sigma", "0,0.3,3,100")
    first, second = ratios(found, 0), ratios(found, 1)
    assert found["attack_error"] == first[0] < 1e-6
    assert first == sorted(first) and first[1] > 0.01 and first[3] == pytest.approx(1, abs=0.05)
    assert first[0] < second[0] < 0.9 and second[0] < second[2] and second[3] == pytest.approx(1, abs=0.05)


def test_shape_of_the_findings(exchanged: Path) -> None:
    found = audited(exchanged, "--targets", 5, "--deepest", 0)
    assert set(found) == {"attack", "attack_error", "sigma", "clip", "seed", "findings"}
    assert (found["sigma"], found["clip"], found["seed"]) == (0.0, "inf", 0)
    assert [(f["sigma"], f["what_if"]) for f in found["findings"]] == [
        (0.0, False), (0.1, True), (0.3, True), (1.0, True), (3.0, True),
    ]  # fmt: skip
    for each in found["findings"]:
        assert each["layer"] == 0 and each["targets"] == 5 and each["releases"] > 1
        assert each["parameters"] in ("selected", "last") and each["misfit"] < 1e-6
        assert each["ratio"] == pytest.approx(each["error"] / each["guess"]) and 0 < each["neighbours"] < each["guess"]
    again = audited(exchanged, "--targets", 5, "--deepest", 0)
    assert again == found
    assert audited(exchanged, "--targets", 5, "--deepest", 0, "--seed", 1)["findings"] != found["findings"]


def test_rows_of_moving_averages_are_inverted_though_parameters_have_moved_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # Else the last release is made with the parameters that are known.
    stale = ("--set", "exchange.scored_with=released")
    succeed(*SMALL, "--method", "ce-fedgnn", *stale, "--epochs", 40, "--out", folder)
    found = audited(folder, "--sigma", "0")
    assert found["findings"][0]["misfit"] > 1e-3  # silos had drifted apart when they released
    assert found["findings"][0]["parameters"] == "sent"  # what the server got of each silo is nearest to what it held
    assert ratios(found, 0)[0] < 0.02 < 0.1 < ratios(found, 1)[0]


def test_parameters_are_those_that_made_the_rows(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, *EXCHANGE, "--epochs", 12, "--set", "train.lr=0.2", "--out", folder)
    held = load_file(folder / "released.safetensors")
    assert not held["selected/enter.weight"].equal(held["last/enter.weight"])  # an epoch before the last was best
    found = audited(folder, "--sigma", "0")
    assert {f["parameters"] for f in found["findings"]} == {"selected"}
    assert found["attack_error"] < 1e-6
    swapped = {k.replace("selected/", "was/").replace("last/", "selected/"): v for k, v in held.items()}
    save_file({k.replace("was/", "last/"): v for k, v in swapped.items()}, folder / "released.safetensors")
    assert {f["parameters"] for f in audited(folder, "--sigma", "0")["findings"]} == {"last"}


def test_a_protected_run_is_audited_as_it_left(exchanged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    noise = ("--set", "protect.sigma=0.5", "--set", "protect.clip=2")
    succeed(*SMALL, *EXCHANGE, *noise, "--out", folder)
    found = audited(folder)
    assert (found["sigma"], found["clip"]) == (0.5, 2.0)
    assert [(f["layer"], f["sigma"], f["what_if"]) for f in found["findings"]] == [(0, 0.5, False), (1, 0.5, False)]
    assert found["findings"][0]["misfit"] == pytest.approx(0.5, rel=0.1)
    assert 0.1 < found["attack_error"] < 1.05
    more = audited(folder, "--sigma", "1.2", "--deepest", 0)["findings"]
    assert more[1]["sigma"] == pytest.approx(1.3) and more[1]["error"] > more[0]["error"]


def test_runs_without_released_rows_have_nothing_to_attack(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, "--method", "fedavg", "--out", folder)
    assert "nothing to attack" in succeed("audit", folder).out
    found = audited(folder)
    assert found["findings"] == [] and found["attack_error"] is None
    page = read(write_report(RunFolder.open(folder)))
    assert "What an adversary can do" in page.text and "nothing to attack" in page.text


@pytest.mark.parametrize(
    ("method", "words"),
    [("fedgcn", "sums of raw node features"), ("fedgnn-g", "aggregates of rows"), ("llcg", "raw features of single")],
)
def test_what_the_attack_does_not_read_is_not_called_nothing(method: str, words: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, "--model", "gcn", "--method", method, "--out", folder)
    refuse("audit", folder, says=[words, "Take them for disclosed"])


def test_of_several_seeds_the_first_is_audited(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, *EXCHANGE, "--epochs", 1, "--seeds", 2, "--out", folder)
    succeed("audit", folder, "--sigma", "0", "--deepest", 0)
    assert (folder / "seed-0" / "audit.json").is_file() and not (folder / "seed-1" / "audit.json").exists()
    (row,) = comparison([RunFolder.open(folder)])
    assert isinstance(row.attack, float) and row.attack < 1e-6


def test_a_run_that_goes_on_forgets_its_audit(copied: Path) -> None:
    audited(copied, "--sigma", "0", "--deepest", 0)
    succeed("run", "--resume", "--epochs", 4, "--out", copied)
    assert not (copied / "audit.json").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--targets", 0), ["--targets is 0", "at least 1"]),
        (("--seed", -1), ["--seed is -1"]),
        (("--deepest", -1), ["--deepest is -1"]),
        (("--sigma", "0.1;1"), ["--sigma is '0.1;1'", "like --sigma 0.1,0.3,1"]),
        (("--sigma", "-1"), ["--sigma has -1"]),
        (("--sigma", "inf"), ["--sigma has inf"]),
    ],
)
def test_bad_options_are_refused(exchanged: Path, options: tuple[str | int, ...], says: list[str]) -> None:
    refuse("audit", exchanged, *options, says=says)


def test_damaged_and_missing_files_say_what_to_do(copied: Path) -> None:
    rows, lines = copied / "released.safetensors", copied / "releases.parquet"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:100])
    refuse("audit", copied, says=["released.safetensors' is damaged", "repeat the run"])
    rows.unlink()
    refuse("audit", copied, says=["released.safetensors' is missing; repeat the run"])
    table = lines.read_bytes()
    lines.unlink()
    refuse("audit", copied, says=["kept no releases.parquet", "run it again"])
    rows.write_bytes(whole)
    refuse("audit", copied, says=["releases.parquet' is missing"])
    lines.write_bytes(table[:50])
    refuse("audit", copied, says=["releases.parquet' is damaged"])
    lines.write_bytes(table)
    kept = load_file(rows)
    save_file({**kept, "embeddings/0": kept["embeddings/0"][1:].clone()}, rows)
    refuse("audit", copied, says=["belong to different runs"])
    save_file({k: v for k, v in kept.items() if "/enter" not in k}, rows)
    refuse("audit", copied, says=["do not fit the run's configuration (enter.weight)"])
    save_file({k: v for k, v in kept.items() if k.startswith("embeddings")}, rows)
    refuse("audit", copied, says=["older version", "run it again"])


def test_other_data_or_hosts_that_are_not_here_are_named(copied: Path, tmp_path: Path) -> None:
    config, metrics = copied / "config.toml", copied / "metrics.json"
    text = config.read_text()
    config.write_text(text.replace("nodes = 96", "nodes = 48"))
    refuse("audit", copied, says=["has left, but is not in the data", "with the data of the run"])
    config.write_text(text.replace('name = "blocks"', f'name = "{tmp_path}/gone"', 1).replace("nodes = 96\n", ""))
    refuse("audit", copied, says=["needs all silos' data here"])
    config.write_text(text)
    metrics.write_text(json.dumps(json.loads(metrics.read_text()) | {"hosts": 2}))
    refuse("audit", copied, says=["releases-host-1.parquet' is missing", "machine of host 1"])
    refuse("audit", tmp_path / "none", says=["is not a run"])


def test_report_and_comparison_show_the_attack(copied: Path, tmp_path: Path) -> None:
    before = read(write_report(RunFolder.open(copied)))
    assert "What an adversary can do" not in before.text and "Attack error" not in before.text
    audited(copied, "--sigma", "0,1")
    folder = RunFolder.open(copied)
    page = read(write_report(folder))
    shown = page.table("Rows")
    assert [line[:2] for line in shown] == [
        ["input", "0"], ["input", "1, what if"], ["layer 1", "0"], ["layer 1", "1, what if"],
    ]  # fmt: skip
    assert shown[0][4] == "< 0.1 %" and "attack error" in page.text and "not a bound" in page.text
    other = make_run(tmp_path / "other", THREE)
    line = read(write_comparison([folder, other], tmp_path / "out")).table("Run")
    assert [row[-1] for row in line] == ["< 0.1 %", "–"]
    assert "–: not audited" in (tmp_path / "out" / "comparison.html").read_text()
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())["runs"]
    assert saved[0]["attack"] < 1e-6 and saved[1]["attack"] is None
    assert "Attack error" not in read(write_comparison([other], tmp_path / "one")).text


def test_attack_errors_in_words_and_damaged_audits(copied: Path) -> None:
    assert [attack_text(v) for v in (None, "nothing to attack", math.nan, 0.0004, 0.123, 1.02)] == [
        "–", "nothing to attack", "–", "< 0.1 %", "12.3 %", "102.0 %",
    ]  # fmt: skip
    audited(copied, "--sigma", "0", "--deepest", 0)
    kept = read_audit(RunFolder.open(copied))
    assert kept is not None and kept.clip == math.inf and kept.as_dict()["clip"] == "inf"
    (copied / "audit.json").write_text('{"findings": [{}]}')
    refuse("report", copied, says=["audit.json' is damaged", f"isthmus audit {copied}"])
