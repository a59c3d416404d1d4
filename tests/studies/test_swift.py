"""The studies of Swift-FedGNN: the paper's values, one protocol for all rows, traffic and time to a target."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus.studies.catalogue import STUDIES, get_study
from isthmus.studies.page import study_page
from isthmus.studies.plan import StudyRequest, plan_study
from isthmus.studies.record import as_csv, as_json
from isthmus.studies.results import ComparedValue, Findings, RowResult
from isthmus.studies.study import Value
from isthmus.studies.swift import CROSSING, EXCHANGED, TIME, TRAFFIC, VALID, reached, target_columns
from isthmus.studies.swift_plots import network_seconds
from isthmus.studies.text import study_tables
from tests.helpers.command import succeed

NAMES = [name for name in STUDIES if name.startswith("swift-")]
FIVE = [name for name in NAMES if name != "swift-surface"]


def read(metrics: dict[str, Any], target: float) -> dict[str, float | None]:
    return {column.label: column.read(metrics) for column in target_columns(target)}


def test_the_papers_values() -> None:
    """Some values, typed from the paper by hand."""
    rows = {row.label: row.paper for row in get_study("swift-citeseer").rows}
    assert rows["Swift-FedGNN"] == {VALID: Value(66.0), TRAFFIC: Value(35320.0)}
    assert rows["FedGNN-G"] == {VALID: Value(66.08), TRAFFIC: Value(43430.0)}
    assert rows["LLCG"][VALID] == Value(68.4) and rows["FedSage"] == {VALID: Value(64.39)}
    assert {row.label: row.paper for row in get_study("swift-citeseer-gin").rows}["FedGNN-G"] == {VALID: Value(50.76)}
    own = [name for name in FIVE if name not in ("swift-citeseer", "swift-citeseer-gin")]
    assert not any(row.paper for name in own for row in get_study(name).rows)


@pytest.mark.parametrize("name", FIVE)
def test_rows_follow_one_protocol(name: str) -> None:
    configs = [job.config for job in plan_study(get_study(name), StudyRequest(out="nowhere")).jobs]
    assert {config.method.name for config in configs} == {
        "swift-fedgnn",
        "fedgnn-g",
        "llcg-every-step",
        "fedgnn-pns",
        "fedsage",
    }
    assert all(config.method.scores == ("trained", "own", "across") for config in configs)
    assert len({(c.train.steps, c.train.batch, c.train.fanout, c.train.lr, c.model.hidden) for c in configs}) == 1
    assert {c.train.batch for c in configs} == {256} and {c.train.fanout for c in configs} == {(15, 10)}
    tables = {config.method.name: config.as_dict() for config in configs}
    every = tables["swift-fedgnn"]["schedule"]["every"], tables["llcg-every-step"]["sync"]["every"]
    assert set(every) == {5 if "citeseer" in name else 10}


METRICS: dict[str, Any] = {
    "method": "swift-fedgnn",
    "metric": "accuracy",
    "valid": {"accuracy": 0.75},
    "bytes_per_crossing": 2.5e6,
    "seconds_by_epoch": [1.0, 2.0, 3.0, 4.0],
    "merged": False,
    "link": {
        "mbps": 8.0,
        "latency_ms": 100.0,
        "parts": {"setup": {"bytes": 10**6}, "training": {"bytes": 8 * 10**6}, "scoring": {"bytes": 10**7}},
    },
    "scored": {
        "own": {"bytes": 0, "test": {"accuracy": 0.7}},
        "across": {"bytes": 2 * 10**6, "test": {"accuracy": 0.8}},
    },
    "curve": {
        "epoch": [2, 4],
        "valid": [0.5, 0.75],
        "bytes": [10**6, 4 * 10**6],
        "exchanged": [10**5, 10**6],
        "busiest": [10**6, 3 * 10**6],
        "legs": [4, 10],
    },
}


def test_traffic_and_time_are_those_of_the_first_validation_that_reaches_the_target() -> None:
    assert [reached(METRICS, target) for target in (50, 50.1, 75, 76)] == [0, 1, 1, None]
    assert network_seconds(METRICS) == pytest.approx([3 + 1 + 0.2, 10 + 3 + 0.5])
    alike = {"MB to train": 9.0, "MB to score across": 2.0, "test, own edges": 70.0, "test, across": 80.0}
    always = {CROSSING: 2.5, VALID: 75.0, **alike}
    assert read(METRICS, 75.0) == {**always, TRAFFIC: 4.0, EXCHANGED: 1.0, TIME: pytest.approx(13.5)}
    assert read(METRICS, 80.0) == {**always, TRAFFIC: None, EXCHANGED: None, TIME: None}


def test_a_mean_says_how_many_seeds_reached_the_target() -> None:
    cells = {column.label: ComparedValue(None, None, None, (None,) * 3) for column in get_study("swift-cora").columns}
    cells |= {
        TRAFFIC: ComparedValue(None, Value(2881.4, 9.0), None, (2890.4, None, 2872.4)),
        VALID: ComparedValue(None, Value(78.25, 0.5), None, (78.75, 78.25, 77.75)),
    }
    study = get_study("swift-cora")
    findings = Findings(
        study, (RowResult(study.rows[0], cells, (0, 1, 2), 1.0),), {"seeds": 3, "command": "", "hardware": []}
    )
    lines = {line["column"]: line for line in csv.DictReader(as_csv(findings).splitlines())}
    known = {name: line["seeds"] for name, line in lines.items() if line["seeds"] != "0"}
    assert known == {TRAFFIC: "2", VALID: "3"} and lines.keys() == cells.keys()
    told = json.loads(as_json(findings))["rows"][0]["columns"]
    assert told[TRAFFIC]["by_seed"] == [2890.4, None, 2872.4]
    console = Console(width=80)
    with console.capture() as said:
        console.print(*study_tables(findings))
    assert "2,881 (2/3)" in said.get() and "78.25 ± 0.50 │" in said.get()
    assert "2,881 (2/3)" in study_page(findings)


def test_the_surface_has_rows_of_equal_shares() -> None:
    rows = {row.label: row.overrides["schedule"] for row in get_study("swift-surface").rows}
    shares: dict[float, list[str]] = {}
    for label, schedule in rows.items():
        shares.setdefault(schedule["silos"] / schedule["every"], []).append(label)
    assert len(rows) == 20 and {"I = 1, K = 1", "I = 5, K = 5", "I = 10, K = 10"} <= set(shares[1.0])


def test_rows_of_more_silos_than_there_are_are_left_out() -> None:
    plan = plan_study(get_study("swift-surface"), StudyRequest(out="nowhere", silos=3))
    assert {job.config.method.last.schedule.silos for job in plan.jobs} == {1, 2}
    assert "I = 20, K = 5" in plan.study.notes[-1] and "K = 2" not in plan.study.notes[-1]


@pytest.mark.parametrize("name", ["swift-citeseer", "swift-surface"])
def test_quick_studies_run(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    small = ("--set", "train.steps=6", "--set", "data.nodes=200", "--set", "model.hidden=4")
    said = succeed("reproduce", name, "--quick", "--out", out, *small).out
    page = (out / "report.html").read_text()
    lines = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert all(line["ours"] for line in lines if line["column"] == VALID) and "validation" in said
    assert page.count("<figure") == 2
    sent = {line["row"]: line["ours"] for line in lines if line["column"] == CROSSING}
    assert all(float(size) > 0 for row, size in sent.items() if row != "FedSage")
