"""Ego ids and edge labels: whoever scores an edge tells the owner of its far end the slot."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.graph.graph import TRAIN
from isthmus.sample.across import JointSampler
from isthmus.sample.batches import Batch, Seeds
from isthmus.sample.neighbours import Sampler
from isthmus.sample.order import draw_batches
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import assert_same, losses, numbers, owners, run_method, small_graph

EXACT = "sync-sgd+fwd-bwd-le"
TRAINING: dict[str, Any] = {"batch": 4, "fanout": (3,), "epochs": 1}
FIVE = torch.arange(30) % 5


def run_edges(method: str, silos: int = 3, model: str = "multi-pna", **options: Any) -> Result:
    """The graph has parallel edges and self-loops, and nodes that lie in several seeds of a batch."""
    graph = small_graph(30, 80, edge_task=True)
    return run_method(method, graph, owners(silos), silos, model, **{**TRAINING, **options})


def epoch(training: Training) -> Iterator[tuple[Seeds, Batch]]:
    layout, maker = training.stage.layout, training.stage.passes.across["train"]
    how = layout.order, training.train.batch, training.seed
    drawn = draw_batches(layout.pools[TRAIN], training.wire, *how, "train", 0)
    return ((seeds, maker.make(seeds, number).batch) for number, seeds in enumerate(drawn))


def marks(training: Training, batch: Batch, owned: bool = True) -> dict[int, int]:
    """The slot of every marked node, in the silos that own it or in others."""
    rows, stack = batch.layout.held[0], training.stage.layout.stack
    assert batch.ego is not None
    at = (batch.ego >= 0) & (stack.owned[rows] == owned)
    return dict(zip(stack.keys[rows[at]].tolist(), batch.ego[at].tolist(), strict=True))


@pytest.mark.parametrize("silos", [2, 3, 5])
@pytest.mark.parametrize("model", ["multi-pna", "sage"])
def test_exchange_with_adjoints_is_centralised_training(model: str, silos: int) -> None:
    options = {"model_options": {"ego": True}}
    together, apart = (run_edges(method, silos, model, **options) for method in ("centralised", EXACT))
    assert_same(together, apart)


@given(seed=st.integers(0, 999), silos=st.integers(1, 6), nodes=st.integers(4, 20), edges=st.integers(12, 60))
@settings(max_examples=10, deadline=None)
def test_any_split_of_any_multigraph_is_exact(seed: int, silos: int, nodes: int, edges: int) -> None:
    graph = small_graph(nodes, edges, seed, edge_task=True)
    owner = torch.randint(0, silos, (nodes,), generator=torch.Generator().manual_seed(seed))
    training = {"batch": 3, "fanout": (2,), "epochs": 1, "seed": seed, "model_options": {"ego": True}}
    together = run_method("centralised", graph, owner, silos, "gat", **training)
    assert_same(together, run_method(EXACT, graph, owner, silos, "gat", **training))


def test_owners_know_the_first_slot_of_every_end() -> None:
    """Ends that lie in several seeds, and ends of which two silos told the owner, included."""
    together, apart = (run_edges(method, silos=5, batch=16).training for method in ("centralised", EXACT))
    told_twice = 0
    for (_, whole), (_, batch) in zip(epoch(together), epoch(apart), strict=True):
        assert marks(apart, batch) == marks(together, whole)
        served = batch.layout.asks[0].served
        told_twice += len(served) - len(served.unique())
    assert told_twice


def test_without_the_exchange_of_slots_losses_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    together = run_edges("centralised")
    monkeypatch.setattr(JointSampler, "slots", Sampler.slots)
    apart = run_edges(EXACT)
    assert (numbers(losses(apart)) - numbers(losses(together))).abs().max() > 1e-4


def test_slots_are_ids_in_the_ledger_and_nodes_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, whole = 0, JointSampler.slots

    def count(self: JointSampler, slot: torch.Tensor, sample: Any) -> torch.Tensor:
        nonlocal asked
        asked += len(sample.asks[0].halo)
        return whole(self, slot, sample)

    monkeypatch.setattr(JointSampler, "slots", count)
    told = run_edges(EXACT)
    monkeypatch.setattr(JointSampler, "slots", Sampler.slots)
    assert told.bytes["ids"] - run_edges(EXACT).bytes["ids"] == 8 * asked > 0
    monkeypatch.setattr(JointSampler, "slots", None)
    run_method(EXACT, small_graph(30, 80), owners(3), 3, "multi-pna", **TRAINING)


def test_with_local_batches_each_silo_marks_its_own_copies_only() -> None:
    """An owner learns nothing of the seeds of others; a far end carries the slot in the silo that scores the edge."""
    training = run_edges(EXACT, batches="local").training
    batcher, far_ends = training.stage.passes.across["train"].batcher, 0
    for seeds, batch in epoch(training):
        assert batch.ego is not None
        marked = batch.layout.held[0][batch.ego >= 0]
        assert marked.tolist() == batcher.roots(seeds).unique().tolist()
        far_ends += len(marks(training, batch, owned=False))
    assert far_ends


def run_cases(wire: Wire | None = None) -> list[tuple[list[float], dict[str, Any], int]]:
    done = []
    for batches in ("joint", "local"):
        if wire is not None:
            wire.ledger.__init__()  # type: ignore[misc]
        graph = small_graph(30, 80, edge_task=True)
        result = run_method(EXACT, graph, FIVE, 5, "multi-pna", wire=wire, batches=batches, **TRAINING)
        done.append((losses(result), result.test.as_dict(), result.bytes["ids"]))
    return done


@pytest.mark.hosts
def test_three_hosts_give_the_same_losses_scores_and_bytes() -> None:
    together = run_method("centralised", small_graph(30, 80, edge_task=True), FIVE, 5, "multi-pna", **TRAINING)
    expected = run_cases()
    torch.testing.assert_close(numbers(expected[0][0]), numbers(losses(together)), rtol=1e-10, atol=0)
    for *each, (loss, score, ids) in zip(*on_hosts(3, on_wire, 5, run_cases), expected, strict=True):
        for hosted_loss, hosted_score, _ in each:
            torch.testing.assert_close(numbers(hosted_loss), numbers(loss), rtol=1e-12, atol=0)
            assert hosted_score == pytest.approx(score, rel=1e-12, nan_ok=True)
        assert sum(size for *_, size in each) == ids
