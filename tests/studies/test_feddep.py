"""The studies of FedDEP: the paper's values, one protocol for all rows, two scores, and small forms that run."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.methods import catalogue as methods
from isthmus.methods.exchange.prototypes import Prototypes
from isthmus.studies import catalogue, grid_page
from isthmus.studies.catalogue import STUDIES, get_study
from isthmus.studies.feddep import METHODS, NOT_YET, OWN, WHOLE
from isthmus.studies.feddep_parts import AT_HOME, guarantee_column
from isthmus.studies.forecast import short_job, times_longer
from isthmus.studies.grid_text import cells, heads, left_out
from isthmus.studies.plan import StudyPlan, StudyRequest, plan_study
from isthmus.studies.results import ComparedValue, Findings, RowResult
from isthmus.studies.study import StudyRow, Value
from isthmus.studies.tuning import make_trials
from tests.helpers.command import metrics, succeed

NAMES = [name for name in STUDIES if name.startswith("feddep-")]
TABLE_2 = [f"feddep-{graph}" for graph in ("cora", "citeseer", "pubmed", "cs")]


def plan(name: str, quick: bool = False) -> StudyPlan:
    return plan_study(get_study(name), StudyRequest(out="nowhere", quick=quick))


def row_of(name: str, label: str) -> StudyRow:
    return next(row for row in get_study(name).rows if row.label == label)


def test_the_papers_values() -> None:
    """Some values of Tables 2 and 3, typed from the paper by hand."""
    assert row_of("feddep-cora", "M = 3 / FedDEP").paper == {WHOLE: Value(88.94)}
    assert row_of("feddep-citeseer", "M = 10 / Local").paper == {WHOLE: Value(42.0)}
    assert row_of("feddep-pubmed", "M = 5 / FedSage+").paper == {WHOLE: Value(87.94)}
    assert row_of("feddep-cs", "M = 10 / FedAvg").paper == {WHOLE: Value(67.05)}
    assert not row_of("feddep-cs", "M = 10 / FED-PUB").paper
    assert row_of("feddep-clusters", "M = 5 / 15").paper == {WHOLE: Value(88.83)}
    assert row_of("feddep-clusters-cs", "M = 10 / 3").paper == {WHOLE: Value(93.14)}
    known = [name for name in NAMES if any(row.paper for row in get_study(name).rows)]
    assert known == [*TABLE_2, *(name for name in NAMES if name.startswith("feddep-clusters"))]


@pytest.mark.parametrize("part", ["clusters", "depth"])
def test_parts_are_studied_on_all_four_graphs(part: str) -> None:
    """In full on Cora and CiteSeer, between ten silos with one seed on PubMed and CS."""
    for end, silos, seeds in (("", 3, 3), ("-citeseer", 3, 3), ("-pubmed", 1, 1), ("-cs", 1, 1)):
        study = get_study(f"feddep-{part}{end}")
        assert (len({row.at["silos"] for row in study.rows}), study.seeds) == (silos, seeds)
        assert silos == 3 or study.rows[0].at["silos"] == "M = 10"


@pytest.mark.parametrize("name", NAMES)
def test_pages_state_the_smallest_group_that_runs_have(name: str) -> None:
    [note] = [note for note in get_study(name).notes if "exchange.smallest" in note]
    groups = [phase.exchange for job in plan(name).jobs for phase in job.config.method.phases]
    least = {each.smallest for each in groups if isinstance(each, Prototypes)}
    assert least == {5} and "exchange.smallest=5" in note


@pytest.mark.parametrize("name", NAMES)
def test_rows_follow_the_papers_protocol(name: str) -> None:
    width = {"citeseer": 64, "pubmed": 256, "cs": 256, "privacy": 256}.get(name.split("-")[-1], 128)
    for job in plan(name).jobs:
        config, train = job.config, job.config.train
        assert (config.data.split, config.data.options) == ("louvain", {"masks": "random"})
        assert config.data.seed == config.seed in (0, 1, 2)
        assert (config.model.layers, config.model.hidden) == (2, width)
        assert (train.batch, train.fanout, train.optimiser, train.lr) == (32, (5,), "sgd", 0.1)
        assert config.method.scores == ("everywhere", "trained")
        assert train.scoring == ("drawn" if name == "feddep-privacy" else "all")
        before = sum(phase.epochs for phase in config.method.phases[:-1])
        assert train.epochs - before == (100 if name == "feddep-time" else 50)
        assert config.method.merged or (config.data.cross or config.method.cross) == "unknown"


def test_methods_that_are_not_there_are_left_out_with_the_papers_value() -> None:
    missing = [label for label, settings in METHODS.items() if settings is None]
    for row in get_study("feddep-cora").rows:
        assert row.left_out == (NOT_YET if row.at["method"] in missing else "")
        assert row.left_out or row.overrides["method"] in methods.names()
        assert row.paper or row.at["method"] == "FED-PUB"


@pytest.mark.parametrize("name", TABLE_2)
def test_every_row_chooses_from_as_many_settings(name: str, tmp_path: Path) -> None:
    study = get_study(name)
    tuned = make_trials(study, StudyRequest(), tmp_path)
    assert {len(tuned.of(row)) for row in study.rows if row.trains} == {6}
    clusters = {
        phase.exchange.clusters  # type: ignore[attr-defined]
        for trial in tuned.trials
        if trial.row.at["method"] == "FedDEP"
        for phase in trial.jobs[0].config.method.phases[:1]
    }
    assert clusters == {5, 15}


def test_parts_vary_one_thing() -> None:
    clusters = {job.row.at["C"]: job.config.as_dict() for job in plan("feddep-clusters").jobs}
    assert [each["phase"]["encode"]["exchange"]["clusters"] for each in clusters.values()] == [3, 5, 10, 15, 20]
    depths = {job.row.at["depth"]: job.config.as_dict() for job in plan("feddep-depth").jobs}
    assert [each["models"]["encoder"]["depth"] for each in depths.values()] == [0, 1, 2, 3]
    home = next(job.config.as_dict() for job in plan("feddep-time").jobs if job.row.at["method"] == AT_HOME)
    assert tuple(home["phase"]["train"]["sync"]["private"]) == ("generator",)
    floors = {(job.config.data.silos, job.config.train.floor) for job in plan("feddep-privacy").jobs}
    assert floors == {(silos, floor) for silos, least in ((3, 15), (5, 10), (10, 3)) for floor in (0, least)}


def test_an_epsilon_with_a_delta_above_a_half_is_not_shown() -> None:
    column = guarantee_column("epsilon", "neighbour lists", "epsilon")
    for void, infinite, shown in ((False, False, 0.4), (True, False, None), (False, True, None)):
        held = {"of": "neighbour lists", "epsilon": float("inf") if infinite else 0.4, "delta": 0.3, "void": void}
        claimed = {**held, "epsilon": 0.1, "void": False}
        assert column.read({"privacy": [held, claimed]}) == shown
    assert column.read({"privacy": []}) is None


@pytest.mark.parametrize("name", NAMES)
def test_quick_forms_are_small_and_need_no_files(name: str) -> None:
    quick = plan(name, quick=True)
    assert quick.seeds == 1 and quick.study.notes[0].startswith("Quick") and quick.study.tuning is None
    for job in quick.jobs:
        assert job.config.data.name == "blocks" and job.config.data.options["nodes"] == 600
        before = sum(phase.epochs for phase in job.config.method.phases[:-1])
        assert job.config.train.epochs - before == 20 and before in (0, 20) and not job.row.paper
    floors = {job.row.label: job.config.train.floor for job in quick.jobs if job.config.train.floor}
    assert floors == ({"M = 3 / lists of 15 or more alone": 15} if name == "feddep-privacy" else {})


def test_a_forecast_runs_some_epochs_of_every_phase_and_counts_each_by_its_own_seconds() -> None:
    job = next(job for job in plan("feddep-cora").jobs if job.row.at["method"] == "FedDEP")
    short = short_job(job, Path("nowhere"))
    assert [phase.epochs for phase in short.config.method.phases] == [5, 0] and short.config.train.epochs == 10
    assert times_longer(job, short, [1.0] * 5 + [3.0] * 5, 100) == pytest.approx((50 * 1 + 50 * 3) / 20)
    alone = next(job for job in plan("feddep-cora").jobs if job.row.at["method"] == "FedAvg")
    assert times_longer(alone, short_job(alone, Path("nowhere")), [1.0, 3.0, 2.0, 2.0, 2.0], 50) == pytest.approx(10)


def test_a_forecast_of_steps_has_epochs_of_every_phase_where_there_are_several() -> None:
    """Eight steps would all lie in the first phase, and the second would be counted as if it cost the same."""
    jobs = {job.row.label: job for job in plan("ce-fedgnn-cora").jobs}
    several, alone = (short_job(jobs[label], Path("nowhere")).config for label in ("FedSage+", "FedAvg"))
    assert alone.train.steps == 8 and several.train.steps == 0
    assert several.train.epochs == 32 and [phase.epochs for phase in several.method.phases] == [16, 0]


def test_tables_have_the_papers_value_beside_ours() -> None:
    study = get_study("feddep-cora")
    empty = {column.label: ComparedValue(None, None, None) for column in study.columns}
    ours = {WHOLE: ComparedValue(Value(88.94), Value(87.5, 0.5), None, (87.0, 87.5, 88.0))}
    line = RowResult(row_of("feddep-cora", "M = 3 / FedDEP"), empty | ours, (0, 1, 2), 1.0)
    gone = {WHOLE: ComparedValue(Value(86.93), None, None)}
    left = RowResult(row_of("feddep-cora", "M = 3 / FedGraph"), empty | gone, (), None)
    findings = Findings(study, (line, left), {"seeds": 3})
    assert left_out(findings, (line, left)) == f"FedGraph: {NOT_YET}."
    told = [dict(zip(heads(findings), cells(findings, each), strict=True)) for each in (line, left)]
    assert told[0][WHOLE] == "87.50 ± 0.50" and told[0][OWN] == "–"
    assert (told[0]["paper"], told[0]["− paper"]) == ("88.94", "−1.44")
    assert (told[1][WHOLE], told[1]["paper"], told[1]["− paper"]) == ("–", "86.93", "–")


def test_some_rows_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    """Two rows of the small form; silos alone have a score on the global graph that own models of others count in."""
    monkeypatch.setattr(grid_page, "scores", lambda findings: "")
    study = get_study("feddep-cora")
    assert study.quick is not None
    two = tuple(row for row in study.quick.rows if row.at["method"] in ("Local", "FedDEP"))
    monkeypatch.setitem(catalogue.STUDIES, study.name, replace(study, quick=replace(study.quick, rows=two)))
    said = succeed("reproduce", study.name, "--quick", "--out", tmp_path, "--set", "data.nodes=90", "--epochs", 22).out
    assert "M = 3" in said and json.loads((tmp_path / "results.json").read_text())["complete"] is True
    lines = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert {line["method"] for line in lines} == {"Local", "FedDEP"} and all(line["ours"] for line in lines)
    run = metrics(tmp_path / "m-3-local" / "seed-0")["scored"]
    assert len(set(run["everywhere"]["seeds_scored"])) == 1 < len(set(run["trained"]["seeds_scored"]))
