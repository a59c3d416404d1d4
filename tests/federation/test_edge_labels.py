"""Whoever has the label of a cross edge teaches it; labels stay at home, and the exact method is centralised."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isthmus.graph.cut import split_graph
from isthmus.graph.differing_edges import differing_edges
from isthmus.graph.graph import TEST, TRAIN, VALID
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo
from isthmus.train.constant import _constants
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import assert_same, losses, numbers, run_parts, small_graph

THREE = torch.arange(24) % 3
WAYS: list[dict[str, Any]] = [{}, {"messages": "past"}, {"batch": 6, "fanout": (3,)}]
EXACT = "sync-sgd+fwd-bwd-le"


def forgetting(side: str) -> list[Silo]:
    """Three silos whose labels lie on edges. Of cross edges one side has forgotten the label: each silo one in three
    of those that come in (``target``), or that go out (``source``), or some of both (``mixed``)."""
    return [_forget(silo, side) for silo in split_graph(small_graph(24, 120, edge_task=True), THREE, 3)]


def _forget(silo: Silo, side: str) -> Silo:
    assert silo.edge_y is not None
    inward = silo.edge_index[1] < silo.n
    third = silo.edge_keys % 3
    lost: Tensor = (
        silo.crosses
        & {
            "target": inward & (third == 0),
            "source": ~inward & (third == 0),
            "mixed": (inward & (third == 0)) | (~inward & (third == 1)),
        }[side]
    )
    return replace(silo, edge_y=torch.where(lost, -1, silo.edge_y))


def taught(silos: list[Silo], split: int) -> set[int]:
    """Public keys of the labelled edges of a split that some silo knows."""
    found: set[int] = set()
    for silo in silos:
        assert silo.edge_y is not None and silo.edge_split is not None
        found |= set(silo.edge_keys[(silo.edge_y >= 0) & (silo.edge_split == split)].tolist())
    return found


@pytest.mark.parametrize(
    "training", [{}, {"messages": "past"}, {"batch": 6, "fanout": (3,)}], ids=["all", "past", "sampled"]
)
@pytest.mark.parametrize("side", ["target", "source", "mixed"])
def test_the_exact_method_is_centralised_whoever_has_the_labels(side: str, training: dict[str, Any]) -> None:
    silos = forgetting(side)
    model = "gin" if training.get("messages") else "pna"
    together = run_parts("centralised", [merge(silos)], model, **training)
    apart = run_parts(EXACT, silos, model, **training)
    assert_same(together, apart)
    torch.testing.assert_close(together.test.silos, apart.test.silos, rtol=1e-9, atol=0, equal_nan=True)


@pytest.mark.parametrize("method", [EXACT, "ce-fedgnn"])
@pytest.mark.parametrize("side", ["target", "source", "mixed"])
def test_every_labelled_edge_is_taught_once(side: str, method: str) -> None:
    silos = forgetting(side)
    pools = run_parts(method, silos, "pna", epochs=1).training.stage.layout.pools
    for split in (TRAIN, VALID, TEST):
        pool = pools[split]
        weight = torch.ones(len(pool.index)) if pool.share is None else pool.share
        held: dict[int, float] = {}
        for key, share in zip(pool.keys.tolist(), weight.tolist(), strict=True):
            held[key] = held.get(key, 0.0) + share
        assert held == dict.fromkeys(taught(silos, split), 1.0)


def test_what_the_source_alone_knows_does_matter() -> None:
    """Without these labels other losses come out: the test above could fail."""
    silos = forgetting("target")
    bare = [replace(silo, edge_y=_only_inward(silo)) for silo in silos]
    assert losses(run_parts(EXACT, silos, "pna")) != losses(run_parts(EXACT, bare, "pna"))


def _only_inward(silo: Silo) -> Tensor:
    assert silo.edge_y is not None
    return torch.where(silo.edge_index[1] < silo.n, silo.edge_y, -1)


def test_labels_for_different_splits_are_counted_and_the_targets_counts() -> None:
    silos = split_graph(small_graph(24, 120, edge_task=True), THREE, 3)
    first = silos[0]
    assert first.edge_split is not None
    moved = first.crosses & (first.edge_index[0] < first.n) & (first.edge_split == TRAIN)
    changed = [replace(first, edge_split=torch.where(moved, TEST, first.edge_split.long()).to(torch.int8)), *silos[1:]]
    one, other = run_parts(EXACT, changed, "pna"), run_parts(EXACT, silos, "pna")
    assert losses(one) == losses(other)
    assert any(f"{int(moved.sum())} cross edges" in note for note in one.training.federation.notes)


def test_labels_that_contradict_each_other_are_counted() -> None:
    silos = split_graph(small_graph(24, 120, edge_task=True), THREE, 3)
    first = silos[0]
    assert first.edge_y is not None
    other = (first.crosses.nonzero().flatten())[:5]
    y = first.edge_y.clone()
    y[other] = (y[other] + 1) % 3
    [note] = differing_edges([replace(first, edge_y=y), *silos[1:]])
    assert note.startswith("5 cross edges have one label") and not differing_edges(silos)


def test_labels_do_not_travel() -> None:
    """Spoilt labels change nothing of what is told before training: marks say that a label is there, not which."""
    silos = forgetting("mixed")
    spoilt = [replace(silo, edge_y=torch.where(silo.edge_y >= 0, 0, -1)) for silo in silos]  # type: ignore[operator]
    for parts in (silos, spoilt):
        run = run_parts(EXACT, parts, "pna", epochs=1)
        assert "labels" not in run.bytes and run.bytes["ports"] > 0


@pytest.mark.parametrize("side", ["target", "source", "mixed"])
def test_constants_of_a_merged_run_are_those_of_the_silos_that_teach(side: str) -> None:
    """What a constant answer reaches is the same, silo by silo, whether silos were merged or not."""
    silos = forgetting(side)
    runs = [run_parts("centralised", [merge(silos)], "pna", epochs=1), run_parts(EXACT, silos, "pna", epochs=1)]
    found = [
        _constants(run.training.stage.scorer, run.training.wire, run.test, run.training.stage.objective.minority)
        for run in runs
    ]
    torch.testing.assert_close(*found, rtol=1e-12, atol=0)


def on_host(wire: Wire) -> list[float]:
    return losses(run_parts(EXACT, forgetting("mixed"), "pna", wire=wire))


def uncompared(wire: Wire) -> list[str]:
    notes = run_parts(EXACT, forgetting("source"), "pna", wire=wire, epochs=1).training.federation.notes
    return [note for note in notes if "was not compared" in note]


@pytest.mark.hosts
def test_hosts_say_how_many_labels_they_could_not_compare() -> None:
    both = [silo.crosses & (silo.edge_index[1] < silo.n) & (silo.edge_keys % 3 > 0) for silo in forgetting("source")]
    for mark, [note] in zip(both, on_hosts(3, on_wire, 3, uncompared), strict=True):
        assert note.startswith(f"{int(mark.sum())} cross edges are labelled by both")
    assert uncompared(LocalWire(3)) == []  # in one process differing labels are counted instead


@pytest.mark.hosts
def test_hosts_teach_as_one_process_does() -> None:
    expected = numbers(losses(run_parts(EXACT, forgetting("mixed"), "pna")))
    for found in on_hosts(3, on_wire, 3, on_host):
        torch.testing.assert_close(numbers(found), expected, rtol=1e-11, atol=0)
