"""isthmus audit: what it finds, what it says where there is nothing, and what it does with damaged runs."""

import json
import math
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from isthmus.audit.findings import FEATURES, LABELS, LINKS, attack_text, read_audit
from isthmus.data.blocks import blocks
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
QUICK = ("--deepest", 0, "--sigma", "0", "--targets", 4)


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


def attacks(found: dict[str, Any], attack: str, **wanted: object) -> list[dict[str, Any]]:
    """The findings of one attack whose fields are as ``wanted``."""
    mine = [each for each in found["attacks"] if each["attack"] == attack]
    return [each for each in mine if all(each[name] == value for name, value in wanted.items())]


def ratios(found: dict[str, Any], layer: int) -> list[float]:
    """The errors of features inferred from rows, by what the adversary computes, as shares of a guess's."""
    return [f["ratio"] for f in attacks(found, FEATURES, layer=layer, kind="embeddings") if "misfit" in f["details"]]


def test_unprotected_input_rows_give_features_away_and_noise_takes_them_back(exchanged: Path) -> None:
    found = audited(exchanged, "--sigma", "0,0.3,3,100")
    first, second = ratios(found, 0), ratios(found, 1)
    assert found["attack_error"] == first[0] < 1e-6
    assert first == sorted(first) and first[1] > 0.005 and first[3] == pytest.approx(1, abs=0.05)
    assert first[0] < second[0] < 0.9 and second[0] < second[2] and second[3] == pytest.approx(1, abs=0.05)


def test_shape_of_the_findings(exchanged: Path) -> None:
    found = audited(exchanged, "--targets", 5, "--deepest", 0)
    assert set(found) == {"attack_error", "sigma", "clip", "seed", "notes", "attacks"}
    assert (found["sigma"], found["clip"], found["seed"], found["notes"]) == (0.0, "inf", 0, [])
    rows = attacks(found, FEATURES)
    assert [(f["sigma"], f["what_if"]) for f in rows] == [
        (0.0, False), (0.1, True), (0.3, True), (1.0, True), (3.0, True),
    ]  # fmt: skip
    for each in rows:
        assert (each["kind"], each["layer"], each["targets"], each["measure"]) == ("embeddings", 0, 5, "squared error")
        assert each["ratio"] == pytest.approx(each["got"] / each["guess"]) and each["details"]["misfit"] < 1e-6
        assert 0 < each["details"]["neighbours"] < each["guess"]
    again = audited(exchanged, "--targets", 5, "--deepest", 0)
    assert again == found
    other = audited(exchanged, "--targets", 5, "--deepest", 0, "--seed", 1)
    assert attacks(other, FEATURES) != rows


def test_all_releases_are_used_and_their_number_is_said(exchanged: Path) -> None:
    """Three steps, three validations, and the final scores of two splits."""
    counts = {row["releases"] for row in pq.read_table(exchanged / "releases.parquet").to_pylist() if not row["layer"]}
    found = audited(exchanged, "--deepest", 0)
    assert {f["releases"] for f in attacks(found, FEATURES)} == {float(n) for n in counts if n > 3} == {8.0}
    assert attacks(audited(exchanged, "--deepest", 0, "--epochs", 1), FEATURES)[0]["releases"] == 4.0


def last_release_alone(folder: Path, sigma: float) -> float:
    """The error of the best linear estimate from the last release of each input row, beside that of a guess."""
    config = tomllib.loads((folder / "config.toml").read_text())
    graph = blocks(96, degree=4.0, features=6, classes=3, seed=config["data"]["seed"])
    kept = load_file(folder / "released.safetensors")
    lines = [row for row in pq.read_table(folder / "releases.parquet").to_pylist() if row["kind"] == "embeddings"]
    place = {str(node): i for i, node in enumerate(graph.ids.tolist())}
    x = graph.x.double()[[place[row["node"]] for row in lines if row["layer"] == 0]]  # type: ignore[union-attr]
    model = load_file(folder / "model.safetensors")
    weight, bias = model["enter.weight"][0].double(), model["enter.bias"][0].double()
    covariance, mean = x.T.cov(), x.mean(0)
    gain = covariance @ weight @ torch.linalg.inv(weight.T @ covariance @ weight + sigma**2 * torch.eye(len(bias)))
    found = mean + (kept["embeddings/0"].double() - bias - mean @ weight) @ gain.T
    return float((found - x).square().mean() / (x - mean).square().mean())


def test_noise_that_hides_a_row_once_does_not_hide_it_forty_times(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, *EXCHANGE, "--epochs", 20, "--set", "protect.sigma=1.5", "--out", folder)
    (found,) = attacks(audited(folder, "--deepest", 0), FEATURES)
    assert found["releases"] == 42.0
    assert found["ratio"] < 0.25 * last_release_alone(folder, 1.5)


def test_labels_and_links_are_attacked_too(exchanged: Path) -> None:
    found = audited(exchanged, "--targets", 5, "--deepest", 0)
    (labels,) = attacks(found, LABELS)
    assert (labels["kind"], labels["layer"], labels["measure"]) == ("adjoints", 1, "accuracy")
    assert labels["got"] > 0.8 > 0.5 > labels["guess"] and labels["releases"] == 3.0
    (links,) = attacks(found, LINKS)
    assert links["measure"] == "AUC" and links["guess"] == 0.5 and 0.4 < links["got"] <= 1 and links["unit"] == "pairs"


def test_what_was_not_tried_and_what_left_unattacked_stand_in_the_same_table(exchanged: Path) -> None:
    found = audited(exchanged, "--targets", 5, "--deepest", 0)
    tried = {each["attack"]: each["measure"] for each in found["attacks"]}
    for attack in ("gradient inversion", "membership inference", "features from extremes (PNA)"):
        assert tried[attack] == "not tried"
    left = {each["kind"]: each for each in attacks(found, "none")}
    assert set(left) == {"schema", "ids", "statistics", "gradients", "metrics"}
    assert all(each["measure"] == "not attacked" and "message" in each["note"] for each in left.values())


def test_rows_of_moving_averages_are_inverted_though_parameters_have_moved_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stale = ("--set", "exchange.scored_with=released", "--set", "sync.local_steps=32")
    succeed(*SMALL, "--method", "ce-fedgnn", *stale, "--epochs", 40, "--out", folder)
    found = audited(folder, "--sigma", "0")
    assert ratios(found, 0)[0] < 0.02 < 0.1 < ratios(found, 1)[0]


def test_a_protected_run_is_audited_as_it_left(exchanged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    noise = ("--set", "protect.sigma=0.5", "--set", "protect.clip=2")
    succeed(*SMALL, *EXCHANGE, *noise, "--out", folder)
    found = audited(folder)
    assert (found["sigma"], found["clip"], found["notes"]) == (0.5, 2.0, [])
    rows = [f for f in attacks(found, FEATURES) if "misfit" in f["details"]]
    assert [(f["layer"], f["sigma"], f["what_if"]) for f in rows] == [(0, 0.5, False), (1, 0.5, False)]
    assert rows[0]["details"]["misfit"] == pytest.approx(0.5, rel=0.1)
    assert 0.01 < found["attack_error"] < 1.05
    more = attacks(audited(folder, "--sigma", "1.2", "--deepest", 0), FEATURES)
    assert more[1]["sigma"] == pytest.approx(1.3) and more[1]["got"] > more[0]["got"]


def test_a_run_that_released_no_rows_says_what_left_and_that_it_was_not_attacked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, "--method", "fedavg", "--set", "score=own", "--out", folder)
    out = succeed("audit", folder).out
    assert "model weights" in out and "not attacked" in out and "not tried" in out
    found = audited(folder)
    assert found["attack_error"] is None and all(each["got"] is None for each in found["attacks"])
    assert {"parameters", "ids", "schema", "statistics", "metrics"} <= {f["kind"] for f in attacks(found, "none")}
    page = read(write_report(RunFolder.open(folder)))
    assert "What an adversary can do" in page.text and "no sign of safety" in page.text
    (row,) = comparison([RunFolder.open(folder)])
    assert row.attack == "not attacked"


@pytest.mark.parametrize(
    ("method", "model", "kind"),
    [("fedgcn", "gcn", "aggregates"), ("fedgnn-g", "sage", "partials"), ("fedgnn-g", "gcn", "partials")],
)
def test_sums_are_solved_for_the_nodes_inside(method: str, model: str, kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, "--model", model, "--method", method, "--out", folder)
    found = attacks(audited(folder), FEATURES, kind=kind)[0]
    assert found["ratio"] < 0.2 and found["details"]["exposed"] > 0.3 and found["releases"] > 2
    noisy = tmp_path / "noisy"
    succeed(*SMALL, "--model", model, "--method", method, "--set", "protect.sigma=1000", "--out", noisy)
    assert attacks(audited(noisy), FEATURES, kind=kind)[0]["ratio"] == pytest.approx(1, abs=0.05)


def test_records_that_left_as_they_are_are_called_disclosed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, "--model", "gcn", "--method", "llcg-every-step", "--out", folder)
    left = {each["kind"]: each["measure"] for each in attacks(audited(folder), "none")}
    assert left["features"] == left["labels"] == left["edges"] == "left as it is: nothing to infer"


def test_of_several_seeds_the_first_is_audited(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    succeed(*SMALL, *EXCHANGE, "--epochs", 1, "--seeds", 2, "--out", folder)
    succeed("audit", folder, "--sigma", "0", "--deepest", 0)
    assert (folder / "seed-0" / "audit.json").is_file() and not (folder / "seed-1" / "audit.json").exists()
    (row,) = comparison([RunFolder.open(folder)])
    assert isinstance(row.attack, float) and row.attack < 1e-6
    told = "Of 2 runs with a seed each, this is an audit of the first (seed-0) alone."
    assert told in json.loads((folder / "seed-0" / "audit.json").read_text())["notes"]
    assert f"Audit: {told}" in json.loads(succeed("disclose", folder, "--json").out)["notes"]
    (folder / "seed-1" / "metrics.json").unlink()
    refuse("audit", folder, says=["seed-1/metrics.json' is missing, while other seeds"])


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
        (("--epochs", 0), ["--epochs is 0", "at least 1"]),
    ],
)
def test_bad_options_are_refused(exchanged: Path, options: tuple[str | int, ...], says: list[str]) -> None:
    refuse("audit", exchanged, *options, says=says)


def test_damaged_and_missing_files_say_what_to_do(copied: Path) -> None:
    rows, lines = copied / "released.safetensors", copied / "releases.parquet"
    whole = rows.read_bytes()
    rows.write_bytes(whole[:100])
    refuse("audit", copied, *QUICK, says=["released.safetensors' is damaged", "repeat the run"])
    rows.unlink()
    refuse("audit", copied, *QUICK, says=["released.safetensors' is missing; repeat the run"])
    rows.write_bytes(whole)
    table = lines.read_bytes()
    lines.write_bytes(table[:50])
    refuse("audit", copied, *QUICK, says=["releases.parquet' is damaged"])
    lines.write_bytes(table)
    kept = load_file(rows)
    save_file({**kept, "embeddings/0": kept["embeddings/0"][1:].clone()}, rows)
    refuse("audit", copied, *QUICK, says=["belong to different runs"])
    save_file({**kept, "embeddings/0": 2 * kept["embeddings/0"]}, rows)
    assert "differ from those that the run kept" in audited(copied, *QUICK)["notes"][0]
    (copied / "ledger.parquet").write_bytes(b"none")
    refuse("audit", copied, says=["ledger.parquet' is damaged"])


def test_other_data_or_hosts_that_are_not_here_are_named(copied: Path, tmp_path: Path) -> None:
    config, metrics = copied / "config.toml", copied / "metrics.json"
    text, told = config.read_text(), json.loads(metrics.read_text())
    config.write_text(text.replace("nodes = 96", "nodes = 48"))
    refuse("audit", copied, says=["The data has changed since", "metrics.json", "use the data of then"])
    metrics.write_text(json.dumps(told | {"data_digests": {}}))
    refuse("audit", copied, says=["3 silos with 48 nodes", "3 silos with 96 nodes", "with the data of the run"])
    config.write_text(text.replace('name = "blocks"', f'name = "{tmp_path}/gone"', 1).replace("nodes = 96\n", ""))
    refuse("audit", copied, says=["needs all silos' data here"])
    config.write_text(text)
    metrics.write_text(json.dumps(told | {"hosts": 2}))
    refuse("audit", copied, *QUICK, says=["releases-host-1.parquet' is missing", "machine of host 1"])
    refuse("audit", tmp_path / "none", says=["is not a run"])


def test_report_and_comparison_show_the_attack(copied: Path, tmp_path: Path) -> None:
    before = read(write_report(RunFolder.open(copied)))
    assert "What an adversary can do" not in before.text and "Attack error" not in before.text
    audited(copied, "--sigma", "0,1")
    folder = RunFolder.open(copied)
    page = read(write_report(folder))
    shown = page.table("Attack")
    assert shown[0][0] == FEATURES and "< 0.1 %" in shown[0][1] and "near neighbours" in shown[0][2]
    assert "rows before the first layer, 24 nodes, 8 releases each" in shown[0][3] and "what if" in shown[1][3]
    assert ["not tried", "–"] in [line[1:3] for line in shown]
    assert "attack error" in page.text and "not a bound" in page.text
    other = make_run(tmp_path / "other", THREE)
    line = read(write_comparison([folder, other], tmp_path / "out")).table("Run")
    assert [row[-1] for row in line] == ["< 0.1 %", "–"]
    assert "–: not audited" in (tmp_path / "out" / "comparison.html").read_text()
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())["runs"]
    assert saved[0]["attack"] < 1e-6 and saved[1]["attack"] is None
    assert "Attack error" not in read(write_comparison([other], tmp_path / "one")).text


def test_the_curve_has_those_rows_that_have_several_levels_of_noise(copied: Path) -> None:
    """By default noise is added afterwards to rows before the first layer alone."""
    audited(copied, "--targets", 4)
    page = write_report(RunFolder.open(copied)).read_text()
    assert "against noise in each release" in page and ">input<" in page and ">layer 1<" not in page
    audited(copied, "--targets", 4, "--sigma", "0")
    assert "against noise in each release" not in write_report(RunFolder.open(copied)).read_text()


def test_attack_errors_in_words_and_damaged_audits(copied: Path) -> None:
    assert [attack_text(v) for v in (None, "not attacked", math.nan, 0.0004, 0.123, 1.02)] == [
        "–", "not attacked", "–", "< 0.1 %", "12.3 %", "102.0 %",
    ]  # fmt: skip
    audited(copied, "--sigma", "0", "--deepest", 0)
    kept = read_audit(RunFolder.open(copied))
    assert kept is not None and kept.clip == math.inf and kept.as_dict()["clip"] == "inf"
    (copied / "audit.json").write_text('{"attacks": [{}]}')
    refuse("report", copied, says=["audit.json' is damaged", f"isthmus audit {copied}"])


def test_the_data_of_a_run_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are named from where the run was started; a data set goes by its name, whatever lies in that folder."""
    monkeypatch.chdir(tmp_path)
    succeed("split", "blocks", "--silos", 2, "--out", "parts", "--set", "data.nodes=96", "--set", "data.degree=4")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "blocks").mkdir()
    succeed("run", "--data", "parts", *EXCHANGE, "--epochs", 1, "--out", "run")
    succeed(*SMALL, *EXCHANGE, "--epochs", 1, "--out", "named")
    monkeypatch.chdir(tmp_path / "elsewhere")
    for run in ("run", "named"):
        assert audited(tmp_path / run, *QUICK)["attack_error"] is not None
