"""A study from a file: every place of its grid is run, compared seed by seed, on one machine or on several."""

import csv
import json
from pathlib import Path
from statistics import fmean, stdev

import pytest
from scipy.stats import ttest_rel

from isthmus.studies import grid_page
from isthmus.studies.catalogue import GRIDS, STUDIES
from isthmus.studies.grid import read_study
from isthmus.studies.plan import StudyRequest, plan_study
from tests.helpers.command import metrics, refuse, succeed

GRID = """
title = "Two splits"
seeds = 3
vary_data = true
against = "fedavg"

[base]
score = "across,own"
data = { name = "blocks", silos = 3, nodes = 64, degree = 3, features = 4, classes = 3 }
model = { name = "gcn", hidden = 8 }
train = { epochs = 6 }

[axes.split]
random = { data.split = "random" }
skewed = { data.split = "label:0.5" }

[axes.method]
local = { method = "local" }
fedavg = { method = "fedavg" }
mlp = { method = "local-mlp", model.name = "mlp" }

[[leave_out]]
split = "skewed"
method = "mlp"
because = "does not apply"
"""
TUNE = """
[tune]
seeds = 1
grid."train.lr" = [0.01, 0.1]
"""


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    """Draw nothing, since drawing takes longer than training."""
    monkeypatch.setattr(grid_page, "scores", lambda findings: "")


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(GRID)
    return path


def table(out: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    """The lines of ``results.csv`` by split, method and column."""
    with open(out / "results.csv") as file:
        return {(line["split"], line["method"], line["column"]): line for line in csv.DictReader(file)}


def test_every_place_is_run_and_scored_in_every_way(grid: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = succeed("study", grid, "--out", out).out
    lines = table(out)
    assert {place[:2] for place in lines} == {(s, m) for s in ("random", "skewed") for m in ("local", "fedavg", "mlp")}
    assert lines["skewed", "mlp", "across"]["ours"] == "" and "mlp: does not apply." in said
    runs = [metrics(out / "random-fedavg" / f"seed-{seed}") for seed in range(3)]
    for way, column in (("own", "own edges"), ("across", "across")):
        mean = fmean(100 * run["scored"][way]["test"]["accuracy"] for run in runs)
        assert float(lines["random", "fedavg", column]["ours"]) == pytest.approx(mean)
    assert float(lines["random", "fedavg", "MB to score across"]["ours"]) > 0


def test_differences_are_paired_by_seed(grid: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = succeed("study", grid, "--out", out, "--rows", "random-*").out
    assert "No runs yet: skewed." in said and said.count("skewed") == 1
    each = {
        name: [100 * metrics(out / f"random-{name}" / f"seed-{s}")["test"]["accuracy"] for s in range(3)]
        for name in ("local", "fedavg")
    }
    expected = ttest_rel(each["local"], each["fedavg"]).confidence_interval(0.95)
    [row] = [row for row in json.loads((out / "results.json").read_text())["rows"] if row["row"] == "random / local"]
    found = row["columns"]["across"]["against"]
    assert found["mean"] == pytest.approx(fmean(a - b for a, b in zip(each["local"], each["fedavg"], strict=True)))
    assert found["half"] == pytest.approx((expected.high - expected.low) / 2)
    assert stdev(each["local"]) > 0  # seeds do differ
    assert len({metrics(out / "random-fedavg" / f"seed-{s}")["silo_nodes"]["silo-0"]["halo"] for s in range(3)}) > 1


def test_parts_on_two_machines_make_one_table(grid: Path, tmp_path: Path) -> None:
    grid.write_text(grid.read_text() + TUNE)
    whole, first, second = (tmp_path / name for name in ("whole", "first", "second"))
    succeed("study", grid, "--out", whole, "--seeds", 1)
    succeed("study", grid, "--out", first, "--seeds", 1, "--part", "1/2")
    assert not json.loads((first / "results.json").read_text())["complete"]
    succeed("study", grid, "--out", second, "--seeds", 1, "--part", "2/2")
    said = succeed("study", grid, "--out", first, "--seeds", 1, "--merge", second)
    assert "start " not in said.err  # nothing was trained again
    assert f"4 trials taken over from '{second}'" in said.err and f"2 runs taken over from '{second}'" in said.err
    again = succeed("study", grid, "--out", first, "--seeds", 1, "--merge", second)
    assert f"0 runs taken over from '{second}'" in again.err
    assert (first / "results.csv").read_text() == (whole / "results.csv").read_text()
    assert (first / "tuning.csv").read_text() == (whole / "tuning.csv").read_text()


def test_parts_share_the_rows_of_a_pattern_that_fits_label_and_folder(grid: Path) -> None:
    """``random*`` fits the label ``random / local`` and the folder ``random-local``: that is one row."""
    study = read_study(grid)
    wanted = [
        [job.row.slug for job in plan_study(study, StudyRequest(rows=("random*",), part=part, seeds=1)).wanted]
        for part in ("", "1/2", "2/2")
    ]
    whole = ["random-local", "random-fedavg", "random-mlp"]
    assert wanted == [whole, [whole[0], whole[2]], [whole[1]]]


def test_runs_of_another_configuration_are_not_merged(grid: Path, tmp_path: Path) -> None:
    words = ("study", grid, "--seeds", 1, "--rows", "random-local")
    succeed(*words, "--out", tmp_path / "a", "--epochs", 3)
    refuse(*words, "--out", tmp_path / "b", "--merge", tmp_path / "a", says=["another configuration", "train.epochs"])
    refuse(*words, "--out", tmp_path / "b", "--merge", tmp_path / "none", says=["no such folder"])


def test_a_folder_without_runs_of_the_study_is_not_merged(grid: Path, tmp_path: Path) -> None:
    """Neither one that is empty, nor the folder above the right one, nor one with runs that have not ended."""
    words = ("study", grid, "--seeds", 1, "--rows", "random-local")
    succeed(*words, "--out", tmp_path / "a" / "deeper")
    (tmp_path / "begun" / "random-local" / "seed-0").mkdir(parents=True)
    for wrong in (tmp_path / "a", tmp_path / "begun"):
        says = [f"--merge {wrong}", "no finished run of this study", "'random-local/seed-0'", "--out"]
        refuse(*words, "--out", tmp_path / "b", "--merge", wrong, says=says)
    assert not (tmp_path / "b").exists()


def test_a_machine_whose_data_lie_elsewhere_is_merged(grid: Path, tmp_path: Path) -> None:
    """Machines keep the same files in folders of other names; on one machine another folder may hold other data."""
    here, there, out = (tmp_path / name for name in ("here", "there", "out"))
    words = ("study", grid, "--seeds", 1, "--out", out, "--rows", "random-local", "--rows", "random-fedavg")
    succeed(*words, "--set", f"data.folder={here}", "--part", "1/2")
    theirs = ("study", grid, "--seeds", 1, "--out", tmp_path / "theirs", *words[6:], "--set", f"data.folder={there}")
    succeed(*theirs)
    said = succeed(*words, "--set", f"data.folder={here}", "--merge", tmp_path / "theirs")
    assert "1 run taken over" in said.err and "start " not in said.err
    assert "start " not in succeed(*words, "--set", f"data.folder={here}").err
    refuse(
        *words, "--set", f"data.folder={there}", says=["data.folder is", "here' there", "there' here", "--overwrite"]
    )


def test_runs_that_have_read_other_data_are_told_of(grid: Path, tmp_path: Path) -> None:
    """Two machines may have different files under one name: rows that read them are in one table, with a caution."""
    words = ("study", grid, "--seeds", 1, "--rows", "random-*", "--out", tmp_path / "out")
    said = succeed(*words)
    assert "different data" not in said.out + (tmp_path / "out" / "report.html").read_text()
    path = tmp_path / "out" / "random-fedavg" / "seed-0" / "metrics.json"
    told = json.loads(path.read_text())
    told["data_digests"]["silo-1"]["features"], told["version"] = "of another file", "0.0.1"
    path.write_text(json.dumps(told))
    said = " ".join(succeed(*words).out.split())
    assert "have read different data: silo-1 (features)." in said and "several versions of isthmus: 0.0.1," in said
    assert "have read different data: silo-1 (features)." in (tmp_path / "out" / "report.html").read_text()


def test_rows_that_scored_unlike_numbers_say_how_many(grid: Path, tmp_path: Path) -> None:
    words = ("study", grid, "--seeds", 1, "--rows", "random-*", "--out", tmp_path / "out")
    assert "Nodes or edges scored" not in succeed(*words).out
    path = tmp_path / "out" / "random-fedavg" / "seed-0" / "metrics.json"
    told = json.loads(path.read_text())
    told["scored"]["own"]["seeds_scored"] = [3, 4]
    path.write_text(json.dumps(told))
    assert "7 by fedavg (own edges)." in " ".join(succeed(*words).out.split())


def test_a_forecast_tells_the_whole_and_is_used_later(grid: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    grid.write_text(grid.read_text() + TUNE)
    said = succeed("study", grid, "--out", out, "--forecast").out
    assert "All 25 runs, one after the other" in said  # five places, three seeds and two trials each
    assert not (out / "results.csv").exists()
    forecast = json.loads((out / "forecast.json").read_text())
    assert set(forecast) == {"random-local", "random-fedavg", "random-mlp", "skewed-local", "skewed-fedavg"}
    assert "runs, about" in succeed("study", grid, "--out", out, "--seeds", 1, "--no-tune").err


PUBLIC = """
[base]
data = { silos = 3 }
train = { epochs = 2 }

[axes.data]
Cora = { data.name = "cora" }
PubMed = { data.name = "pubmed" }
made = { data = { name = "blocks", nodes = 64, degree = 3 } }

[axes.method]
local = { method = "local" }
fedavg = { method = "fedavg" }
"""


@pytest.mark.parametrize("tune", ["", TUNE], ids=["plain", "tuned"])
@pytest.mark.parametrize("forecast", [(), ("--forecast",)], ids=["run", "forecast"])
def test_missing_data_is_told_once_before_anything_starts(
    tune: str, forecast: tuple[str, ...], grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def offline(root: str, name: str) -> None:
        tried.append(name)
        raise OSError("no network")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ISTHMUS_DATA", raising=False)
    monkeypatch.setattr("torch_geometric.datasets.Planetoid", offline)
    grid.write_text(PUBLIC + tune)
    words = ("study", grid, "--out", tmp_path / "out", *forecast)
    refuse(*words, says=["2 data sets are not on this machine: 'cora' (", "'pubmed' (", "ISTHMUS_DATA", "--rows"])
    assert tried == ["Cora", "PubMed"]
    refuse(*words, "--rows", "cora-*", says=["The data set 'cora' is not on this machine"])
    assert tried == ["Cora", "PubMed", "Cora"]
    succeed(*words, "--rows", "made-*")  # what is made here is not looked for
    assert len(tried) == 3


def test_silos_of_a_grid_are_a_setting_like_any_other(grid: Path, tmp_path: Path) -> None:
    words = ("study", grid, "--out", tmp_path / "out")
    fewer = plan_study(read_study(grid), StudyRequest(sets=("data.silos=2",)))
    assert {job.config.data.silos for job in fewer.jobs} == {2} and fewer.study.rows == read_study(grid).rows
    assert fewer.out == plan_study(read_study(grid), StudyRequest()).out
    says = ["'training-or-scoring'", "instead of --silos", "--set data.silos=3"]
    refuse("reproduce", "training-or-scoring", "--silos", 3, says=says)
    refuse("reproduce", "hifgl-cora", "--set", "data.silos=3", says=["paper's values", "leave out", "data.silos"])
    refuse("reproduce", "layerwise-louvain", "--set", "data.silos=few", says=["data.silos is 'few'", "whole number"])
    refuse(*words, "--set", "data=cora", says=["'data' is a table of values", "data.…"])
    grid.write_text(GRID.replace('{ data.split = "random" }', "{ data.silos = 2 }"))
    says = ["rows of 'two' have their own numbers of silos", "leave out", "--set data.silos"]
    refuse(*words, "--set", "data.silos=3", says=says)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds = 3", "sedes = 3", ["sedes", "seeds"]),
        ('against = "fedavg"', 'against = "fedovg"', ["fedovg", "fedavg"]),
        ('score = "across,own"', 'score = "beyond"', ["beyond", "across"]),
        ('because = "does not apply"', "", ["because"]),
        ('split = "skewed"', 'split = "skwed"', ["skwed", "skewed"]),
        ("[axes.split]", "[axes.split", ["TOML"]),
        ('method = "fedavg" }', 'methot = "fedavg" }', ["methot"]),
    ],
)
def test_a_grid_that_means_nothing_is_refused(grid: Path, tmp_path: Path, old: str, new: str, says: list[str]) -> None:
    text = grid.read_text()
    assert old in text
    grid.write_text(text.replace(old, new, 1))
    refuse("study", grid, "--out", tmp_path / "out", says=says)
    refuse("study", tmp_path / "none.toml", says=["none.toml"])


TO_TUNE = '[tune]\ngrid."train.lr" = [0.1]\n'


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('{ method = "fedavg" }', '"fedavg"', "axes.method.fedavg is 'fedavg'; it must be a table of settings"),
        ("[axes.method]", "[axes]\nmethod = 3\n[axes.more]", "axes.method is 3; it must be a table of names"),
        ("seeds = 3", 'seeds = "three"', "seeds is 'three'; it must be a whole number, 1 or more."),
        ("seeds = 3", "seeds = 0", "seeds is 0; it must be a whole number"),
        ("seeds = 3", "seeds = true", "seeds is true; it must be a whole number"),
        ("vary_data = true", 'vary_data = "false"', "vary_data is 'false'; it must be true or false."),
        ("seeds = 3", "choose = 5", "choose is 5; it must be the name of an axis or a list of them."),
        ("seeds = 3", 'choose = ["lr"]', "Unknown axis in choose 'lr'"),
        ("seeds = 3", 'notes = "hello"', "notes is 'hello'; it must be a list of texts."),
        ("seeds = 3", 'metric = "acuracy"', "Unknown metric 'acuracy'. Did you mean 'accuracy'?"),
        ("[base]", "[basis]", "Unknown key of a study 'basis'. Did you mean 'base'?"),
        ("seeds = 3", 'quick = ["x"]', "quick is ['x']; it must be a table of settings and axes."),
        ("seeds = 3", "pivot = 1", "pivot is 1; it must be a text."),
        ('"across,own"', '"own, own"', "base.score is 'own, own', which has 'own' twice"),
        ('"across,own"', '["own"]', "base.score is ['own']; it must be a text."),
        (
            "[[leave_out]]",
            "[leave_out]",
            "leave_out is a table; it must be a list of tables, each headed [[leave",
        ),
        ('split = "skewed"', "split = 5", "leave_out.split is 5; it must be a name or a list of names."),
        ('split = "skewed"', "split = []", "leave_out.split is []; it must be a name"),
        ('split = "skewed"', 'splt = "skewed"', "Unknown axis in [[leave_out]] 'splt'. Did you mean 'split'?"),
        ('split = "skewed"\nmethod = "mlp"', "", "'two' has nothing to run: all of its rows are left out."),
        (
            '"local" }',
            '"local", tune."train.lr" = [1] }',
            "axes.method.local.tune has values to choose from, but",
        ),
        ('"local" }', '"local", tune.train.lr = [1] }', "tune.train is a table; it must be a list of values"),
        ("[[leave", TO_TUNE + 'seeds = "a"\n[[leave', "tune.seeds is 'a'; it must be a whole number, 1 or more."),
        ("[[leave", TO_TUNE + "sedes = 1\n[[leave", "Unknown key in [tune] 'sedes'. Did you mean 'seeds'?"),
        ("[[leave", "[tune]\n[[leave", "[tune] needs a list of values"),
        ("[[leave", '[quick.axes]\nmethd = ["local"]\n[[leave', "Unknown axis in [quick.axes] 'methd'. Did you mean"),
        ("[[leave", '[quick.axes]\nmethod = "local"\n[[leave', "quick.axes.method is 'local'; it must be a list of"),
    ],
)
def test_values_of_the_wrong_kind_are_named(grid: Path, tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GRID
    grid.write_text(GRID.replace(old, new, 1))
    refuse("study", grid, "--out", tmp_path / "out", says=[says])


def test_a_base_that_is_no_table_is_named(grid: Path, tmp_path: Path) -> None:
    grid.write_text('base = "x"\n' + GRID[GRID.index("[axes.split]") :])
    refuse("study", grid, "--out", tmp_path / "out", says=["base is 'x'; it must be a table of settings"])


def test_grids_of_the_catalogue_resolve() -> None:
    for path in GRIDS.glob("*.toml"):
        study = read_study(path)
        assert STUDIES[path.stem].rows == study.rows
        assert study.quick is not None and len(study.quick.rows) < len(study.rows)


def test_quick_grids_need_no_files_and_tune_nothing() -> None:
    for path in GRIDS.glob("*.toml"):
        quick = plan_study(read_study(path), StudyRequest(quick=True))
        assert quick.jobs and quick.study.tuning is None
        assert {job.config.data.name for job in quick.jobs} <= {"blocks", "patterns", "interbank"}
