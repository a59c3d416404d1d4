"""The report's section on generated neighbours: what a run has measured, by silo, and bytes by model."""

from pathlib import Path

import pytest

from isthmus.report.report import write_report
from tests.helpers.command import metrics, succeed
from tests.helpers.reports import THREE, make_run, read

FIGURES = {"prototypes": 4.0, "merged_groups": 2.0, "smallest_group": None, "rows_a_node": 1.25, "nodes_with_rows": 0.5}
SMALL = (
    "run",
    "--data",
    "blocks",
    "--silos",
    2,
    "--set",
    "data.nodes=240",
    "--set",
    "data.classes=3",
    "--set",
    "model.hidden=8",
    "--epochs",
    3,
)


def test_figures_of_each_silo_and_bytes_by_model(tmp_path: Path) -> None:
    sizes = {"total": 10_000, "prototypes": 1_000, "parameters": 8_000}
    figures = {silo: {**FIGURES, "prototypes": 4.0 + i} for i, silo in enumerate(THREE)}
    models = {"classifier": 3_000, "generator": 5_000}
    folder = make_run(tmp_path / "run", THREE, silo_figures=figures, bytes=sizes, bytes_by_model=models)
    page = read(write_report(folder))
    assert page.table("Silo", "Sent", "Merged", "Smallest")[1] == ["silo-1", "5", "2", "–"]
    assert page.table("Silo", "Rows a node", "Nodes with rows")[0] == ["silo-0", "1.25", "50 %"]
    found = {line[0]: line[-1] for line in page.table("What", "When", "Bytes")}
    assert found["prototypes"] == "1 kB" and found["parameters of the generator"] == "5 kB"
    assert found["all else, such as handshake, losses and scores"] == "1 kB"


def test_rows_that_cross_while_generators_learn_have_lines_of_their_own(tmp_path: Path) -> None:
    """FedSage+ sends them at every step, and no prototypes: they are not "all else"."""
    sizes = {"total": 10_000, "generated": 4_000, "row-gradients": 3_000, "parameters": 2_000}
    figures = dict.fromkeys(THREE, {"rows_a_node": 1.0})
    folder = make_run(tmp_path / "run", THREE, silo_figures=figures, bytes=sizes, bytes_by_model={"classifier": 2_000})
    found = {line[0]: line[-1] for line in read(write_report(folder)).table("What", "When", "Bytes")}
    assert "prototypes" not in found and found["generated rows, to other silos"] == "4 kB"
    assert found["gradients of generated rows, back"] == "3 kB"
    assert found["all else, such as handshake, losses and scores"] == "1 kB"


@pytest.mark.parametrize("figures", [{}, {"silo-0": {"something": 1.0}}])
def test_runs_that_generate_nothing_have_no_such_section(tmp_path: Path, figures: dict[str, object]) -> None:
    page = read(write_report(make_run(tmp_path / "run", THREE, silo_figures=figures)))
    assert "Generated neighbours" not in page.text


def test_a_run_tells_all_of_it(tmp_path: Path) -> None:
    options = ("--method", "feddep", "--set", "phase.encode.epochs=1", "--set", "phase.encode.exchange.clusters=3")
    succeed(*SMALL, *options, "--out", tmp_path / "run")
    told = metrics(tmp_path / "run")
    assert list(told["silo_figures"]) == ["silo-0", "silo-1"]
    for each in told["silo_figures"].values():
        assert each["prototypes"] + each["merged_groups"] == 3 and each["hidden_neighbours"] > 0
    sent = sum(each["prototypes"] for each in told["silo_figures"].values())
    assert told["bytes"]["prototypes"] == sent * 8 * 4  # one receiver, eight numbers of four bytes
    assert told["bytes_by_model"]["generator"] + told["bytes_by_model"]["classifier"] == told["bytes"]["parameters"]
    assert "Generated neighbours" in (tmp_path / "run" / "report.html").read_text()
