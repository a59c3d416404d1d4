"""An audit of a run whose rows cross to be scored alone: training has no halo, and what left is counted with halos."""

import json
from pathlib import Path

import pytest

from isthmus.audit.findings import FEATURES
from tests.helpers.command import SMALL, succeed


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("score", ["across", "own,across"])
def test_rows_that_left_to_be_scored_give_features_away(score: str, tmp_path: Path) -> None:
    succeed(*SMALL, "--method", "fedavg", "--set", f"score={score}", "--set", "train.lr=0.1", "--out", tmp_path / "run")
    found = json.loads(succeed("audit", tmp_path / "run", "--json", "--deepest", 0, "--sigma", "0").out)
    attack = next(each for each in found["attacks"] if each["attack"] == FEATURES and not each["what_if"])
    assert attack["layer"] == 0 and attack["targets"] > 0
    assert attack["got"] < 1e-6 * attack["guess"]  # only where rows are matched with the nodes that they are of
