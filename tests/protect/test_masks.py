"""Masks: no group is smaller than asked for, sums that do not fit are errors, and only gradients are rounded."""

import math

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind, devices_of
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.protect.base import Chain
from isthmus.protect.events import MaskedSums
from isthmus.protect.fixed_point import FixedPoint
from isthmus.protect.masked_sums import groups
from isthmus.protect.masks import FRACTION, Masks, rounded
from isthmus.protect.secrets import Noise
from tests.helpers.small import losses, numbers, run_method, small_graph

SILO = torch.zeros(1, dtype=torch.int64)
IN = Traffic.single(devices_of(0), 0, 9)


def handed_in(rows: torch.Tensor, kind: Kind = Kind.GRADIENTS, traffic: Traffic = IN) -> Parcel:
    return Parcel(kind, rows, Origin.whole(SILO), traffic, derived=True)


@pytest.mark.parametrize("kind", [Kind.GRADIENTS, Kind.METRICS, Kind.STATISTICS])
def test_what_devices_hand_in_is_masked_and_what_silos_send_is_not(kind: Kind) -> None:
    rows = torch.tensor([[math.pi, -1e-12]], dtype=torch.float64)
    left, event, _ = Masks(group=8).seal(handed_in(rows, kind), Noise())
    assert event == MaskedSums(8) and (left - rows).abs().max() <= 2.0 ** -(FRACTION + 1) and left[0, 1] == 0
    same, none, _ = Masks().seal(handed_in(rows, kind, Traffic.single(0, -1, 1)), Noise())
    assert same is rows and none is None


@pytest.mark.parametrize("x", [2.0**24, -1e12, math.inf, math.nan])
def test_sums_that_do_not_fit_are_errors(x: float) -> None:
    with pytest.raises(IsthmusError, match="Sums of gradients of devices .*protect=masks"):
        rounded(torch.tensor([[0.0, x]]), Kind.GRADIENTS)
    assert rounded(torch.tensor([[2.0**23]]), Kind.GRADIENTS).item() == 2.0**23


@pytest.mark.parametrize("group", [0, 1, -3])
def test_a_sum_over_one_device_is_no_sum(group: int) -> None:
    with pytest.raises(IsthmusError, match=f"protect.group is {group}"):
        Masks(group=group)


@pytest.mark.parametrize("group", [2, 5, 64])
def test_no_group_is_smaller_than_asked_for(group: int) -> None:
    """Devices in groups as the docstring says, for every number of them; a silo with fewer has one group of all."""
    for devices in range(1, 4 * group + 2):
        count = max(1, devices // group)
        sizes = [group] * (count - 1) + [devices - group * (count - 1)]
        assert [len(each) for each in groups(devices, group).runs] == sizes
        assert min(sizes) >= min(group, devices)


def test_masks_round_gradients_and_nothing_else() -> None:
    graph, owner = small_graph(30, 140), torch.arange(30) % 3
    masked, plain = (
        run_method("hifgl", graph, owner, 3, "gcn", {"protect": {"name": name}}) for name in ("masks", "nothing")
    )
    apart = (numbers(losses(masked)) - numbers(losses(plain))).abs()
    assert apart[0] == 0 and 0 < apart.max() < 1e-7


def test_gradients_that_leave_training_are_an_error() -> None:
    graph, owner = small_graph(30, 140), torch.arange(30) % 3
    with pytest.raises(IsthmusError, match="Sums of gradients of devices"):
        run_method("hifgl", graph, owner, 3, "gcn", {"protect": {"name": "masks"}}, lr=1e18, optimiser="sgd")


def test_silos_with_too_few_devices_for_a_group_are_named() -> None:
    [said] = Masks(group=8).shortfalls({"north": 7, "south": 8})
    assert said == "north has 7 devices, fewer than a group of 8: the sums that it reads of them are over 7."
    assert Chain((FixedPoint(), Masks(group=8))).shortfalls({"north": 7}) == [said]
    assert Chain((FixedPoint(),)).shortfalls({"north": 7}) == []
