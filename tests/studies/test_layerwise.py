"""The studies of layer-wise exchange: the paper's values, the paper's protocol, and figures of both."""

import csv
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from isthmus.data.patterns import STRUCTURAL, TASKS, patterns
from isthmus.graph.graph import TEST, TRAIN, Schema
from isthmus.nn.model import GNN
from isthmus.studies import layerwise, plots
from isthmus.studies.catalogue import STUDIES, get_study
from isthmus.studies.page import study_page
from isthmus.studies.plan import StudyPlan, StudyRequest, plan_study
from isthmus.studies.results import ComparedValue, Findings, RowResult
from isthmus.studies.study import Value
from tests.helpers.command import refuse, succeed

TEN = ("layerwise-louvain", "layerwise-metis")
NAMES = [study.name for study in layerwise.STUDIES]


def plan(name: str, **request: Any) -> StudyPlan:
    return plan_study(get_study(name), StudyRequest(out="nowhere", **request))


def test_the_papers_values() -> None:
    """Some values of each table, typed from the paper by hand."""
    louvain, metis = ({row.label: row.paper for row in get_study(name).rows} for name in TEN)
    assert louvain["Fully Local"]["C2"] == Value(43.50, 0.17) and louvain["OptimES"]["macro"] == Value(83.13)
    assert metis["Sync-SGD + Fwd/Bwd-LE"]["macro"] == Value(93.15) and metis["FedAvg + Fwd-LE"]["C3"] == Value(
        83.70, 3.62
    )
    top, floor = get_study("layerwise-reference").rows
    assert (top.paper["macro"], floor.paper["macro"]) == (Value(97.09), Value(31.04))
    edges = {row.label: row.paper["macro"].mean for row in get_study("layerwise-cross-edges").rows}
    assert (edges["metis k=15 with"], edges["metis k=15 without"]) == (69.42, 51.29)


@pytest.mark.parametrize("name", NAMES)
def test_the_macro_of_a_row_is_the_mean_of_its_tasks(name: str) -> None:
    for row in get_study(name).rows:
        if row.paper:
            assert set(row.paper) == {*STRUCTURAL, "macro"}
            mean = sum(row.paper[task].mean for task in STRUCTURAL) / 7
            assert row.paper["macro"].mean == pytest.approx(mean, abs=0.011), row.label


@pytest.mark.parametrize("name", TEN)
def test_ten_rows_follow_the_papers_protocol(name: str) -> None:
    jobs = plan(name).jobs
    assert len(jobs) == 2 * 12 and [job.config.seed for job in jobs[:4]] == [0, 1, 0, 1]
    for job in jobs:
        config, ours = job.config, not job.row.paper
        assert (config.data.name, config.data.options, config.data.silos) == ("patterns", {"nodes": 8192}, 15)
        assert (config.model.layers, config.model.hidden, config.model.dropout) == (6, 64, 0.1)
        assert (config.model.directed, config.model.ego, config.model.norm) == (True, True, "batch")
        train = config.train
        assert (train.epochs, train.batch) == (25, 32 if ours else 8)  # the paper: 100 epochs of 32 seeds a silo
        assert (train.lr, train.weight_decay) == (1e-3, 1e-4)
        assert train.fanout == (10, 10, 10, 10, 5, 5)
        assert (train.batches, train.average, train.pooled) == ("joint" if ours else "local", "silos", True)
        options = config.as_dict()
        if "fedavg" in config.method.name or config.method.name == "optimes":
            rounds = {"name": "fedavg", "local_epochs": 1, "local_steps": 0, "weights": "nodes"}
            assert options["sync"] == {**rounds, "private": ["encoder"]}
            names = [name for name, _ in GNN(config.model, Schema(1, STRUCTURAL, "tasks"), 32).named_parameters()]
            assert any(name.startswith("encoder.") for name in names)  # the port tables are there to stay at home
        if config.method.name in ("local", "fedavg", "sync-sgd"):
            assert options["exchange"] == {"name": "nothing", "halo": "placeholder"}
    split = jobs[0].config.data
    expected = ("louvain", 3.0, 0) if name.endswith("louvain") else ("metis", 0.0, 256)
    assert (split.split, split.resolution, split.communities) == expected


def test_reference_rows_have_eleven_heads_and_no_silos() -> None:
    config = plan("layerwise-reference").jobs[0].config
    assert (config.method.name, config.data.silos, config.data.options["tasks"]) == ("centralised", 1, TASKS)


def test_cross_edges_are_kept_or_dropped() -> None:
    jobs = plan("layerwise-cross-edges", seeds=1).jobs
    assert len(jobs) == 16
    for job in jobs:
        split, k, kept = job.row.label.split()
        data = job.config.data
        assert (job.config.method.name, data.split, f"k={data.silos}") == ("local", split, k)
        assert job.config.as_dict()["exchange"]["halo"] == {"with": "placeholder", "without": "drop"}[kept]
    refuse("reproduce", "layerwise-cross-edges", "--silos", 4, says=["own numbers of silos", "leave out --silos"])


def test_quick_forms_are_small_and_compare_with_the_same_tasks() -> None:
    for name in NAMES:
        quick = plan(name, quick=True)
        assert len(quick.jobs) <= 12 and quick.seeds == 1 and "Quick" in quick.study.notes[-1]
        told = [column.label for column in quick.study.columns if column.label not in quick.study.beside]
        assert told == ["C2", "C3", "macro"]
        for job in quick.jobs:
            assert (job.config.data.options["nodes"], job.config.model.layers) == (4096, 3)
            if job.row.paper:
                mean = (job.row.paper["C2"].mean + job.row.paper["C3"].mean) / 2
                assert job.row.paper["macro"].mean == pytest.approx(mean)
    assert str(plan_study(get_study(TEN[0]), StudyRequest(quick=True)).out) == "runs/reproduce/layerwise-louvain-quick"
    assert all(job.config.data.silos == 8 for job in plan(TEN[0], quick=True).jobs)


@pytest.mark.parametrize("asked", [{"silos": 5}, {"sets": ("data.silos=5",)}])
def test_another_number_of_silos_has_no_values_of_the_paper(asked: dict[str, Any]) -> None:
    other = plan_study(get_study("layerwise-louvain"), StudyRequest(**asked))
    assert all(job.config.data.silos == 5 and not job.row.paper for job in other.jobs)
    assert str(other.out) == "runs/reproduce/layerwise-louvain-k5"
    assert "15 silos only" in other.study.notes[-1]
    assert all(row.paper for row in plan("layerwise-louvain", silos=15).study.rows[:10])


def test_the_constant_predictor_scores_the_share_of_the_rarer_class(tmp_path: Path) -> None:
    small = ("--set", "data.nodes=512", "--rows", "always-positive", "--seeds", 1, "--out", tmp_path)
    found = json.loads(succeed("reproduce", "layerwise-reference", *small, "--json").out)
    cells = found["rows"][1]["columns"]
    graph = patterns(512, tasks=STRUCTURAL)
    assert graph.y is not None and graph.split is not None
    seen, asked = (graph.y[graph.split == split].double().mean(0) for split in (TRAIN, TEST))
    rare = [float(there if here <= 0.5 else 1 - there) for here, there in zip(seen, asked, strict=True)]
    assert [cells[task]["ours"] for task in STRUCTURAL] == pytest.approx([100 * r for r in rare], abs=1e-4)
    assert cells["macro"]["ours"] == pytest.approx(100 * sum(rare) / 7, abs=1e-4)
    assert cells["macro"]["difference"] == pytest.approx(cells["macro"]["ours"] - 31.04, abs=1e-4)


def test_studies_are_listed() -> None:
    rows = json.loads(succeed("reproduce", "--json").out)
    assert [row["name"] for row in rows] == list(STUDIES)
    assert all(row["summary"] and row["source"] and len(row["rows"]) > 1 for row in rows)
    assert "layerwise-metis" in succeed("reproduce").out
    refuse("reproduce", "layerwise-luvain", says=["Unknown study", "Did you mean 'layerwise-louvain'"])
    refuse("reproduce", "layerwise-louvain", "--jobs", 0, says=["--jobs is 0"])
    refuse("reproduce", "layerwise-louvain", "--set", "train.lrr=1", says=["lrr"])


def test_tables_ship_with_the_package() -> None:
    """Every table is named in the package data, and holds numbers only."""
    folder = resources.files("isthmus.studies").joinpath("tables")
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert "studies/tables/*.csv" in project.read_text()
    for table in folder.iterdir():
        for line in csv.DictReader(table.read_text().splitlines()):
            assert all(float(v) >= 0 for k, v in line.items() if k in STRUCTURAL or k.endswith(("_std", "macro")))


def made_up() -> Findings:
    """Findings with rows that have a value of the paper or none, and a result or none."""
    study = get_study("layerwise-louvain")

    def cell(paper: Value | None, place: int) -> ComparedValue:
        return ComparedValue(paper, Value(60.0 + place, 0.5) if place % 3 else None, 59.0 if place % 3 else None)

    lines = tuple(
        RowResult(row, {c.label: cell(row.paper.get(c.label), i) for c in study.columns}, (0, 1), 3.0)
        for i, row in enumerate(study.rows)
    )
    facts = {"seeds": 2, "command": "isthmus reproduce <x>", "hardware": [{"device": "cpu"}]}
    return Findings(study, lines, facts)


def test_figures_and_page_of_rows_with_and_without_results() -> None:
    findings = made_up()
    files = plots.plot_files(findings)
    assert files["plot.png"].startswith(b"\x89PNG")
    drawn = "".join(ET.fromstring(files["plot.svg"]).itertext())
    text = study_page(findings)
    for row in findings.study.rows:
        assert row.label in drawn and row.label in text
    for name in ("paper", "ours", *(c.label for c in findings.study.columns)):
        assert name in drawn
    assert "&lt;x&gt;" in text and "<x>" not in text
    assert 'src="' not in text and "url(http" not in text


def test_order_counts_pairs_that_are_no_ties() -> None:
    findings = made_up()
    pairs, swapped = findings.order()
    judged = {line.row.label: (c.paper.mean, c.ours.mean) for line in findings.lines
              if (c := line.cells["macro"]).paper and c.ours}  # fmt: skip
    labels = list(judged)
    far = [(a, b) for i, a in enumerate(labels) for b in labels[i + 1 :] if abs(judged[a][0] - judged[b][0]) >= 0.5]
    assert pairs == len(far)
    assert swapped == [(a, b) for a, b in far if (judged[a][0] < judged[b][0]) != (judged[a][1] < judged[b][1])]
    cell = ComparedValue(Value(1.0), Value(60.0), None)
    alike = [replace(line, cells={**line.cells, "macro": replace(cell, paper=line.cells["macro"].paper)})
             for line in findings.lines]  # fmt: skip
    pairs, swapped = replace(findings, lines=tuple(alike)).order()
    assert pairs == len(swapped) > 0  # equal rows are in nobody's order
