"""A sweep is a study of one method: settings have equal seeds, validation chooses, its choice alone is tested."""

import csv
import json
from pathlib import Path
from statistics import fmean

import pytest

from isthmus.studies.sweep import SweepRequest, sweep_study
from tests.helpers.command import metrics, refuse, succeed

TINY = (
    "sweep", "--method", "fedavg", "--data", "blocks", "--silos", 3, "--epochs", 3, "--seeds", 2,
    "--set", "data.nodes=64", "--set", "data.degree=3", "--set", "data.features=4", "--set", "model.hidden=8",
)  # fmt: skip


@pytest.fixture(autouse=True)
def unreported(no_report: None) -> None:
    """Write no reports of single runs."""


def lines(path: Path) -> list[dict[str, str]]:
    with open(path) as file:
        return list(csv.DictReader(file))


def test_validation_chooses_at_every_place_of_the_data(tmp_path: Path) -> None:
    words = (*TINY, "--set", "train.lr=0.1,0.001", "--set", "data.split=louvain,random", "--set", "score=across,own")
    said = " ".join(succeed(*words, "--out", tmp_path).out.split())
    folders = {
        (split, lr): [metrics(tmp_path / f"{split}-{lr.replace('.', '-')}-fedavg" / f"seed-{s}") for s in range(2)]
        for split in ("louvain", "random")
        for lr in ("0.1", "0.001")
    }
    valid = {at: fmean(100 * run["valid"]["accuracy"] for run in runs) for at, runs in folders.items()}
    tried = lines(tmp_path / "validation.csv")
    assert {(line["data.split"], line["setting"].removeprefix("train.lr=")): float(line["mean"]) for line in tried} == {
        at: pytest.approx(mean, rel=1e-5) for at, mean in valid.items()
    }
    for split in ("louvain", "random"):
        best = max(("0.1", "0.001"), key=lambda lr, split=split: valid[split, lr])  # type: ignore[misc]
        assert f"{split} / fedavg: train.lr={best}" in said
        [across] = [each for each in lines(tmp_path / "table.csv")
                    if (each["data.split"], each["score"]) == (split, "across")]  # fmt: skip
        mean = fmean(100 * run["scored"]["across"]["test"]["accuracy"] for run in folders[split, best])
        assert float(across["mean"]) == pytest.approx(mean, rel=1e-5) and across["seeds"] == "2"
    assert "*" in said and "validation accuracy, %" in said


def test_test_scores_do_not_choose(tmp_path: Path) -> None:
    """Metrics are written by hand: the setting with the best test score has a worse validation score."""
    words = (*TINY, "--set", "train.lr=0.1,0.001", "--out", tmp_path)
    succeed(*words)
    for lr, valid, test in (("0-1", 0.4, 0.9), ("0-001", 0.6, 0.5)):
        for seed in range(2):
            path = tmp_path / f"{lr}-fedavg" / f"seed-{seed}" / "metrics.json"
            told = json.loads(path.read_text())
            told["valid"]["accuracy"] = valid
            for way in told["scored"].values():
                way["test"]["accuracy"] = test
            path.write_text(json.dumps(told))
    assert "Chosen by validation: fedavg: train.lr=0.001." in " ".join(succeed(*words).out.split())
    [score] = [line for line in lines(tmp_path / "table.csv") if not line["score"].startswith("MB")]
    assert float(score["mean"]) == 50
    assert "90.00" not in "".join((tmp_path / name).read_text() for name in ("table.tex", "table.md", "report.html"))


def test_a_setting_that_diverged_is_not_chosen(tmp_path: Path) -> None:
    words = (*TINY, "--set", "train.lr=0.1,0.001", "--out", tmp_path)
    succeed(*words)
    path = tmp_path / "0-1-fedavg" / "seed-1" / "metrics.json"
    told = json.loads(path.read_text())
    told["valid"]["accuracy"] = None
    path.write_text(json.dumps(told))
    assert "Chosen by validation: fedavg: train.lr=0.001." in " ".join(succeed(*words).out.split())


def test_lists_and_texts_with_commas_are_one_value() -> None:
    sets = ["train.fanout=[10,5],[5,5]", 'protect="gaussian,int8",gaussian', "score=across,own", "train.batch=8"]
    study = sweep_study(SweepRequest(options={"data.name": "blocks"}, sets=sets))
    assert study.chosen == ("train.fanout", "protect") and study.axes == ("train.fanout", "protect", "method")
    assert study.base["score"] == "across,own" and study.base["train"] == {"batch": 8}
    assert [row.overrides["train"]["fanout"] for row in study.rows] == [[10, 5], [10, 5], [5, 5], [5, 5]]
    assert len(study.rows) == 4 and [column.label for column in study.columns][-2:] == ["across", "own edges"]


def test_values_are_named_as_they_are_read() -> None:
    sets = ["train.lr=.1,1,1e-3", "train.trim=true,false"]
    study = sweep_study(SweepRequest(options={"data.name": "blocks"}, sets=sets))
    assert [row.slug for row in study.rows[::2]] == ["0-1-true-fedavg", "1-true-fedavg", "0-001-true-fedavg"]
    assert [row.overrides["train"]["lr"] for row in study.rows[::2]] == [0.1, 1, 0.001]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "train.lr=0.1"], ["one setting alone", "isthmus run"]),
        (["--set", "train.lr=0.1,0.1"], ["0.1 twice"]),
        (["--set", "train.lr=0.1,0.10"], ["train.lr", "0.1 twice"]),
        (["--set", "train.lr=1,.5,1.0"], ["1.0 twice"]),
        (["--set", "train.fanout=[10,5],[10, 5]"], ["[10,5] twice"]),
        (["--set", "train.lr=0.1,,0.2"], ["key=value,value"]),
        (["--set", "train.lr"], ["key=value"]),
        (["--set", "trian.lr=1,2"], ["trian", "train"]),
        (["--set", "train.lr=0.1,x"], ["train.lr"]),
        (["--set", "train.lr=1,-1"], ["'1 / fedavg'", "folder"]),
        (["--set", "train.lr=0.1,0.2", "--method", "fedovg"], ["fedovg", "fedavg"]),
        (["--set", "train.lr=0.1,0.2", "--pivot", "lr:method"], ["--pivot", "lr"]),
        (["--set", "train.lr=0.1,0.2", "--seeds", "0"], ["--seeds"]),
    ],
)
def test_a_sweep_that_means_nothing_is_refused(words: list[str], says: list[str], tmp_path: Path) -> None:
    refuse("sweep", "--data", "blocks", *words, "--out", tmp_path / "out", says=says)
    assert not (tmp_path / "out" / "table.csv").exists()
