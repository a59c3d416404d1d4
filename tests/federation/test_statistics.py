"""Weights of positive labels, from counts that silos have or agree on."""

import pytest
import torch

from isthmus.federation.statistics import positive_weights
from isthmus.wire.local import LocalWire

COUNTS = torch.tensor([[[6, 2], [0, 5], [4, 0]], [[2, 2], [3, 3], [1, 0]]])  # [silos, tasks, no and yes]


@pytest.mark.parametrize(
    ("agreed", "expected"),
    [(False, [[3, 1, 1], [1, 1, 1]]), (True, [[2, 3 / 8, 1], [2, 3 / 8, 1]])],
    ids=["own", "agreed"],
)
def test_a_task_of_one_answer_alone_still_has_a_loss(agreed: bool, expected: list[list[float]]) -> None:
    """Without negatives (first silo, second task) their share would be 0, and nothing would be learnt."""
    weights = positive_weights(LocalWire(2), COUNTS.double(), agreed)
    assert weights.tolist() == expected
