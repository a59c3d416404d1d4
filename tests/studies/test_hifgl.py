"""The studies of HiFGL: the paper's values, one protocol for all rows, graph information gain, and small forms."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.studies import catalogue, grid_page
from isthmus.studies.catalogue import STUDIES, get_study
from isthmus.studies.grid_text import cells, heads
from isthmus.studies.hifgl import TRAINED
from isthmus.studies.hifgl_epochs import BEST, WORST, curves, silo_score
from isthmus.studies.hifgl_parts import SECONDS
from isthmus.studies.paired import gain
from isthmus.studies.plan import StudyPlan, StudyRequest, plan_study
from isthmus.studies.results import ComparedValue, Findings, RowResult
from isthmus.studies.study import StudyRow, Value
from isthmus.studies.tables import read_table
from tests.helpers.command import metrics, succeed

NAMES = [name for name in STUDIES if name.startswith("hifgl-")]
TABLE_3 = ("hifgl-cora", "hifgl-citeseer", "hifgl-pubmed")


def plan(name: str, quick: bool = False) -> StudyPlan:
    return plan_study(get_study(name), StudyRequest(out="nowhere", quick=quick))


def row_of(name: str, label: str) -> StudyRow:
    return next(row for row in get_study(name).rows if row.label == label)


def test_the_papers_values() -> None:
    """Some values of Tables 3 to 6, typed from the paper by hand."""
    assert row_of("hifgl-cora", "GCN / HiFGL").paper == {TRAINED: Value(85.55, 1.62)}
    assert row_of("hifgl-citeseer", "GraphSage / Local-MLP").paper == {TRAINED: Value(64.5, 0.61)}
    assert row_of("hifgl-pubmed", "GraphSage / Global").paper == {TRAINED: Value(86.23, 0.58)}
    assert row_of("hifgl-algorithms", "CiteSeer / FedSage+").paper == {TRAINED: Value(75.67)}
    assert row_of("hifgl-layers", "layers 16").paper == {TRAINED: Value(26.02), SECONDS: Value(16.4)}
    assert row_of("hifgl-width", "hidden 128").paper == {TRAINED: Value(86.39), SECONDS: Value(44.3)}
    without = [name for name in NAMES if not any(row.paper for row in get_study(name).rows)]
    assert without == ["hifgl-epochs", "hifgl-silos", "hifgl-fixed-point"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_follow_the_papers_protocol(name: str) -> None:
    for job in plan(name).jobs:
        config, train = job.config, job.config.train
        assert (config.data.split, config.data.options) == ("random", {"masks": "random"})
        assert config.data.seed == config.seed < get_study(name).seeds
        assert (train.batch, train.optimiser, train.lr, train.decay, train.decay_every) == (0, "adam", 0.01, 0.9, 4)
        ways = ("trained", "global") if config.method.name == "hifgl" else ("trained", "own", "global")
        assert config.method.scores == ways
        assert train.epochs - sum(phase.epochs for phase in config.method.phases[:-1]) == 50
        assert name == "hifgl-width" or config.model.hidden == 64
        assert name == "hifgl-layers" or config.model.layers == 2
        assert name == "hifgl-silos" or config.data.silos == 5


@pytest.mark.parametrize("name", NAMES)
def test_quick_forms_are_small_and_need_no_files(name: str) -> None:
    quick = plan(name, quick=True)
    assert quick.seeds == 1 and len(quick.jobs) <= 18
    for job in quick.jobs:
        assert job.config.data.name == "blocks" and job.config.data.options["nodes"] == 400 and not job.row.paper
        before = sum(phase.epochs for phase in job.config.method.phases[:-1])
        assert job.config.train.epochs - before == 10 and before in (0, 10)


def test_chains_of_the_study_of_exactness() -> None:
    chains = {
        job.row.label: [part.name for part in job.config.method.protect] for job in plan("hifgl-fixed-point").jobs
    }
    assert chains == {
        "plain": ["masks"],
        "fixed point": ["fixed-point", "masks"],
        "shares": ["fixed-point", "shares", "masks"],
    }


def test_silos_over_epochs_have_a_figure_for_each_row_and_their_ends_in_the_table() -> None:
    study = get_study("hifgl-epochs")
    silos = {"silo-0": {"accuracy": 0.5}, "silo-1": {"accuracy": 0.75}, "silo-2": {"accuracy": None}}
    found = {column.label: column.read({"test": {"silos": silos}, "scored": {}}) for column in study.columns[:2]}
    assert found == {WORST: 50.0, BEST: 75.0}
    assert silo_score(min)({"test": {"silos": {}}}) is None
    run = {"curve": {"epoch": [1, 2], "valid": [0.4, 0.6]}, "silo_curves": {"silo-0": [0.3, 0.5], "silo-1": [0.5, 0.7]}}
    empty = {column.label: ComparedValue(None, None, None, (None,)) for column in study.columns}
    lines = [RowResult(row, empty, (0, 1), 1.0, "", (run, run)) for row in study.rows[:2]]
    drawn = curves(Findings(study, tuple(lines), {"seeds": 2}))
    assert drawn.count("<svg") == 2 and "GCN / HiFGL: validation accuracy by epoch, seed 0" in drawn
    assert "silo-1" in drawn


def _findings(scores: dict[str, float]) -> Findings:
    """Findings of the study on Cora with one seed, in which rows of the GCN have the given scores."""
    study = get_study("hifgl-cora")
    empty = {column.label: ComparedValue(None, None, None, (None,)) for column in study.columns}
    lines = []
    for method, score in scores.items():
        row = row_of("hifgl-cora", f"GCN / {method}")
        ours = {TRAINED: ComparedValue(row.paper[TRAINED], Value(score), None, (score,))}
        lines.append(RowResult(row, empty | ours, (0,), 1.0))
    return Findings(study, tuple(lines), {"seeds": 1})


def test_gain_is_the_share_of_the_way_from_the_mlp_to_one_owner() -> None:
    findings = _findings({"Local-MLP": 60.0, "Local": 55.0, "HiFGL": 75.0, "Global": 80.0})
    found = {line.row.at["method"]: gain(findings, line.row) for line in findings.lines}
    assert found == {"Local-MLP": 0.0, "Local": -25.0, "HiFGL": 75.0, "Global": 100.0}
    told = dict(zip(heads(findings), cells(findings, findings.lines[1]), strict=True))
    assert told["gain, %"] == "−25.0"
    assert gain(findings, row_of("hifgl-cora", "GraphSage / HiFGL")) is None  # nothing ran there
    same = _findings({"Local-MLP": 60.0, "HiFGL": 75.0, "Global": 60.0})
    assert gain(same, same.lines[1].row) is None


@pytest.mark.parametrize("name", TABLE_3)
def test_the_papers_gains_follow_from_its_accuracies(name: str) -> None:
    """Its column of gains, recomputed; the paper rounds accuracies, so that a gain is off by a tenth."""
    graph = {"hifgl-cora": "Cora", "hifgl-citeseer": "CiteSeer", "hifgl-pubmed": "PubMed"}[name]
    lines = {line["method"]: line for line in read_table("hifgl_accuracy")}
    low = float(lines["Local-MLP"][graph])
    for model in ("GCN", "GraphSage"):
        high = float(lines[f"Global-{model}"][graph])
        for method in ("Local", "FedAvg", "HiFGL"):
            line = lines[f"{method}-{model}"]
            assert 100 * (float(line[graph]) - low) / (high - low) == pytest.approx(
                float(line[f"{graph}_gain"]), abs=0.25
            )


def test_two_rows_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    monkeypatch.setattr(grid_page, "scores", lambda findings: "")
    study = get_study("hifgl-cora")
    assert study.quick is not None
    two = tuple(row for row in study.quick.rows if row.label in ("GCN / Global", "GCN / HiFGL"))
    monkeypatch.setitem(catalogue.STUDIES, study.name, replace(study, quick=replace(study.quick, rows=two)))
    said = succeed("reproduce", study.name, "--quick", "--out", tmp_path, "--set", "data.nodes=90", "--epochs", 2).out
    assert "gain" in said and json.loads((tmp_path / "results.json").read_text())["complete"] is True
    scored = metrics(tmp_path / "gcn-hifgl" / "seed-0")["scored"]
    assert scored["trained"]["test"] == scored["global"]["test"] and "own" not in scored
    drawn = metrics(tmp_path / "gcn-hifgl" / "seed-0")["silo_curves"]
    assert len(drawn) == 5 and {len(each) for each in drawn.values()} == {1}
