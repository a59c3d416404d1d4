"""Fixed point: sums are exact, rounding stays within half a step, and nothing wraps in silence."""

import math

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.protect.base import Chain
from isthmus.protect.field import PRIME, add_rows, from_field, to_field
from isthmus.protect.fixed_point import LARGEST, FixedPoint
from isthmus.protect.secrets import Noise
from tests.helpers.small import run_method, small_graph

ROW = torch.zeros(1, dtype=torch.int64)
UP = Traffic.up(ROW)


def sealed(mechanism: FixedPoint, x: float, kind: Kind = Kind.EMBEDDINGS) -> torch.Tensor:
    rows = torch.tensor([[x]], dtype=torch.float64)
    return Chain((mechanism,)).seal(Parcel(kind, rows, Origin(ROW, ROW), UP), Noise()).rows


@pytest.mark.parametrize("fraction", [4, 20, 36])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_come_back_within_half_a_step(fraction: int, dtype: torch.dtype) -> None:
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    mechanism = FixedPoint(fraction=fraction)
    whole = mechanism.rounded(x, Kind.EMBEDDINGS)
    back = mechanism.open(Kind.EMBEDDINGS, whole, x)
    assert whole.dtype == torch.int64 and back.dtype == dtype
    slack = 0 if dtype == torch.float64 else 1e-6
    assert (back - x).abs().max() <= 2.0 ** -(fraction + 1) + slack
    assert dtype == torch.float32 or (back - x).abs().max() > 0


def test_sums_are_exact_in_every_order() -> None:
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mechanism = FixedPoint()
    whole = mechanism.rounded(x, Kind.ADJOINTS)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(2))
    ptr = torch.tensor([0, 400])
    assert torch.equal(mechanism.add(whole, torch.arange(400), ptr), mechanism.add(whole, order, ptr))
    assert not torch.equal(x.sum(0), x[order].flip(0).cumsum(0)[-1])  # which floating point cannot promise


@pytest.mark.parametrize("most", [1, 3, 7, 1000, 16384])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_numbers_add_up_without_a_wrap(most: int, sign: int) -> None:
    """The largest number that is let through, ``most`` times, is still itself in the field."""
    mechanism = FixedPoint(fraction=30, most=most)
    largest = sign * math.nextafter(mechanism.bound, 0) * (1 - 2.0**-40)
    whole = sealed(mechanism, largest)
    assert abs(int(whole)) * most <= LARGEST == PRIME // 2
    near, ptr = torch.zeros(most, dtype=torch.int64), torch.tensor([0, most])
    assert int(from_field(add_rows(to_field(whole), near, ptr))) == most * int(whole)


@pytest.mark.parametrize("most", [1, 2, 4096])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_number_at_the_bound_is_refused(most: int, sign: int) -> None:
    """``most`` of it would make 2^60, which reads as a negative number in the field of 2^61 - 1."""
    mechanism = FixedPoint(fraction=30, most=most)
    with pytest.raises(IsthmusError, match="protect.fraction=30"):
        sealed(mechanism, sign * mechanism.bound)
    wrapped = from_field(to_field(torch.tensor([LARGEST])) + 1)
    assert int(wrapped) < 0


@pytest.mark.parametrize("x", [1e300, -1e9, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("kind", [Kind.EMBEDDINGS, Kind.ADJOINTS, Kind.PARTIALS])
def test_too_large_and_not_finite_numbers_are_errors(x: float, kind: Kind) -> None:
    with pytest.raises(IsthmusError) as caught:
        sealed(FixedPoint(), x, kind)
    for word in (kind.value, "protect=fixed-point", "protect.fraction", "protect.most"):
        assert word in str(caught.value)


def test_one_bad_number_among_good_ones_is_found() -> None:
    rows = torch.zeros(9, 4, dtype=torch.float64)
    rows[4, 2] = math.nan
    with pytest.raises(IsthmusError, match="nan"):
        FixedPoint().rounded(rows, Kind.EMBEDDINGS)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fraction": 0}, "protect.fraction is 0"),
        ({"fraction": 53}, "protect.fraction is 53"),
        ({"most": 0}, "protect.most is 0"),
        ({"fraction": 50, "most": 2**11}, "protect.most is 2048.*1..1024"),
    ],
)
def test_options_that_leave_no_room_are_refused(options: dict[str, int], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        FixedPoint(**options)


def test_a_run_says_which_option_its_neighbours_or_numbers_need() -> None:
    graph, owner = small_graph(30, 140), torch.arange(30) % 3
    with pytest.raises(IsthmusError, match="A node has .* neighbours, but protect.most=2 rows"):
        run_method("hifgl", graph, owner, 3, "gcn", {"protect": {"most": 2}})
    with pytest.raises(IsthmusError, match="Numbers of embeddings lie between .*protect.fraction=46"):
        run_method("hifgl", graph, owner, 3, "gcn", {"protect": {"fraction": 46}})


def test_whole_numbers_and_other_payloads_stay_as_they_are() -> None:
    assert sealed(FixedPoint(), 1e300, Kind.GRADIENTS).item() == 1e300
    listed = torch.arange(6)[:, None]
    parcel = Parcel(Kind.IDS, listed, Origin(ROW, ROW), UP)
    assert FixedPoint().seal(parcel, Noise())[0] is listed
