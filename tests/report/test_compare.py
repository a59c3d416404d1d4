"""Comparisons of runs, and runs of several seeds: no run is lost, and unlike runs are compared with a caution."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus.commands.over_seeds import notes_over
from isthmus.core.errors import IsthmusError
from isthmus.report import compare_page
from isthmus.report.compare import comparison_table, write_comparison
from isthmus.report.compare_plots import coinciding, looks, overlaid, taking_turns
from isthmus.report.compare_verdict import verdict
from isthmus.report.compared_run import cautions, comparison
from isthmus.report.compared_scores import compared_scores
from isthmus.report.disclosure import disclosure
from isthmus.report.fitting import FittingTable
from isthmus.report.report import write_report
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import curves, final_score, read_flows
from isthmus.runs.text import bytes_text
from tests.helpers.command import refuse, succeed
from tests.helpers.reports import THREE, ledger_of, make_run, make_seeds, read


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
    console.print(comparison_table(folders))
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
    saw, points = compare_page._points(rows)
    assert saw == "across" and [point[0] for point in points.values()] == [0.9, 0.9, 0.95]
    assert (
        compare_page._points(rows[2:])[0]
        == ""
        == compare_page._points(comparison([make_run(tmp_path / "c", THREE)]))[0]
    )


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
    told = notes_over([["always", "first"], ["always", "NO BETTER"], ["always", "NO BETTER"]], [4, 5, 6])
    assert told == ["always", "With seed 4: first", "With seeds 5, 6: NO BETTER"]


# ---- what the page concludes, links to and draws


def seeds_of(path: Path, method: str, scores: list[float], saw: str = "across", linked: bool = True) -> RunFolder:
    """The folder of a run with a seed for each score."""
    names = {"silo-0": scores[0]}
    folder = make_run(path, names, method, seeds=list(range(len(scores))), scored=ways_of({saw: scores[0]}))
    for seed, score in enumerate(scores):
        make_run(path / f"seed-{seed}", names, method, seed=seed, scored=ways_of({saw: score}))
    if linked:
        (path / "report.html").write_text("<html></html>")
    return folder


TOP, NEAR, FAR = [0.90, 0.92, 0.91, 0.93], [0.905, 0.915, 0.912, 0.92], [0.70, 0.73, 0.71, 0.72]


def test_the_page_begins_with_a_verdict(tmp_path: Path) -> None:
    folders = [
        seeds_of(tmp_path / "far", "local", FAR),
        seeds_of(tmp_path / "odd %20#<b>", "<script>&_", TOP),
        seeds_of(tmp_path / "near", "fedavg", NEAR),
        seeds_of(tmp_path / "all", "centralised", [0.99, 0.99, 0.99, 0.98]),
    ]
    path = write_comparison(folders, tmp_path / "deep" / "out")
    page, text = read(path), path.read_text()
    told = json.loads((path.parent / "comparison.json").read_text())["verdict"]
    assert told.startswith("By scores across, <script>&_ is best: 91.5 %. fedavg cannot be told from the best (p = ")
    assert told in page.text and "centralised" in told and "<script>" not in text
    assert '<td class="l best"><a href=' in text and '<td class="best" title="best">' in text
    assert len([link for link in page.links if not link.startswith("#")]) == 4
    assert [row[1] for row in page.table("Run", "Folder")] == [str(folder.path) for folder in folders]
    assert {"All runs", "Score and price", "How they learnt"} <= set(
        re.findall(r'<a href="#section-\d+">(.*?)</a>', text)
    )


def test_a_verdict_says_why_there_is_none(tmp_path: Path) -> None:
    def said(*folders: RunFolder) -> str:
        rows = comparison(folders)
        return verdict(compared_scores(folders, rows), rows)

    one = seeds_of(tmp_path / "a", "fedavg", TOP)
    assert "nothing to choose" in said(one)
    own = seeds_of(tmp_path / "b", "local", FAR, saw="own")
    assert said(one, own) == "No run is called best, since no column has all of them."
    other = make_run(tmp_path / "c", {"silo-0": 0.5}, "x", data="patterns", scored=ways_of({"across": 0.5}))
    assert "different data" in said(one, other)
    single = [
        make_run(tmp_path / f"s{i}", {"silo-0": i / 9}, f"m{i}", scored=ways_of({"across": i / 9})) for i in (1, 2)
    ]
    assert "m2 is best: 22.2 %" in said(*single) and "not told without several seeds" in said(*single)
    alone = make_run(tmp_path / "alone", {"silo-0": 0.1}, "alone", scored=ways_of({"across": 0.1}))
    three = said(one, seeds_of(tmp_path / "far", "local", FAR), alone)
    assert "All others that were tested are worse" in three and "alone is not tested" in three


def test_curves_that_coincide_are_both_seen(tmp_path: Path) -> None:
    """The strokes of one lie in the gaps of the other; all others are solid."""
    curve = [0.1, 0.5, 0.8, 0.9]
    curves = {
        name: (range(1, 5), values)
        for name, values in (
            ("exact", curve),
            ("fedavg", [0.1, 0.3, 0.4, 0.5]),
            ("centralised", [v + 1e-7 for v in curve]),
        )
    }
    groups = coinciding(curves)
    assert groups == [["exact", "centralised"]]
    turns = taking_turns(looks(curves), groups)
    drawn = overlaid(curves, "accuracy", turns)
    paths = re.findall(r"stroke-dasharray: ([\d., ]+); stroke-dashoffset: ([\d.]+); stroke: var\((--c\d)\)", drawn)
    assert {colour: float(offset) for _, offset, colour in paths} == {"--c0": 0.0, "--c2": 7.5}
    assert {lengths.replace(" ", "") for lengths, _, _ in paths} == {"7.5,7.5"}
    assert coinciding({"a": ([1], [0.5]), "b": ([2], [0.5]), "c": ([], [])}) == []


def test_names_in_keys_are_never_cut(tmp_path: Path) -> None:
    names = [f"sync-sgd+fwd-bwd-le, exchange=optimes, and more {i}" for i in range(12)]
    folders = [make_run(tmp_path / str(i), {"silo-0": i / 20}, name) for i, name in enumerate(names)]
    text = write_comparison(folders, tmp_path / "out").read_text()
    keys = re.findall(r'<ul class="key">(.*?)</ul>', text)
    assert len(keys) >= 3 and all(name in key for key in keys[:2] for name in names)
    assert len({re.sub("[^<]*</li>", "", item) for item in keys[1].split("<li>")[1:]}) == 12  # no two look alike


def test_tables_of_runs_are_those_of_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [seeds_of(tmp_path / "a_&%", "a_&%<b>", TOP), seeds_of(tmp_path / "b", "fedavg", FAR)]
    monkeypatch.chdir(tmp_path)
    words = [folder.path.name for folder in folders]
    said = succeed("compare", *words, "--format", "latex", "--out", "out").out
    assert r"a\_\&\%\textless{}b\textgreater{} & \textbf{91.50 $\pm$ 1.29}" in said and r"\toprule" in said
    succeed("compare", *words, "--out", "deep/table.md")
    assert "| fedavg | 71.50 ± 1.29 |" in (tmp_path / "deep" / "table.md").read_text()
    succeed("compare", *words, "--out", "t.csv")
    assert (tmp_path / "t.csv").read_text() == (tmp_path / "out" / "table.csv").read_text()
    assert "a_&%<b>,across,91.5,1.29099,4,best" in (tmp_path / "t.csv").read_text()
    pivot = succeed("compare", *words, "--format", "markdown", "--pivot", "method:data.split", "--out", "out").out
    assert "| method | louvain |" in pivot
    refuse("compare", *words, "--format", "pdf", says=["pdf", "latex"])
    refuse("compare", *words, "--pivot", "data.split:score", says=["into one cell", "add a key"])
    refuse("compare", *words, "--pivot", "no.key:score", says=["no.key", "config.toml"])
    refuse("compare", *words, "--pivot", "run,score:method", says=["different footing"])


def test_single_runs_are_seeds_of_one_place(tmp_path: Path) -> None:
    whole = seeds_of(tmp_path / "a", "fedavg", TOP)
    parts = [RunFolder.open(tmp_path / "a" / f"seed-{seed}") for seed in range(4)]
    one, four = compared_scores([whole], comparison([whole])), compared_scores(parts, comparison(parts), "method:score")
    assert [dict(e.values) for e in four.entries if e.score] == [dict(e.values) for e in one.entries if e.score]


def test_megabytes_of_single_runs_are_a_mean_over_them(tmp_path: Path) -> None:
    for seed, epochs in enumerate((2, 3, 4)):
        lines = ledger_of(["silo-0"], ["parameters"], epochs=epochs)
        make_run(tmp_path / f"s{seed}", {"silo-0": 0.5}, seed=seed, lines=lines, scored=ways_of({"across": 0.5}))
    parts = [RunFolder.open(tmp_path / f"s{seed}") for seed in range(3)]
    found = compared_scores(parts, comparison(parts), "method:score").entries
    (size,) = [entry for entry in found if not entry.score]
    assert size.mean == pytest.approx(4 * 1700 / 1e6) and len(size.values) == 3
