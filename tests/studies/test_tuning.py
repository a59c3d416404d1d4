"""Rows of a tuned study try equally many settings, choose by validation alone, and report with other seeds."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.studies import catalogue, page, plots
from isthmus.studies.plan import StudyRequest, plan_study
from isthmus.studies.reproduce import run_study
from isthmus.studies.study import Study, StudyRow, Tuning, Value, score_column
from isthmus.studies.tuning import Tuned, make_trials
from tests.helpers.command import isthmus, metrics, refuse, snapshot, succeed

BASE: dict[str, Any] = {
    "data": {"name": "blocks", "silos": 3, "nodes": 64, "degree": 3, "features": 4, "classes": 3},
    "model": {"name": "gcn", "hidden": 8},
    "train": {"steps": 8, "batch": 8, "metric": "macro_f1", "average": "silos", "evaluate_every": 2},
}
TUNED = Study(
    name="tuned",
    title="Two tuned methods on a small graph",
    summary="for tests",
    source="Nobody 1999, Table 2",
    measure="macro F1, %",
    columns=(score_column("F1", "macro_f1"),),
    rows=(
        StudyRow("Alone", {"method": "local"}, {"F1": Value(40.0)}, tune={"model.dropout": (0.0, 0.5)}),
        StudyRow("Fed & Avg", {"method": "ce-fedgnn"}, tune={"exchange.gamma": (0.5, 0.9)}),
        StudyRow("Given", {"method": "local"}, compute=lambda config: {"test": {"macro_f1": 0.5}, "seconds": 0.0}),
    ),
    base=BASE,
    tuning=Tuning({"train.lr": (0.003, 0.03)}, changes={"train": {"steps": 6}}),
)


@pytest.fixture(autouse=True)
def studies(monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    """Add the study above to the catalogue; draw nothing, since drawing takes longer than training."""
    monkeypatch.setattr(catalogue, "STUDIES", catalogue.STUDIES | {"tuned": TUNED})
    monkeypatch.setattr(plots, "plot_files", lambda findings: {})
    monkeypatch.setattr(page, "beside", lambda findings: "")


def trials(out: Path, **request: Any) -> Tuned:
    plan = plan_study(TUNED, StudyRequest(out=str(out), **request))
    return make_trials(plan.study, StudyRequest(**request), out)


def pretend(tuned: Tuned, valid: dict[int, float | None], test: float = 0.0) -> None:
    """Give every trial a ``metrics.json``: validation scores by number (others 0.1), and a misleading test score."""
    for number, trial in enumerate(tuned.trials):
        for job in trial.jobs:
            folder = job.claim()
            scores = {"macro_f1": valid.get(number, 0.1), "accuracy": 1 - number / 10}
            misleading = {"macro_f1": 0.99 if valid.get(number, 0.1) == 0.1 else test}
            folder.write_json("metrics.json", {"metric": "macro_f1", "valid": scores, "test": misleading})


def test_every_row_tries_equally_many_settings(tmp_path: Path) -> None:
    tuned = trials(tmp_path)
    assert [len(tuned.of(row)) for row in TUNED.rows] == [4, 4, 0]
    assert TUNED.candidates(TUNED.rows[1])[0] == {"train.lr": 0.003, "exchange.gamma": 0.5}
    assert len({job.path for job in tuned.jobs}) == 8
    with pytest.raises(IsthmusError, match="as many settings to choose from"):
        replace(
            TUNED, rows=(TUNED.rows[0], StudyRow("More", {"method": "fedavg"}, tune={"model.dropout": (0.0, 0.2, 0.5)}))
        )


def test_trials_have_seeds_that_no_reported_run_has(tmp_path: Path) -> None:
    tuned = trials(tmp_path, tuning_seeds=2)
    reported = {job.config.seed for job in plan_study(TUNED, StudyRequest(seeds=5)).jobs}
    assert {job.config.seed for job in tuned.jobs} == {1000, 1001} and not {1000, 1001} & reported
    refuse("reproduce", "tuned", "--tuning-seeds", 0, "--out", tmp_path, says=["--tuning-seeds is 0"])


def test_validation_chooses_whatever_the_test_score_says(tmp_path: Path) -> None:
    tuned = trials(tmp_path)
    pretend(tuned, {2: 0.6, 5: 0.7, 7: 0.7})
    alone, averaged = TUNED.rows[:2]
    assert (chosen := tuned.chosen(alone)) and chosen.settings == {"train.lr": 0.03, "model.dropout": 0.0}
    assert (chosen := tuned.chosen(averaged)) and chosen is tuned.trials[5]  # of equals the first
    study = tuned.settle_on(TUNED)
    plan = plan_study(study, StudyRequest(out=str(tmp_path)))
    assert [job.config.train.lr for job in plan.jobs[:4]] == [0.03, 0.03, 0.003, 0.003]
    assert plan.of(averaged)[0].config.as_dict()["exchange"]["gamma"] == 0.9
    assert {job.config.seed for job in plan.jobs} == {0, 1}


def test_nothing_is_chosen_before_all_trials_have_ended(tmp_path: Path) -> None:
    tuned = trials(tmp_path)
    pretend(tuned, {0: 0.5, 1: None, 4: None, 5: None, 6: None, 7: None})
    alone, averaged = TUNED.rows[:2]
    assert tuned.chosen(alone) is tuned.trials[0]  # one that diverged is no choice
    assert tuned.chosen(averaged) is None and list(tuned.undecided(TUNED.rows)) == ["Fed & Avg, tuning"]
    (tuned.trials[3].jobs[0].path / "metrics.json").unlink()
    assert tuned.chosen(alone) is None
    assert "Alone, tuning" not in tuned.undecided(TUNED.rows)


def test_a_tuned_study_from_end_to_end(tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    said = succeed("reproduce", "tuned", "--out", out, "--seeds", 1)
    records = json.loads((out / "tuning.json").read_text())
    assert len(records) == 8 and all(0 <= record["valid"] <= 1 for record in records)
    for row in ("Alone", "Fed & Avg"):
        tried = [record for record in records if record["row"] == row]
        best = max(tried, key=lambda record: record["valid"])
        assert [record for record in tried if record["chosen"]] == [best]
        config = (out / {"Alone": "alone", "Fed & Avg": "fed-avg"}[row] / "seed-0" / "config.toml").read_text()
        assert f"lr = {best['settings']['train.lr']}" in config
    place = out / "tuning" / "alone" / "train.lr=0.003,model.dropout=0.0" / "seed-1000"
    first = next(record for record in records if record["settings"].get("model.dropout") == 0.0)
    assert first["valid"] == metrics(place)["valid"]["macro_f1"]
    assert (metrics(place)["steps"], metrics(out / "alone" / "seed-0")["steps"]) == (6, 8)
    with open(out / "tuning.csv") as file:
        assert [line["chosen"] for line in csv.DictReader(file)].count("yes") == 2
    assert json.loads((out / "results.json").read_text())["tuning"] == records
    text = (out / "report.html").read_text()
    assert "Tuning" in text and "train.lr=0.003, model.dropout=0.0" in text
    assert "Chosen by validation score" in said.out and "50.00" in said.out
    before = snapshot(out / "tuning") | snapshot(out / "alone")
    again = succeed("reproduce", "tuned", "--out", out, "--seeds", 1)
    assert "start" not in again.err and snapshot(out / "tuning") | snapshot(out / "alone") == before


def test_rows_are_tuned_when_they_are_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    succeed("reproduce", "tuned", "--out", out, "--seeds", 1, "--rows", "alone", "--json")
    assert (out / "tuning" / "alone").is_dir() and not (out / "tuning" / "fed-avg").exists()
    said = succeed("reproduce", "tuned", "--out", out, "--seeds", 1)
    assert "start  Alone" not in said.err and said.err.count("start  Fed & Avg, train.lr") == 4


def test_overwriting_some_rows_keeps_the_trials_of_all_others(tmp_path: Path) -> None:
    tuned = trials(tmp_path, tuning_seeds=1)
    for job in tuned.jobs:
        job.claim()
    before = snapshot(tmp_path / "tuning")
    other = ("reproduce", "tuned", "--out", tmp_path, "--set", "model.hidden=4", "--rows", "fed-avg", "--overwrite")
    refuse(*other, says=[f"'{tuned.jobs[0].path}'", "model.hidden is 8 there and 4 here", "was not asked for"])
    assert snapshot(tmp_path / "tuning") == before


def test_settings_that_are_given_are_not_tuned(tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    says = ["--set train.lr", "tunes it for Alone", "--no-tune"]
    refuse("reproduce", "tuned", "--out", out, "--set", "train.lr=0.1", says=says)
    succeed("reproduce", "tuned", "--out", out, "--no-tune", "--seeds", 1, "--set", "train.lr=0.1")
    assert not (out / "tuning").exists() and not (out / "tuning.json").exists()
    assert str(plan_study(TUNED, StudyRequest(tune=False)).out) == "runs/reproduce/tuned-untuned"


def test_a_failing_trial_stops_its_row_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = replace(TUNED.rows[0], overrides={"method": "local", "data": {"silos": 99}})
    monkeypatch.setitem(catalogue.STUDIES, "tuned", replace(TUNED, rows=(bad, TUNED.rows[1])))
    outcome = isthmus("reproduce", "tuned", "--out", tmp_path, "--seeds", 1)
    assert outcome.code == 2 and "Alone, train.lr=0.003" in outcome.err.splitlines()[-1]
    findings = json.loads((tmp_path / "results.json").read_text())
    assert "between 99 silos" in findings["rows"][0]["error"] and findings["rows"][1]["seeds"] == [0]


@pytest.mark.hosts
def test_trials_run_side_by_side(tmp_path: Path) -> None:
    findings, out, failed = run_study(catalogue.STUDIES["tuned"], StudyRequest(out=str(tmp_path), jobs=2, seeds=1))
    assert not failed and findings.complete and findings.tuned is not None
    assert all(trial.finished for trial in findings.tuned.trials)
