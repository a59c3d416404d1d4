"""One training scored in several ways: each way selects for itself, and none changes what another finds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TEST, VALID, Graph
from isthmus.graph.merged import merge
from isthmus.train.judge import Verdict
from isthmus.train.result import Result
from tests.helpers.command import SMALL, refuse, succeed
from tests.helpers.small import losses, run_method, run_parts, small_graph


def two_classes() -> Graph:
    """The small graph with a rarer class and another one."""
    graph = small_graph(150, 600)
    assert graph.y is not None
    return replace(graph, y=(graph.y == 0).long(), schema=replace(graph.schema, labels=("other", "rare")))


GRAPH, THREE = small_graph(150, 600), torch.arange(150) % 3
TWO_CLASSES = two_classes()


def scored(name: str, how: str, **options: Any) -> Result:
    return run_method(name, GRAPH, THREE, 3, "sage", {"score": how}, epochs=8, **options)


def same(a: Verdict, b: Verdict) -> bool:
    return a.best_epoch == b.best_epoch and torch.equal(a.test.silos, b.test.silos)


@pytest.mark.parametrize("name", ["local", "fedavg", "optimes", "ce-fedgnn", "swift-fedgnn", "sync-sgd+fwd-bwd-le"])
def test_each_way_finds_what_it_finds_alone(name: str) -> None:
    both = scored(name, "own,across")
    assert [verdict.how for verdict in both.verdicts] == ["own", "across"]
    for verdict in both.verdicts:
        alone = scored(name, verdict.how)
        assert losses(alone) == losses(both)
        assert same(alone.verdicts[0], verdict)
    seen = [line["scored"] for line in both.history if "valid" in line]
    assert any(line["own"] != line["across"] for line in seen)


def test_the_run_ends_with_the_parameters_of_its_first_way() -> None:
    both, own = scored("fedavg", "own,across"), scored("fedavg", "own")
    for name, tensor in own.training.learner.everything().items():
        assert torch.equal(tensor, both.training.learner.everything()[name]), name


def test_ways_are_named_once() -> None:
    with pytest.raises(IsthmusError, match="each once"):
        scored("fedavg", "own,own")
    with pytest.raises(IsthmusError, match="score.*beyond"):
        scored("fedavg", "own,beyond")


@pytest.mark.parametrize("name", ["local", "fedavg", "sync-sgd", "centralised"])
def test_a_score_that_is_never_defined_selects_nothing(name: str) -> None:
    """PR-AUC needs both classes. Without positives in validation all methods keep the last parameters, and say so."""
    some = (TWO_CLASSES.split == VALID) & (TWO_CLASSES.y == 1)
    assert TWO_CLASSES.y is not None and TWO_CLASSES.split is not None
    graph = replace(TWO_CLASSES, split=torch.where(some, 0, TWO_CLASSES.split.long()).to(torch.int8))
    silos = split_graph(graph, THREE, 3)
    result = run_parts(name, [merge(silos)] if name == "centralised" else silos, epochs=6)
    assert set(result.best_epoch) == {6}
    for key, tensor in result.training.learner.everything().items():
        assert torch.equal(tensor, result.last[key])
    assert any("nothing could be selected" in note for note in result.training.federation.notes)


def test_silos_without_a_score_are_left_out_of_the_mean_and_counted() -> None:
    """A silo whose test nodes have one class alone has no PR-AUC."""
    assert TWO_CLASSES.y is not None and TWO_CLASSES.split is not None
    out = (TWO_CLASSES.split == TEST) & (TWO_CLASSES.y == 1) & (THREE == 1)
    graph = replace(TWO_CLASSES, split=torch.where(out, 0, TWO_CLASSES.split.long()).to(torch.int8))
    result = run_parts("fedavg", split_graph(graph, THREE, 3), epochs=2)
    [note] = [note for note in result.training.federation.notes if "is not defined" in note]
    assert note.startswith("Test pr_auc of silo-1 is not defined") and note.endswith("over the other 2 of 3 silos.")
    whole = run_parts("fedavg", split_graph(TWO_CLASSES, THREE, 3), epochs=2)
    assert not any("is not defined" in note for note in whole.training.federation.notes)


def test_predictions_are_pooled_in_one_process_without_a_message() -> None:
    result = scored("fedavg", "own")
    assert result.test.pooled is not None and "scores" not in result.bytes
    accuracy = float((result.test.silos[:, 0] * result.test.counts).sum() / result.test.counts.sum())
    assert result.test.pooled_dict()["accuracy"] == pytest.approx(accuracy)
    assert scored("fedavg", "own", pooled=True).bytes["scores"] > 0


def test_a_merged_run_is_scored_by_the_silos_it_would_have_had() -> None:
    """The exact method and centralised training have equal models, and so equal scores, silo by silo and pooled."""
    silos = split_graph(TWO_CLASSES, THREE, 3)
    whole = run_parts("centralised", [merge(silos)], "sage", epochs=6)
    exact = run_parts("sync-sgd+fwd-bwd-le", silos, "sage", epochs=6)
    assert whole.test.members == exact.test.members == ("silo-0", "silo-1", "silo-2")
    torch.testing.assert_close(whole.test.silos, exact.test.silos, rtol=1e-10, atol=0)
    torch.testing.assert_close(whole.test.overall, exact.test.overall, rtol=1e-10, atol=0)
    assert whole.test.pooled is not None and exact.test.pooled is not None
    torch.testing.assert_close(whole.test.pooled, exact.test.pooled, rtol=1e-10, atol=0)
    assert abs(whole.test.overall[0] - whole.test.pooled[0]) > 1e-3  # the two kinds of number do differ


def test_metrics_have_every_way_with_what_it_costs(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    succeed(*SMALL, "--method", "fedavg", "--set", "score=own,across", "--out", out)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["score"] == "own" and list(metrics["scored"]) == ["own", "across"]
    assert metrics["test"] == metrics["scored"]["own"]["test"]
    assert metrics["scored"]["across"]["bytes"] > 10 * metrics["scored"]["own"]["bytes"] > 0
    assert "Scored in several ways" in (tmp_path / "run" / "report.html").read_text()
    assert "across" in refuse(*SMALL, "--set", "score=acros")


def test_averaged_parameters_with_private_parts_are_scored_across(tmp_path: Path) -> None:
    """Rows leave when scores are made, and with them the parameters that made them are kept for an audit."""
    private = ("--set", "sync.private=head", "--set", "score=across")
    succeed(*SMALL, "--method", "fedavg", *private, "--out", str(tmp_path / "run"))
    assert (tmp_path / "run" / "released.safetensors").is_file()
