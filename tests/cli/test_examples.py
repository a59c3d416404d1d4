"""The examples run as they stand."""

import os
import re
import runpy
import shlex
from pathlib import Path

import pytest

from isthmus.nn import LAYERS, MODELS
from tests.helpers.command import succeed
from tests.helpers.reports import read

EXAMPLES = Path(__file__).parents[2] / "examples"
TestGated = runpy.run_path(str(EXAMPLES / "own_layer.py"))["TestGated"]  # the contract, for the example's own layer


def test_own_graph_gains_from_what_lies_beyond_the_boundary() -> None:
    scores = runpy.run_path(str(EXAMPLES / "own_graph.py"))["main"]()
    assert scores["centralised"] > scores["local"] + 0.05


def test_own_layer_trains_under_its_own_name() -> None:
    try:
        result = runpy.run_path(str(EXAMPLES / "own_layer.py"))["main"]()
        assert result.training.stage.site.net.config.name == "gated"
        losses = [line["loss"] for line in result.history]
        assert losses[-1] < losses[0]
    finally:
        LAYERS.pop("gated", None)
        MODELS.pop("gated", None)


@pytest.mark.usefixtures("no_report")
def test_an_officer_has_something_to_sign_after_five_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the walk, on data that is generated with another seed than the recipe's."""
    monkeypatch.chdir(tmp_path)
    os.symlink(EXAMPLES / "officer", "officer")
    text = (EXAMPLES / "officer" / "walk.sh").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.startswith("isthmus ")]
    assert len(lines) == 5 and "in five commands" in text
    for line in lines:
        for name, value in (("here", "officer"), ("out", "walked"), ("seed", "11")):
            line = line.replace(f"${name}", value)
        Path("walked").mkdir(exist_ok=True)
        succeed(*shlex.split(line)[1:])
    pages = [read(tmp_path / "walked" / f"{when}.html") for when in ("before", "after")]
    for page in pages:
        assert page.text.count("Name and office") == page.text.count("Place and date") == 3
        assert "to find accounts that launder money" in page.text and "90 days after the run" in page.text
        (digest,) = {row[1] for row in page.table("File", "SHA-256") if row[0] == "config.toml"}
        assert re.fullmatch("[0-9a-f]{64}", digest)
    assert pages[0].table("File", "SHA-256")[0] == pages[1].table("File", "SHA-256")[0]
    assert "was deleted (20" in pages[1].text and "features of nodes, error" in pages[1].text
    assert [row[:3] for row in pages[0].table("What", "Computed from")] == [
        row[:3] for row in pages[1].table("What", "Computed from")
    ]
