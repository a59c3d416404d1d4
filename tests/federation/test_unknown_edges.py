"""Where nobody knows of edges between silos, nothing about them crosses, and what reads them is refused."""

import pytest
import torch

from isthmus.api import fit
from isthmus.core.errors import IsthmusError
from isthmus.graph.cut import split_graph
from isthmus.graph.silo import Silo, keep_edges
from isthmus.methods import catalogue
from isthmus.runs.config import resolve
from tests.helpers.small import owners, small_graph

SHORT = {"train.epochs": 3, "model.hidden": 8}
READERS = ["sync-sgd+fwd-bwd-le", "optimes", "ce-fedgnn", "fedgcn", "swift-fedgnn", "centralised"]


def silos() -> list[Silo]:
    return split_graph(small_graph(24, 60), owners(3, 24), 3)


def settings(cross: str, score: str = "own,global") -> dict[str, object]:
    return {**SHORT, "data.cross": cross, "score": score}


def test_nothing_about_unknown_edges_crosses() -> None:
    """Not one byte more or less than where the edges do not exist at all."""
    nowhere = [keep_edges(silo, ~silo.crosses) for silo in silos()]
    unknown = fit(silos(), "fedavg", settings=settings("unknown", "own"))
    absent = fit(nowhere, "fedavg", settings=settings("known", "own"))
    known = fit(silos(), "fedavg", settings=settings("known", "own"))
    assert unknown.bytes == absent.bytes
    assert unknown.bytes["ids"] < known.bytes["ids"]
    assert all(silo.h == 0 for silo in unknown.training.federation.silos)


def test_training_on_own_edges_does_not_ask_whether_others_are_known() -> None:
    known, unknown = (fit(silos(), "fedavg", settings=settings(cross)) for cross in ("known", "unknown"))
    for a, b in zip(known.verdicts, unknown.verdicts, strict=True):
        assert torch.equal(a.test.overall, b.test.overall)


def test_the_merged_graph_has_edges_that_nobody_knows() -> None:
    """A simulation knows them: the score on the merged graph is another one than without them."""
    nowhere = [keep_edges(silo, ~silo.crosses) for silo in silos()]
    scores = [fit(parts, "fedavg", settings=settings("unknown", "global")) for parts in (silos(), nowhere)]
    logits = [result.training.stage.scorer.logits(3)[0] for result in scores]
    assert logits[0].shape == logits[1].shape and not torch.allclose(logits[0], logits[1])


def test_what_was_cut_off_is_counted() -> None:
    ends = sum(int(silo.crosses.sum()) for silo in silos())
    [note] = [n for n in fit(silos(), "fedavg", settings=settings("unknown")).training.federation.notes if "cut" in n]
    assert f"{ends:,} ends" in note


@pytest.mark.parametrize("name", READERS)
def test_methods_that_read_far_ends_are_refused(name: str) -> None:
    with pytest.raises(IsthmusError, match="data.cross=known"):
        resolve({"method": name, "model": {"name": "gcn"}, "data": {"cross": "unknown"}})


def test_scores_across_unknown_edges_are_refused() -> None:
    with pytest.raises(IsthmusError, match="score=own"):
        resolve({"method": "fedavg", "score": "across", "data": {"cross": "unknown"}})
    with pytest.raises(IsthmusError, match="known, unknown"):
        resolve({"method": "fedavg", "data": {"cross": "perhaps"}})


def test_the_method_says_what_is_known_unless_told() -> None:
    for name in catalogue.names():
        method = catalogue.get(name)
        assert resolve({"method": name, "model": {"name": method.model or "gcn"}}).data.cross == method.cross
