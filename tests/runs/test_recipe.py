"""Values that ``--set`` is given are read as people write them."""

from pathlib import Path
from typing import Any

import pytest

from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder
from isthmus.runs.recipe import parse_set
from tests.helpers.command import succeed


@pytest.mark.parametrize(
    ("text", "value"),
    [(".5", 0.5), ("-.5e-3", -0.0005), ("1.", 1.0), ("1e-3", 0.001), ("10,5", [10, 5]), (".", "."), ("007", "007")],
)
def test_numbers_are_read_however_they_are_written(text: str, value: Any) -> None:
    assert parse_set([f"train.lr={text}"]) == {"train": {"lr": value}}


def test_data_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_report: None) -> None:
    """A run that was started with a relative path is replayed from any folder."""
    monkeypatch.chdir(tmp_path)
    few = ["--set", "data.nodes=64", "--set", "data.degree=3", "--set", "data.features=4", "--set", "data.classes=3"]
    succeed("split", "blocks", "--silos", 2, *few, "--out", "parts")
    brief = ("--method", "fedavg+fwd-le", "--epochs", 1, "--set", "model.hidden=4")
    succeed("run", "--data", "parts", *brief, "--out", "run")
    assert f'name = "{tmp_path / "parts"}"' in (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    succeed("audit", tmp_path / "run", "--targets", 2)
    assert RunFolder.open(tmp_path / "run").metrics["data"].endswith("parts")
    assert resolve({"data": {"name": "blocks"}}).data.name == "blocks"
