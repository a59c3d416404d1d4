"""A learning rate that decays: by which factor, when, and in every phase anew. (That runs resume: test_resume.py.)"""

from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.engine.settings import TrainConfig
from tests.helpers.small import run_method, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3


def moved(name: str, epochs: int, more: int, **options: Any) -> float:
    """How far parameters move between the ends of two runs, whose rates are next to nothing from a third epoch on."""
    calm = {"weight_decay": 0.0, "decay": 1e-12, "decay_every": 2}
    one, other = (run_method(name, GRAPH, THREE, 3, epochs=n, **calm, **options).last for n in (epochs, more))
    return max(float((one[key] - other[key]).abs().max()) for key in one)


def test_the_rate_falls_after_every_so_many_epochs() -> None:
    train = TrainConfig(lr=0.1, decay=0.5, decay_every=2)
    assert [train.rate(epoch) for epoch in range(5)] == [0.1, 0.1, 0.05, 0.05, 0.025]
    assert TrainConfig(lr=0.1).rate(1000) == 0.1


def test_training_steps_with_the_rate_of_its_epoch() -> None:
    assert moved("fedavg", 1, 2) > 1e-3 > 1e-9 > moved("fedavg", 2, 6)


def test_every_phase_starts_with_the_whole_rate() -> None:
    first = {"options": {"phase": {"pretrain": {"epochs": 3}}}}
    assert moved("pretrained-fedavg", 4, 5, **first) > 1e-3 > 1e-9 > moved("pretrained-fedavg", 5, 7, **first)


@pytest.mark.parametrize(("name", "value"), [("decay", 0.0), ("decay", 1.5), ("decay_every", 0)])
def test_values_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(IsthmusError, match=f"train.{name} is {value}"):
        TrainConfig(**{name: value}).check(2)  # type: ignore[arg-type]
