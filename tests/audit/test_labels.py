"""Labels from adjoints: a case by hand, sums of several nodes taken apart, noise, and whose derivatives are whose."""

import pytest
import torch
from torch import Tensor

from isthmus.audit.journal import Totals
from isthmus.audit.label_attacks import single_parts
from isthmus.audit.labels import Parts, label_scores, unmixed
from isthmus.federation.federation import open_federation
from isthmus.graph.graph import TRAIN
from isthmus.graph.stack import build_stack
from isthmus.testing.runs import small_silos
from isthmus.wire.local import LocalWire

CLASSES, WIDTH = 3, 5


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def derivatives(labels: Tensor, seed: int = 1) -> Tensor:
    """What a linear head W of random logits returns for each node: W^T (p - y)."""
    probability = drawn(len(labels), CLASSES, seed=seed).softmax(1)
    return (probability - torch.nn.functional.one_hot(labels, CLASSES)) @ drawn(CLASSES, WIDTH, seed=9)


def test_by_hand_the_one_class_that_is_pushed_up_is_the_label() -> None:
    """W = 1, two classes: a node with p = (0.3, 0.7) returns (-0.7, 0.7) for label 0 and (0.3, -0.3) for label 1."""
    rows = torch.tensor([[-0.7, 0.7], [0.3, -0.3], [-0.9, 0.9], [0.1, -0.1]], dtype=torch.float64)
    parts = Parts(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]), rows)
    scores, guess = label_scores(parts, 2)
    assert scores.argmax(1).tolist() == [0, 1, 0, 1]
    assert guess.tolist() == [0, 0, 0, 0]  # the most frequent label of the others, the first of equals


def test_every_label_of_a_linear_head_is_found() -> None:
    labels, owner = torch.arange(300) % CLASSES, torch.arange(300) % 4
    scores, guess = label_scores(Parts(owner, labels, derivatives(labels)), CLASSES)
    assert torch.equal(scores.argmax(1), labels)
    assert (guess == labels).double().mean() < 0.5


def test_noise_hides_labels() -> None:
    labels, owner = torch.randint(CLASSES, (600,), generator=torch.Generator().manual_seed(2)), torch.arange(600) % 4
    right = []
    for sigma in (0.0, 1.0, 100.0):
        rows = derivatives(labels) + sigma * drawn(600, WIDTH, seed=3)
        scores, _ = label_scores(Parts(owner, labels, rows), CLASSES)
        right.append(float((scores.argmax(1) == labels).double().mean()))
    assert right[0] == 1.0 > right[1] > right[2] and right[2] == pytest.approx(1 / 3, abs=0.08)


def test_a_silo_whose_others_have_no_labels_is_not_guessed() -> None:
    labels = torch.arange(20) % CLASSES
    scores, guess = label_scores(Parts(torch.zeros(20, dtype=torch.int64), labels, derivatives(labels)), CLASSES)
    assert bool(scores.isnan().all()) and guess.tolist() == [-1] * 20


def test_sums_are_taken_apart_as_far_as_they_differ() -> None:
    parts = drawn(3, 4)
    at, node = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 2, 2])  # 0+1, 1+2, 2
    sums = torch.zeros(3, 4, dtype=torch.float64).index_add_(0, at, parts[node])
    member = torch.zeros(3, 3, dtype=torch.float64).index_put_((at, node), torch.ones(5, dtype=torch.float64))
    exact = torch.linalg.solve(member.T @ member + 0.1 * torch.eye(3), member.T @ sums)
    assert torch.allclose(unmixed(sums, at, node, 3), exact, atol=1e-6)
    alike = unmixed(sums[:1], torch.tensor([0, 0]), torch.tensor([0, 1]), 2)
    assert torch.allclose(alike[0], alike[1]) and torch.allclose(alike.sum(0), sums[0], rtol=0.1)


@pytest.mark.parametrize("target", ["node", "edge"])
def test_derivatives_of_lent_rows_belong_to_seeds_that_read_them(target: str) -> None:
    """Derivatives that are made of one-hot vectors of the seeds that read a row name just these."""
    federation = open_federation(LocalWire(3), small_silos(3, 18, edge_task=target == "edge"))
    stack = build_stack(federation.silos, "halo", torch.float64, federation.schema)
    source, end = stack.ends
    edges = torch.arange(stack.ends.shape[1])
    units = stack.rows if target == "node" else len(edges)
    rows = torch.zeros(stack.rows, units, dtype=torch.float64)
    lent = ~stack.owned[source] & stack.owned[end]
    rows[source[lent], end[lent] if target == "node" else edges[lent]] = 1.0
    if target == "edge":
        there = ~stack.owned[end]
        rows[end[there], edges[there]] = 1.0
        seeds = (stack.edge_split == TRAIN).nonzero().flatten()  # type: ignore[union-attr]
    else:
        seeds = ((stack.split == TRAIN) & stack.owned).nonzero().flatten()
    parts = single_parts(stack, Totals(rows, (rows.sum(1) > 0).double()), seeds, target, False)
    touched = rows.sum(0).nonzero().flatten()
    expected = seeds[torch.isin(seeds, touched)]
    label = stack.y if target == "node" else stack.edge_y
    assert label is not None and len(expected) > 3
    assert torch.equal(parts.label, label[expected].long())
    own = parts.rows[torch.arange(len(expected)), expected]
    assert bool((own > 0).all()) and torch.allclose(own, parts.rows.amax(1))  # edges of one far end share alike
    assert torch.equal(parts.owner, stack.silo_of(expected if target == "node" else source[expected]))
