"""Link inference: neighbours whose rows are alike are found, random rows tell nothing, pairs are balanced."""

import pytest
import torch
from torch import Tensor

from isthmus.audit.links import area, likeness, pairs_of

NODES, SILOS = 240, 3


def graph() -> tuple[Tensor, Tensor]:
    """Triangles of nodes, each inside one silo, and some edges between silos."""
    owner = (torch.arange(NODES) // 3) % SILOS
    first = torch.arange(0, NODES, 3)
    inner = torch.cat([torch.stack([first + a, first + b]) for a, b in ((0, 1), (1, 2), (2, 0), (1, 0))], 1)
    return torch.cat([inner, torch.stack([first[:-1], first[1:]])], 1), owner


def auc_of(rows: Tensor, seed: int = 0) -> float:
    ends, owner = graph()
    joined, apart = pairs_of(ends, owner, torch.ones(NODES, dtype=torch.bool), seed)
    return area(likeness(rows, joined, rows.mean(0)), likeness(rows, apart, rows.mean(0)))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def test_neighbours_with_equal_rows_are_found_for_certain() -> None:
    assert auc_of(drawn(NODES // 3, 8).repeat_interleave(3, 0)) == 1.0


def test_random_rows_tell_nothing() -> None:
    found = [auc_of(drawn(NODES, 8), seed) for seed in range(5)]
    assert sum(found) / 5 == pytest.approx(0.5, abs=0.05)


def test_what_all_rows_share_does_not_hide_links() -> None:
    rows = drawn(NODES // 3, 8).repeat_interleave(3, 0) + 0.3 * drawn(NODES, 8)
    assert auc_of(rows + 1000) == pytest.approx(auc_of(rows))
    assert auc_of(rows) > 0.9


def test_pairs_are_balanced_within_silos_and_of_released_nodes_alone() -> None:
    ends, owner = graph()
    known = torch.arange(NODES) < 180
    joined, apart = pairs_of(ends, owner, known, seed=1)
    edges = {frozenset(pair) for pair in ends.T.tolist()}
    assert joined.shape == apart.shape and joined.shape[1] == 180  # each of 60 triangles has three
    for pairs, linked in ((joined, True), (apart, False)):
        assert bool(known[pairs].all()) and torch.equal(owner[pairs[0]], owner[pairs[1]])
        assert all((frozenset(pair) in edges) == linked for pair in pairs.T.tolist())
        assert len({frozenset(pair) for pair in pairs.T.tolist()}) == pairs.shape[1]
    assert torch.equal(torch.bincount(owner[joined[0]]), torch.bincount(owner[apart[0]]))


def test_a_silo_in_which_everybody_is_linked_has_no_pair_to_tell_apart() -> None:
    ends = torch.tensor([[0, 1, 2], [1, 2, 0]])
    joined, apart = pairs_of(ends, torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool), seed=0)
    assert joined.shape[1] == apart.shape[1] == 0


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [([3.0, 2.0], [1.0, 0.0], 1.0), ([0.0], [1.0], 0.0), ([1.0, 1.0], [1.0], 0.5), ([2.0, 0.0, 1.0], [1.0, 1.0], 0.5)],
)
def test_area_by_hand(positive: list[float], negative: list[float], expected: float) -> None:
    assert area(torch.tensor(positive), torch.tensor(negative)) == expected


def test_area_is_the_share_of_pairs_in_order() -> None:
    positive, negative = drawn(40).round(decimals=1) + 0.5, drawn(70).flip(0).round(decimals=1)
    gap = positive[:, None] - negative[None]
    assert area(positive, negative) == pytest.approx(float(((gap > 0) + 0.5 * (gap == 0)).double().mean()))
