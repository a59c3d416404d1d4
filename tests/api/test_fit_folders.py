"""``fit(..., out=...)`` leaves the run folder that the command line leaves, on which its commands work."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.silo import Silo
from isthmus.methods.method import Phase
from isthmus.methods.sync.fedavg import FedAvg
from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder
from tests.helpers.command import losses, refuse, succeed
from tests.helpers.reports import read
from tests.helpers.small import small_graph

GRAPH = small_graph(30, 140)
FEW = {"train.epochs": 3, "model.hidden": 8}
METHOD = "fedavg+fwd-le"


@pytest.fixture
def silos() -> list[Silo]:
    return split_graph(GRAPH, torch.arange(30) % 3, 3)


def crossed(folder: RunFolder) -> list[dict[str, Any]]:
    """The ledger without schemas: parts have names of columns, which silos of a bare graph do not."""
    return [line for line in folder.ledger.to_pylist() if line["kind"] != "schema"]


def test_the_folder_is_that_of_the_command_line(silos: list[Silo], tmp_path: Path) -> None:
    """The same silos, once given and once as parts: the same curve, model, ledger and scores."""
    result = isthmus.fit(silos, METHOD, dtype="float64", settings=FEW, out=tmp_path / "given", keep_data=True)
    words = [f"--set={key}={value}" for key, value in FEW.items()]
    options = ("--method", METHOD, "--model", "sage", "--dtype", "float64")
    succeed("run", "--data", tmp_path / "given" / "parts", *options, *words, "--out", tmp_path / "run")
    given, run = RunFolder.open(tmp_path / "given"), RunFolder.open(tmp_path / "run")
    for name in ("metrics.jsonl", "model.safetensors"):
        assert (given.path / name).read_bytes() == (run.path / name).read_bytes()
    assert crossed(given) == crossed(run)
    for key in ("test", "scored", "epsilon", "silo_nodes"):
        assert given.metrics[key] == run.metrics[key]
    files = {path.name for path in (tmp_path / "run").iterdir()} - {".lock"}
    assert files <= {path.name for path in (tmp_path / "given").iterdir()}
    assert given.metrics["test"]["accuracy"] == pytest.approx(result.test.as_dict()["accuracy"])
    assert resolve(given.config).digest() == resolve(run.config).digest()
    plain = isthmus.fit(silos, METHOD, dtype="float64", settings=FEW)
    assert [line["loss"] for line in plain.history if "valid" not in line] == losses(tmp_path / "given")


def test_commands_work_on_it(silos: list[Silo], tmp_path: Path) -> None:
    for name in ("fedavg", METHOD):
        isthmus.fit(silos, name, settings=FEW, out=tmp_path / name, keep_data=name == METHOD)
    succeed("compare", tmp_path / "fedavg", tmp_path / METHOD, "--out", tmp_path / "both")
    assert "2 runs on given to isthmus.fit, parts" in read(tmp_path / "both" / "comparison.html").text
    succeed("report", tmp_path / "fedavg")
    read(tmp_path / "fedavg" / "report.html")
    parts = tmp_path / METHOD / "parts"
    succeed("score", tmp_path / "fedavg", "--data", parts, "--silo", "silo-0", "--out", tmp_path / "scores.csv")
    succeed("audit", tmp_path / METHOD, "--targets", 2)


def test_what_cannot_be_replayed_is_said(silos: list[Silo], tmp_path: Path) -> None:
    isthmus.fit(silos, METHOD, settings=FEW, out=tmp_path / "run")
    assert any(
        "given as Python objects and are not kept" in note for note in RunFolder.open(tmp_path / "run").metrics["notes"]
    )
    assert "keep_data=True" in read(tmp_path / "run" / "report.html").text
    refuse("audit", tmp_path / "run", says=["given to isthmus.fit", "keep_data=True"])
    refuse("run", tmp_path / "run" / "config.toml", "--out", tmp_path / "again", says=["given to isthmus.fit"])
    own = isthmus.Method("my-own", "FedAvg under a name of its own", "", (Phase(sync=FedAvg()),))
    isthmus.fit(silos, own, settings=FEW, out=tmp_path / "own", keep_data=True)
    notes = RunFolder.open(tmp_path / "own").metrics["notes"]
    assert (
        [note for note in notes if "Python objects" in note]
        == [note for note in notes if "@register_part" in note]
        != []
    )


def test_a_folder_is_neither_overwritten_nor_left_half_made(silos: list[Silo], tmp_path: Path) -> None:
    isthmus.fit(silos, settings=FEW, out=tmp_path / "run")
    with pytest.raises(IsthmusError, match="already holds a run"):
        isthmus.fit(silos, settings=FEW, out=tmp_path / "run")
    isthmus.fit(silos, settings={**FEW, "train.epochs": 2}, out=str(tmp_path / "run"), overwrite=True)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["epochs"] == 2
    with pytest.raises(IsthmusError, match="say in which"):
        isthmus.fit(silos, settings=FEW, keep_data=True)
    with pytest.raises(IsthmusError, match="train.metric"):
        isthmus.fit(silos, settings={**FEW, "train.metric": "nonsense"}, out=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_merged_runs_keep_the_silos_apart(silos: list[Silo], tmp_path: Path) -> None:
    isthmus.fit(silos, "centralised", settings=FEW, out=tmp_path / "run", keep_data=True)
    assert sorted(path.name for path in (tmp_path / "run" / "parts").iterdir() if path.is_dir()) == [
        "silo-0",
        "silo-1",
        "silo-2",
    ]
    assert RunFolder.open(tmp_path / "run").metrics["merged"]
