"""Attribute inference from prototypes: a group of one node is that node, and a group of many hides its members."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.audit.attacks import Scene
from isthmus.audit.context import Context
from isthmus.audit.findings import FEATURES, MEANS
from isthmus.audit.journal import GroupedNodes, Journal
from isthmus.audit.prototypes import features_from_prototypes, infer
from isthmus.audit.request import AuditRequest
from isthmus.audit.row_attacks import Adversary
from isthmus.audit.watching import Watch
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.testing.runs import open_of, small_silos
from tests.helpers.command import succeed

RUN = (
    "run", "--data", "blocks", "--silos", 3, "--split", "random", "--epochs", 4, "--method", "feddep",
    "--set", "data.nodes=240", "--set", "data.degree=4", "--set", "data.features=6", "--set", "data.classes=3",
    "--set", "model.hidden=12", "--set", "phase.encode.epochs=3", "--set", "exchange.smallest=1",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_reports() -> Any:
    """Drawing takes longer than training on such graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isthmus.commands.run.write_report", lambda folder: folder.path)
        yield


def audited(folder: Path, clusters: int, *options: str | int) -> dict[str, Any]:
    succeed(*RUN, "--set", f"exchange.clusters={clusters}", *options, "--out", folder)
    found: dict[str, Any] = json.loads(succeed("audit", folder, "--json").out)
    return found


def from_prototypes(found: dict[str, Any], attack: str) -> list[dict[str, Any]]:
    return [each for each in found["attacks"] if (each["attack"], each["kind"]) == (attack, "prototypes")]


@pytest.mark.parametrize(("depth", "most"), [(0, 0.2), (2, 0.8)])
def test_groups_of_one_are_recovered_and_groups_of_many_are_not(depth: int, most: float, tmp_path: Path) -> None:
    """Depth 0 groups features themselves; behind two layers a row holds its neighbours' features too."""
    layers = ("--set", f"models.encoder.depth={depth}")
    alone, many = (audited(tmp_path / str(clusters), clusters, *layers) for clusters in (100, 2))
    [one] = from_prototypes(alone, FEATURES)
    assert (one["targets"], one["details"]) == (240, {"smallest": 1.0, "largest": 1.0})
    assert one["ratio"] < most and alone["attack_error"] == one["ratio"]
    [mean] = from_prototypes(alone, MEANS)
    assert mean["got"] == pytest.approx(one["got"]) and (mean["unit"], mean["targets"]) == ("groups", 240)
    large = [each for each in from_prototypes(many, FEATURES) if each["details"]["smallest"] >= 10]
    assert large and all(each["ratio"] > 0.75 and each["ratio"] > one["ratio"] for each in large)
    [mean] = from_prototypes(many, MEANS)
    assert mean["ratio"] < 0.6 < many["attack_error"]  # of groups something is known, of their members hardly


def scene_of(matrix: torch.Tensor) -> tuple[Scene, torch.Tensor]:
    """A federation whose rows are a linear map of its features, two nodes a group; and the features."""
    method = compose(catalogue.get("feddep"), {"phase": {"encode": {"epochs": 1}}})
    training = open_of(method, small_silos(3, 24), "sage-gcn")
    context = Context(training)
    x, journal = context.features(torch.arange(24)), Journal(torch.zeros(0, dtype=torch.int64))
    group = (torch.arange(24) % 8) // 2
    rows = x @ matrix
    journal.grouped = GroupedNodes(rows, group)
    journal.prototypes = {
        silo: torch.stack([rows[8 * silo : 8 * silo + 8][2 * g : 2 * g + 2].mean(0) for g in range(4)])
        for silo in range(3)
    }
    return Scene(Adversary(context), training, journal, AuditRequest(), Watch()), x


def test_means_are_exact_where_rows_are_a_linear_map_of_features() -> None:
    """Any invertible one; then the error of a member is its distance from the mean of its group, and a guess is not."""
    matrix = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    scene, x = scene_of(matrix)
    assert scene.journal.grouped is not None
    inferred = infer(scene, scene.journal.grouped, scene.journal.prototypes)
    pairs = x.reshape(12, 2, 5)
    torch.testing.assert_close(inferred.true, pairs.mean(1))
    torch.testing.assert_close(inferred.found, pairs.mean(1), rtol=1e-4, atol=1e-4)  # but for the ridge
    means, members = features_from_prototypes(scene)
    assert means.ratio is not None and means.ratio < 1e-6 and means.targets == 12
    expected = float((pairs - pairs.mean(1, keepdim=True)).square().mean())
    assert members.got == pytest.approx(expected, rel=1e-3) and members.targets == 24
    apart = [(x[8 * s : 8 * s + 8] - torch.cat([x[: 8 * s], x[8 * s + 8 :]]).mean(0)).square() for s in range(3)]
    assert members.guess == pytest.approx(float(torch.cat(apart).mean()))
    assert "in groups of 2 nodes" in members.note


def test_rows_that_tell_nothing_are_no_better_than_a_guess() -> None:
    scene, _ = scene_of(torch.zeros(5, 5, dtype=torch.float64))
    for finding in features_from_prototypes(scene):
        assert finding.ratio == pytest.approx(1.0)


def test_one_silo_has_nobody_to_attack_it(tmp_path: Path) -> None:
    succeed(*RUN, "--silos", 1, "--out", tmp_path / "run")
    found = json.loads(succeed("audit", tmp_path / "run", "--json").out)
    assert found["attack_error"] is None and not from_prototypes(found, FEATURES)
