"""Names of silos, columns and classes are a user's own words: whatever they are, commands take them and show them."""

import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from tests.helpers.command import isthmus, metrics, succeed

NAMES = ["🏦 Bank", "con", ".hidden dot", "[red]x[red]", "$frac$", "n" * 200]
COLUMNS = ["a b", "<b>c", "[/red]", "$\\frac", "{k}", "%s", "../p", "🏦"]
CLASSES = ["[/b]", "ok :smile:"]
OWN = 8  # nodes of a silo


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Silos of eight nodes each in a circle of all nodes, with columns and classes of odd names."""
    root = tmp_path_factory.mktemp("odd") / "parts"
    whole, every = OWN * len(NAMES), ",".join(COLUMNS)
    for number, name in enumerate(NAMES):
        (root / name).mkdir(parents=True)
        (root / name / "silo.toml").write_text(tomli_w.dumps({"name": name}))
        mine = range(number * OWN, (number + 1) * OWN)
        rows = [f"{i},{CLASSES[i // 2 % 2]},{','.join(str((i * k) % 7) for k in range(1, 9))}\n" for i in mine]
        (root / name / "nodes.csv").write_text(f"id,label,{every}\n{''.join(rows)}")
        ends = [(i, (i + 1) % whole) for i in range(whole)]
        far = {i: "" if i in mine else NAMES[i // OWN] for i in range(whole)}
        edges = [f"{a},{b},{far[a] or far[b]}\n" for a, b in ends if a in mine or b in mine]
        (root / name / "edges.csv").write_text(f"source,target,owner\n{''.join(edges)}")
    (root / "federation.toml").write_text(tomli_w.dumps({"silos": NAMES}))
    return root


@pytest.fixture(scope="module")
def run(parts: Path) -> Path:
    """A run of such silos on one host."""
    said = succeed(
        "run", "--data", parts, "--epochs", 1, "--set", "model.hidden=4", "--set", "data.scale=none", "--set",
        "train.top=3", "--out", parts.parent / "run",
    )  # fmt: skip
    assert "'[/b]'" in said.out and "[red]x[red]" in said.out
    return parts.parent / "run"


def test_tables_show_names_as_they_are(parts: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.cli.shared.console._width", 400)
    checked = succeed("check", parts).out
    assert all(name in checked for name in (*NAMES, *COLUMNS))
    assert set(metrics(run)["silo_nodes"]) == set(NAMES) and metrics(run)["labels"] == CLASSES
    for command in (("compare", run, run, "--out", run.parent / "compared"), ("disclose", run), ("report", run)):
        assert succeed(*command).out
    assert "[red]x[red]" in succeed("score", run, "--data", parts, "--silo", "[red]x[red]").out


def test_drawing_a_name_in_any_script_warns_of_nothing(run: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "isthmus", "report", str(run)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.hosts
def test_hosts_leave_each_party_a_folder_of_its_own(parts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeed("run", "--data", parts, "--epochs", 1, "--hosts", 3, "--set", "model.hidden=4", "--out", run)
    assert len(list((run / "parties").iterdir())) == 3
    assert all(path.resolve().is_relative_to(run) for path in run.rglob("*"))
    assert isthmus("report", run).code == isthmus("disclose", run).code == 0


@pytest.mark.usefixtures("no_report")
def test_values_that_cannot_be_folders_leave_numbers_for_names(tmp_path: Path) -> None:
    values = ["Bonn", "bonn", "名" * 90]
    (tmp_path / "nodes.csv").write_text(
        "id,label,bank\n" + "".join(f"{at},{at // 3 % 2},{values[at % 3]}\n" for at in range(30))
    )
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{at},{(at + 1) % 30}\n" for at in range(30)))
    said = succeed("split", tmp_path, "--split", "attribute:bank", "--out", tmp_path / "parts").out
    assert "silo-2" in said and "Bonn" not in said
    data = ("--data", tmp_path, "--split", "attribute:bank")
    said = succeed("run", *data, "--epochs", 1, "--out", tmp_path / "run").out
    assert "Silos are numbered, since not every value of 'bank' can be the name of a folder" in said
