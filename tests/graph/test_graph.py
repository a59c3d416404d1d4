"""What a graph refuses to be, and rows of features that sum to 1."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.graph.features import SparseRows, dense_blocks, rows_to_one
from tests.helpers.small import small_graph

GRAPH = small_graph(edge_task=True)
M = GRAPH.m

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "half a class": ({"y": torch.full((12,), 0.5)}, "y is torch.float32; it must hold whole numbers"),
    "half an edge's class": ({"edge_y": torch.full((M,), 0.5)}, "edge_y is torch.float32"),
    "a time that is no number": ({"edge_time": torch.full((M,), torch.nan)}, "edge_time is torch.float32"),
    "half a node": ({"edge_index": GRAPH.edge_index / 2}, "edge_index is torch.float32"),
    "too few splits": ({"split": torch.ones(11, dtype=torch.int8)}, "split has 11 rows for 12"),
    "too many times": ({"edge_time": torch.arange(M + 1)}, f"edge_time has {M + 1} rows for {M}"),
    "too few edge features": ({"edge_attr": torch.ones(M - 1, 2)}, f"edge_attr has {M - 1} rows for {M}"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_graph_is_refused(case: str) -> None:
    changes, says = WRONG[case]
    with pytest.raises(IsthmusError, match=says):
        replace(GRAPH, **changes).check()


def test_rows_sum_to_one_and_rows_of_zeros_stay_zeros() -> None:
    x = torch.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    wanted = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    rows = rows_to_one(SparseRows.from_dense(x))
    long = rows_to_one(SparseRows.from_dense(x), power=2)
    assert isinstance(long, SparseRows) and torch.allclose(long.dense(), rows_to_one(x, power=2))
    assert torch.allclose((long.dense() ** 2).sum(1), torch.tensor([1.0, 0.0, 1.0]))
    assert isinstance(rows, SparseRows) and torch.equal(rows.dense(), wanted) and torch.equal(rows_to_one(x), wanted)


@pytest.mark.parametrize("entries", [1, 5, 6, 1000])
def test_blocks_are_all_rows_in_order(entries: int) -> None:
    x = torch.arange(21.0).reshape(7, 3)
    for each in (x, SparseRows.from_dense(x)):
        assert torch.equal(torch.cat(list(dense_blocks(each, entries))), x.double())
