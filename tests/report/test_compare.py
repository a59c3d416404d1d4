"""Comparisons of runs, and runs of several seeds: no run is lost, and unlike runs are compared with a caution."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus.commands.run import _notes_over
from isthmus.core.errors import IsthmusError
from isthmus.report import compare
from isthmus.report.compare import comparison_table, write_comparison
from isthmus.report.compared_run import cautions, comparison
from isthmus.report.disclosure import disclosure
from isthmus.report.fitting import FittingTable
from isthmus.report.report import write_report
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import curves, final_score, read_flows
from isthmus.runs.text import bytes_text
from tests.helpers.reports import THREE, make_run, make_seeds, read


def test_several_seeds_show_deviations_and_sum_their_ledgers(tmp_path: Path) -> None:
    folder = make_seeds(tmp_path / "run")
    page = read(write_report(folder))
    assert page.table("Silo")[0][-1] == "81.2 ± 2.0 %"
    once = sum(folder.ledger["bytes"].to_pylist())
    assert page.table("Kind", "Messages")[-1][-1] == bytes_text(2 * once)
    assert curves(folder).silos[0] == pytest.approx([0.712] * 3)
    (row,) = comparison([folder])
    assert (row.bytes, row.bytes_per_step, row.seeds, row.deviation) == (once, once / 3, 2, 0.01)
    assert sum(flow.bytes for flow in read_flows(folder)) == 2 * once


def test_comparison_has_every_run_and_adds_nothing(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / "alone", THREE, "local", lines=[]),
        make_run(tmp_path / "a", THREE),
        make_run(tmp_path / "b", {**THREE, "silo-2": 0.9}),
        make_seeds(tmp_path / "c"),
        make_run(tmp_path / "all", {"silo-0": 0.95}, "centralised"),
    ]
    rows = comparison(folders)
    assert [row.name for row in rows] == ["local", "fedavg (a)", "fedavg (b)", "fedavg (c)", "centralised"]
    page = read(write_comparison(folders, tmp_path / "out"))
    assert [row[0] for row in page.table("Run")] == [row.name for row in rows]
    assert [row[1:] for row in page.table("Silo")][2] == ["–", "–", "90.0 %", "–"]
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [run["test"] for run in saved["runs"]] == [final_score(folder, "test", "accuracy") for folder in folders]
    assert [run["epsilon"] for run in saved["runs"]] == [0.0, "inf", "inf", "inf", "inf"]


def test_comparison_says_what_does_not_compare(tmp_path: Path) -> None:
    here = make_run(tmp_path / "a", THREE)
    there = make_run(tmp_path / "b", THREE, "fedprox", data="patterns", metric="macro_f1")
    assert cautions(comparison([here])) == []
    said = " ".join(cautions(comparison([here, there])))
    assert "blocks, patterns" in said and "accuracy, macro_f1" in said
    assert said in " ".join(read(write_comparison([here, there], tmp_path / "out")).text.split("\n"))


def test_means_over_different_silos_do_not_compare(tmp_path: Path) -> None:
    """One run has a score in two of its three silos alone, the other in all: their means are of different things."""
    folders = [make_run(tmp_path / name, THREE) for name in ("a", "b")]
    metrics = folders[1].metrics
    way = {"sees": "own", "test": {"accuracy": 0.7, "silos": {"silo-0": {"accuracy": None}, "silo-1": {"accuracy": 1}}}}
    full = {"sees": "own", "test": {"accuracy": 0.7, "silos": {"silo-0": {"accuracy": 1}, "silo-1": {"accuracy": 1}}}}
    for folder, each in zip(folders, (full, way), strict=True):
        told = {**metrics, "scored": {"own": {**each, "seeds_scored": [5, 5], "bytes": 0}}}
        (folder.path / "metrics.json").write_text(json.dumps(told))
    said = " ".join(cautions(comparison([RunFolder(folder.path) for folder in folders])))
    assert (
        "Means are over different numbers of silos" in said and "2 by fedavg (a) (own edges); 1 by fedavg (b)" in said
    )


def test_comparison_table_keeps_names_as_they_are(tmp_path: Path) -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    folders = [make_run(tmp_path / "a", THREE, "[bold]mine"), make_seeds(tmp_path / "b")]
    console.print(comparison_table(comparison(folders)))
    text = console.export_text()
    assert "[bold]mine" in text and "78.1 ± 1.0 %" in text and "1 min" in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_comparison_breaks_no_number_however_narrow_the_terminal_is(width: int, tmp_path: Path) -> None:
    """Columns that do not fit beside each other stand in a table of their own, with the names of runs again."""
    lines = [[f"run-{i}", *(f"{i}{j}.5 ± 1.0 %" for j in range(6)), "12.3 kB"] for i in range(3)]
    heads = ["Run", *(f"Scored as trained, {j}" for j in range(6)), "Training"]
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(FittingTable("Three runs", heads, lines, ("Run",), "A caution."))
    text = console.export_text()
    assert all(cell in text for line in lines for cell in line)
    assert "trained" in text and "Three runs" in text and "A caution." in text
    assert max(map(len, text.splitlines())) <= width
    assert text.count("run-2") == {60: 3, 80: 2, 200: 1}[width]


def test_errors_tell_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(IsthmusError, match="nothing to compare; give the folders"):
        comparison([])
    gossip = (0, 0, "setup", "silo-0", "server", "gossip", "unprotected", "", 1, 1, 1)
    unknown = make_run(tmp_path / "a", THREE, lines=[gossip])
    with pytest.raises(IsthmusError, match="unknown kind gossip; update"):
        disclosure(unknown)
    (unknown.path / "ledger.parquet").unlink()
    with pytest.raises(IsthmusError, match=r"no ledger.parquet.*run again"):
        write_report(RunFolder.open(unknown.path))


@pytest.mark.filterwarnings("error")
def test_many_runs_fit(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / str(i), {"silo-0": i / 20}, f"method {i}") for i in range(20)]
    page = read(write_comparison(folders, tmp_path / "out"))
    assert len(page.table("Run")) == 20


def test_the_figure_shows_scores_that_saw_alike(tmp_path: Path) -> None:
    """Runs that are known by own edges are drawn by what they reach across, beside a merged one."""
    split = {"accuracy": 0.5, "silos": {}}
    ways = {
        how: {"sees": how, "test": {**split, "accuracy": test}, "seeds_scored": [9], "bytes": 7, "best_epoch": [1]}
        for how, test in (("own", 0.5), ("across", 0.9))
    }
    rows = comparison(
        [
            make_run(tmp_path / "a", THREE, scored=ways),
            make_run(tmp_path / "b", THREE, "local", scored=ways),
            make_run(tmp_path / "all", {"silo-0": 0.95}, "centralised"),
        ]
    )
    saw, points = compare._points(rows)
    assert saw == "across" and [point[0] for point in points.values()] == [0.9, 0.9, 0.95]
    assert compare._points(rows[2:])[0] == "" == compare._points(comparison([make_run(tmp_path / "c", THREE)]))[0]


def ways_of(scores: dict[str, float], count: int = 9) -> dict[str, Any]:
    """What ``metrics.json`` has of ways of scoring, by what each saw: one silo, and its test accuracy."""
    return {
        saw: {
            **{"sees": saw, "seeds_scored": [count], "bytes": 7, "best_epoch": [1]},
            "test": {"accuracy": score, "silos": {"silo-0": {"accuracy": score}}},
        }
        for saw, score in scores.items()
    }


def test_scores_of_silos_are_of_one_kind_or_say_of_which(tmp_path: Path) -> None:
    """Silo by silo, too, own edges never stand beside scores across without a word."""
    one = make_run(tmp_path / "a", {"silo-0": 0.5}, scored=ways_of({"own": 0.5, "across": 0.9}))
    other = make_run(tmp_path / "b", {"silo-0": 0.8}, "fedprox", scored=ways_of({"across": 0.8}))
    assert read(write_comparison([one, other], tmp_path / "alike")).table("Silo") == [["silo-0", "90.0 %", "80.0 %"]]
    own = make_run(tmp_path / "c", {"silo-0": 0.4}, "local", scored=ways_of({"own": 0.4}))
    page = read(write_comparison([other, own], tmp_path / "unlike"))
    assert page.table("Silo", "fedprox (across)", "local (own edges)") == [["silo-0", "80.0 %", "40.0 %"]]


def test_comparison_says_how_many_were_scored_and_learnt_from(tmp_path: Path) -> None:
    some = {"silo-0": {"nodes": 9, "train": 340, "halo": 1}}
    every = {"silo-0": {"nodes": 9, "train": 1400, "halo": 1}}
    own = make_run(tmp_path / "a", {"silo-0": 0.4}, silo_nodes=some, scored=ways_of({"own": 0.4}, 130))
    all_ = make_run(tmp_path / "b", {"silo-0": 0.4}, "x", silo_nodes=every, scored=ways_of({"across": 0.4}, 500))
    said = " ".join(cautions(comparison([own, all_])))
    assert "scored: 500 by x (across); 130 by fedavg (own edges)." in said
    assert "learns from it): 1,400 by x; 340 by fedavg." in said


def test_notes_of_all_seeds_are_kept() -> None:
    """A seed whose model is useless is told, whichever seed it is."""
    told = _notes_over([["always", "first"], ["always", "NO BETTER"], ["always", "NO BETTER"]], [4, 5, 6])
    assert told == ["always", "With seed 4: first", "With seeds 5, 6: NO BETTER"]
