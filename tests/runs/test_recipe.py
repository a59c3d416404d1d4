"""Values that ``--set`` is given are read as people write them."""

from typing import Any

import pytest

from isthmus.runs.recipe import parse_set


@pytest.mark.parametrize(
    ("text", "value"),
    [(".5", 0.5), ("-.5e-3", -0.0005), ("1.", 1.0), ("1e-3", 0.001), ("10,5", [10, 5]), (".", "."), ("007", "007")],
)
def test_numbers_are_read_however_they_are_written(text: str, value: Any) -> None:
    assert parse_set([f"train.lr={text}"]) == {"train": {"lr": value}}
