"""Reports show every silo and kind, their bytes add up, and text of users is escaped."""

import re
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.kinds import KINDS, SCORES
from isthmus.report.compare import write_comparison
from isthmus.report.report import write_report
from isthmus.runs.folder import RunFolder
from isthmus.runs.summary import silo_names
from isthmus.runs.text import bytes_text, gain_text, list_names, metric_label, score_text
from tests.helpers.reports import ODD, THREE, ledger_of, make_run, make_seeds, read


def test_every_silo_and_its_numbers_are_in_the_report(tmp_path: Path) -> None:
    page = read(write_report(make_run(tmp_path / "run", THREE)))
    rows = page.table("Silo", "Nodes")
    assert [row[0] for row in rows] == list(THREE)
    assert rows[0] == ["silo-0", "1,200", "40", "7", "81.2 %", "81.2 %"]
    assert rows[2][-1] == "–"
    assert page.table("Metric")[1] == ["macro F1", "–", "–"]


def test_a_run_with_swapped_parts_goes_by_what_was_swapped(tmp_path: Path) -> None:
    label, summary = "fedavg, exchange=optimes", "local epochs, then the mean"
    page = read(write_report(make_run(tmp_path / "run", THREE, label=label, method_summary=summary)))
    assert page.text.count(f"{label} on blocks") == 2  # title and heading
    assert f"fedavg without the parts that were swapped here: {summary}." in page.text
    assert f"{label} trained" in page.text


def test_gain_is_the_difference_to_training_alone(tmp_path: Path) -> None:
    alone = make_run(tmp_path / "alone", {"silo-0": 0.7, "silo-1": 0.8, "silo-2": 0.5}, "local")
    page = read(write_report(make_run(tmp_path / "run", THREE), alone))
    gains = [row[-2:] for row in page.table("Silo", "Nodes")]
    assert gains == [["70.0 %", "+11.2"], ["80.0 %", "−5.0"], ["50.0 %", "–"]]
    mean = (0.812 + 0.75) / 2 - (0.7 + 0.8 + 0.5) / 3
    assert page.table("Metric")[0][-1] == f"{100 * mean:+.1f}"


@pytest.mark.parametrize("other", [{"data": "patterns"}, {"metric": "macro_f1"}])
def test_no_gain_over_a_run_that_cannot_be_compared(tmp_path: Path, other: dict[str, Any]) -> None:
    alone = make_run(tmp_path / "alone", THREE, "local", **other)
    page = read(write_report(make_run(tmp_path / "run", THREE), alone))
    assert page.table("Silo")[0][-1] == "81.2 %"
    assert "No gain over training alone is shown" in page.text


def test_bytes_in_the_table_add_up_to_the_ledger(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE, lines=ledger_of(list(THREE), [k.value for k in KINDS]))
    page = read(write_report(folder))
    total = sum(folder.ledger["bytes"].to_pylist())
    sizes = [int(hint.split()[0].replace(",", "")) for hint in page.hints if hint.endswith("bytes")]
    setup, everything = sizes[0::2], sizes[1::2]  # each row: before training, in all
    assert everything[-1] == sum(everything[:-1]) == total
    assert setup[-1] == sum(setup[:-1]) == total // 4  # epoch 0 of 0..3
    assert page.table("Kind", "Messages")[-1][-1] == bytes_text(total)
    assert page.table("Kind", "Messages")[-1][4] == bytes_text(total / 3)


def test_transport_is_shown_for_several_hosts(tmp_path: Path) -> None:
    one = read(write_report(make_run(tmp_path / "one", THREE)))
    two = read(write_report(make_run(tmp_path / "two", THREE, hosts=2, transport={"parameters": 5000})))
    assert "Carried" not in one.text and "one process" in one.text
    assert two.table("Kind", "Messages")[-1][-1] == "5 kB" and "one process" not in two.text


@pytest.mark.parametrize("how", SCORES)
def test_the_header_says_how_parameters_were_scored(tmp_path: Path, how: str) -> None:
    page = read(write_report(make_run(tmp_path / "run", THREE, score=how)))
    assert f"Parameters were scored {SCORES[how]} (score = {how})." in page.text
    assert "Parameters were scored" not in read(write_report(make_run(tmp_path / "older", THREE))).text


def test_user_text_is_escaped_everywhere(tmp_path: Path) -> None:
    silos = {ODD: 0.5, 'x" onload="y$z$': 0.6}
    lines = [(1, 1, "step", ODD, "server", "metrics", ODD, "", 1, 1, 8)]
    folder = make_run(tmp_path / "run", silos, lines=lines, notes=[ODD], environment={ODD: ODD}, data=ODD, model=ODD)
    other = make_run(tmp_path / ODD, silos, data=ODD)
    for path in (write_report(folder, folder), write_comparison([folder, other], tmp_path / "out")):
        page, markup = read(path), re.sub(r">[^<]*<", "><", path.read_text())
        assert page.text.count(ODD) > 3 and 'x" onload="y$z$' in page.text
        assert "bank" not in markup and "onload" not in markup


def test_bare_metrics_are_enough(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", THREE)
    (folder.path / "metrics.json").write_text('{"method": "mine", "test": {"accuracy": 0.5}}')
    assert "50.0 %" in read(write_report(RunFolder.open(folder.path))).text


def test_header_tells_when_the_last_seed_finished(tmp_path: Path) -> None:
    folder = make_seeds(tmp_path / "run")
    late = {"finished": "2031-02-04T01:30:00+02:00", "device": "cpu"}
    make_run(tmp_path / "late", THREE, environment=late)
    (tmp_path / "late" / "metrics.json").rename(folder.path / "seed-1" / "metrics.json")
    page = read(write_report(folder))
    assert "Finished 2031-02-03 23:30 UTC on 1 host, device cpu." in page.text
    assert ["python", "3.11"] in page.tables[-1] and "finished" not in page.text
    bare = read(write_report(make_run(tmp_path / "bare", THREE, environment=None)))
    assert "Ran on 1 host" in bare.text and "Finished" not in bare.text


@pytest.mark.filterwarnings("error")
def test_many_silos_fit(tmp_path: Path) -> None:
    silos = {f"silo-{i}": i / 40 for i in range(40)}
    folder = make_run(tmp_path / "run", silos, lines=ledger_of(list(silos), ["embeddings"], epochs=0))
    assert silo_names(folder) == list(silos)
    path = write_report(folder)
    read(path)
    assert path.stat().st_size < 500_000


def test_numbers_for_humans() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1 kB", 1340: "1.3 kB", 46_200_000: "46.2 MB", 999_700: "1.0 MB"}
    assert {size: bytes_text(size) for size in sizes} == sizes
    assert score_text("accuracy", 0.812) == "81.2 %" and score_text("mae", 1.23456) == "1.235"
    assert score_text("accuracy", None) == score_text("accuracy", float("nan")) == "–"
    assert gain_text("accuracy", 0.5, 0.6) == "−10.0" and gain_text("accuracy", None, 0.6) == "–"
    assert metric_label("pr_auc/C2") == "PR-AUC of C2" and metric_label("macro_f1") == "macro F1"
    assert list_names(["silo-0", "silo-2"]) == "silo-0 and silo-2" and list_names(["silo-3"]) == "silo-3"


def test_long_names_that_begin_alike_stay_apart_in_figures(tmp_path: Path) -> None:
    silos = {f"Cooperative Bank of the Northern Provinces {i}": 0.5 for i in range(7)}
    text = write_report(make_run(tmp_path / "run", silos, lines=ledger_of(list(silos), ["embeddings"]))).read_text()
    for i in range(7):
        assert text.count(f">Cooperative B… Provinces {i}<") >= 3  # bars, legend, heat map


def test_the_report_begins_with_a_verdict_and_a_list_of_its_sections(tmp_path: Path) -> None:
    alone = make_run(tmp_path / "alone", {"silo-0": 0.7, "silo-1": 0.8, "silo-2": 0.5}, "local")
    path = write_report(make_run(tmp_path / "run", THREE), alone)
    page = read(path)
    text = page.text.replace("\u00a0", " ")
    assert "fedavg on blocks reached a test accuracy of 78.1 %, +11.4 points over each silo alone." in text
    assert "For it model weights left silos, with ε = ∞: without noise. Nobody has tried" in text
    sections = re.findall(r'<h2 id="([^"]+)">', path.read_text())
    assert len(sections) > 5 and [link[1:] for link in page.links if "section" in link] == sections
    bare = read(write_report(make_run(tmp_path / "bare", THREE, lines=[])))
    assert "Nothing left a silo for it." in bare.text
