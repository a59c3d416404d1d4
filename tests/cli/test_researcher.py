"""The researcher's walk: one command gives the table of a paper, on data of other seeds and in a smaller size."""

import csv
import re
from pathlib import Path

import pytest

from isthmus.studies import grid_page
from isthmus.studies.grid import read_study
from tests.helpers.command import succeed

WALK = Path(__file__).parents[2] / "examples" / "researcher"


@pytest.mark.usefixtures("no_report")
def test_one_command_gives_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_page, "scores", lambda findings: "")  # drawing takes longer than training
    smaller = ("--epochs", 2, "--set", "data.nodes=90", "--set", "data.degree=4", "--set", "model.hidden=4")
    other = (
        "--seeds",
        2,
        "--set",
        "seed=70",
        "--set",
        "data.classes=3",
        "--set",
        "data.features=4",
    )
    said = succeed("study", WALK / "grid.toml", *smaller, *other, "--out", tmp_path).out
    assert "table.tex" in said
    text = (tmp_path / "table.tex").read_text()
    heads = [line for line in text.splitlines() if line.strip().startswith("method &")]
    assert heads == [r"    method & Louvain & random & label-skewed \\"] * 4
    titles = re.findall(r"caption{Three methods on three splits, (.*?)\.", text)
    assert titles == ["own edges", "across", "MB to train", "MB to score across"]
    for name in ("fedavg", "optimes", "exact"):
        rows = re.findall(rf"^    {name} &.*$", text, re.MULTILINE)
        assert len(rows) == 4 and all(len(re.findall(r"[0-9.]+ \$\\pm\$ [0-9.]+", row)) == 3 for row in rows[:2])
    assert text.count(r"\textbf{") >= 6  # a best method in every column of scores
    with open(tmp_path / "table.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 9 * 4 and {line["seeds"] for line in lines} == {"2"}
    assert (tmp_path / "louvain-fedavg" / "seed-71" / "metrics.json").is_file()


def test_the_grid_is_what_its_page_says() -> None:
    study = read_study(WALK / "grid.toml")
    assert study.seeds == 5 and len(study.rows) == 9 and study.axes == ("split", "method")
    page = (WALK / "README.md").read_text()
    assert len(re.findall(r"```sh\n(isthmus [^\n]*)\n```", page)) == 1  # one command
