"""The score of a federation: a mean over silos, by seeds or with equal weights, or of all predictions together."""

import json
from pathlib import Path

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.train.result import Result
from tests.helpers.command import SMALL, refuse, succeed
from tests.helpers.small import run_method, small_graph

UNEVEN = (torch.arange(60) > 9).long() + (torch.arange(60) > 22)  # silos of 10, 13 and 37 nodes


def trained(seed: int = 0, **training: object) -> Result:
    return run_method("fedavg", small_graph(60, 240, seed), UNEVEN, 3, **training)


def test_silos_count_by_their_seeds_or_alike() -> None:
    by_seeds, alike = trained(), trained(average="silos")
    counts = by_seeds.test.weights
    assert counts.max() >= 3 * counts.min() > 0 and alike.test.weights.tolist() == [1.0, 1.0, 1.0]
    assert torch.allclose(by_seeds.test.overall, (by_seeds.test.silos * counts[:, None]).sum(0) / counts.sum())
    assert torch.allclose(alike.test.overall, alike.test.silos.mean(0))
    assert not torch.allclose(by_seeds.test.overall, alike.test.overall)


def test_selection_uses_the_same_mean() -> None:
    """The selected epoch is the first whose mean over silos is the best."""
    for average in ("seeds", "silos"):
        result = trained(average=average, epochs=12)
        seen = [line["valid"]["accuracy"] for line in result.history if "valid" in line]
        each = [line["silo_valid"] for line in result.history if "valid" in line]
        assert result.valid is not None
        means = torch.tensor(each, dtype=torch.float64) @ result.valid.weights / result.valid.weights.sum()
        assert seen == pytest.approx(means.tolist())
        assert result.best_epoch == [1 + int(means.argmax())]


def test_selection_by_another_metric() -> None:
    """``train.metric`` comes first everywhere and selects the best epoch, but changes no score."""
    usual, by_f1 = trained(4, epochs=12, pooled=True), trained(4, epochs=12, pooled=True, metric="macro_f1")
    seen = [line["valid"] for line in by_f1.history if "valid" in line]
    assert seen == [line["valid"] for line in usual.history if "valid" in line]
    assert by_f1.test.names == ("macro_f1", "accuracy") and list(by_f1.test.pooled_dict()) == ["macro_f1", "accuracy"]
    f1 = [line["macro_f1"] for line in seen]
    assert by_f1.best_epoch == [1 + f1.index(max(f1))] != usual.best_epoch
    each = [line["silo_valid"] for line in by_f1.history if "valid" in line]
    assert by_f1.valid is not None
    assert each[by_f1.best_epoch[0] - 1] == pytest.approx(by_f1.valid.silos[:, 0].tolist())
    with pytest.raises(IsthmusError, match="train.metric.*macro_f1"):
        trained(metric="f1")


def test_a_silo_without_seeds_does_not_count() -> None:
    graph = small_graph(60, 240)
    empty = run_method("fedavg", graph, UNEVEN, 4, average="silos")
    assert empty.test.weights.tolist() == [1.0, 1.0, 1.0, 0.0]
    assert torch.allclose(empty.test.overall, empty.test.silos[:3].mean(0))


def test_pooled_scores_stand_beside_the_mean() -> None:
    apart, pooled = trained(), trained(pooled=True)
    assert pooled.test.as_dict() == apart.test.as_dict()
    assert pooled.test.pooled_dict() == apart.test.pooled_dict()  # by the server, as well as in one process
    # Accuracy over all seeds is the mean by seeds; macro F1 is not.
    both = pooled.test.as_dict(), pooled.test.pooled_dict()
    assert both[0]["accuracy"] == pytest.approx(both[1]["accuracy"])
    assert both[0]["macro_f1"] != pytest.approx(both[1]["macro_f1"])


def test_metrics_json_carries_both(tmp_path: Path) -> None:
    run = (*SMALL, "--set", "train.pooled=true", "--set", "train.average=silos")
    said = succeed(*run, "--out", tmp_path / "run").out
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    for split in ("valid", "test"):
        assert set(found[f"{split}_pooled"]) == {"accuracy", "macro_f1"}
        mean = sum(silo["accuracy"] for silo in found[split]["silos"].values()) / 3
        assert found[split]["accuracy"] == pytest.approx(mean)
    assert f"{found['test_pooled']['macro_f1']:.4f}" in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Means over silos, all alike." in page and "accuracy, pooled" in page
    refuse(*SMALL, "--set", "train.average=nodes", says=["train.average", "seeds, silos"])


def test_several_seeds_average_pooled_scores_too(tmp_path: Path) -> None:
    succeed(*SMALL, "--set", "train.pooled=true", "--seeds", 2, "--out", tmp_path / "run")
    each = [json.loads((tmp_path / f"run/seed-{s}/metrics.json").read_text())["test_pooled"] for s in (0, 1)]
    whole = json.loads((tmp_path / "run/metrics.json").read_text())
    assert whole["test_pooled"]["accuracy"] == pytest.approx((each[0]["accuracy"] + each[1]["accuracy"]) / 2)
    assert "test_pooled_std" in whole
