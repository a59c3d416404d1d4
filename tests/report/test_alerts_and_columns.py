"""The report shows alerts with their curve, and lists every column with what it became."""

import re
from pathlib import Path

import pytest

from isthmus.cli.alerts import alerts_table
from tests.cli.test_odd_inputs import NODES, column, folder
from tests.helpers.command import metrics, succeed

EDGES = "id,source,target,time,amount,label,memo\n" + "".join(
    f"e{i},n{i % 12},n{(i + 5) % 12},{i * 7200},{'' if i == 3 else i},{int(i % 4 == 0)},m{i}\n" for i in range(60)
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on transactions of two silos, with its report."""
    root = tmp_path_factory.mktemp("alerts")
    data = folder(root / "data", column(NODES, 1, [""] * 12).replace(",label", ",empty"), EDGES)
    options = ("--silos", 2, "--split", "random", "--epochs", 2, "--set", "model.hidden=4", "--set", "train.top=3,20")
    succeed("run", "--data", data, "--set", "exchange.halo=placeholder", *options, "--out", root / "run")
    return root / "run"


def test_the_report_has_figures_thresholds_and_a_curve(run: Path) -> None:
    page, told = (run / "report.html").read_text(), metrics(run)["alerts"]
    assert told["class"] == "1" and set(told["silos"]) == {"silo-0", "silo-1"}
    section = page[page.index(">Alerts</h2>") : page.index(">Columns</h2>")]
    pooled = told["pooled"]
    for words in ("the highest 3", f"10 a day, on {pooled['daily']['days']} days", "the best F1", "base rate", "<svg"):
        assert words in section, words
    printed = alerts_table(metrics(run))
    assert printed is not None
    looked_at = [str(cell) for cell in printed.columns[2].cells]
    assert any("10 a day in validation: " in cell for cell in looked_at), looked_at
    shown = f"{100 * pooled['base_rate']:.2f} %"
    assert shown in section and pooled["scored"] == sum(each["scored"] for each in told["silos"].values())


def test_the_report_lists_every_column_with_what_it_became(run: Path) -> None:
    page = (run / "report.html").read_text()
    section = re.sub(r"<[^>]+>", "|", page[page.index(">Columns</h2>") : page.index(">How training went</h2>")])
    for words in (
        "city",
        "a feature for each word (Bonn, Rome)",
        "and one that marks missing cells",
        "memo",
        "60 different",
    ):
        assert words in section, words
