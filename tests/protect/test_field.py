"""The field of 2^61 - 1 computes as Python's whole numbers do; T shares tell nothing, and T + 1 shares everything."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor

from isthmus import kernels
from isthmus.core.errors import IsthmusError
from isthmus.protect import field
from isthmus.protect.field import PRIME, add_rows, add_whole, from_field, interpolate, share_out, to_field

EDGES = [0, 1, 2, PRIME // 2, PRIME // 2 + 1, PRIME - 2, PRIME - 1]
needs_compiler = pytest.mark.skipif(
    kernels.compiled(torch.device("cpu")) is None, reason=kernels.describe_kernels(torch.device("cpu"))
)


@pytest.fixture(autouse=True)
def _automatic() -> Iterator[None]:
    yield
    kernels.choose("auto")


def elements(*shape: int, seed: int = 0) -> Tensor:
    """Random elements of the field, whose first ones are the edges of its range."""
    made = torch.randint(0, PRIME, shape, generator=torch.Generator().manual_seed(seed))
    made.view(-1)[: len(EDGES)] = torch.tensor(EDGES)[: made.numel()]
    return made


def lists(rows: int, counts: list[int], seed: int = 1) -> tuple[Tensor, Tensor]:
    """Random neighbour lists of the given lengths."""
    near = torch.randint(0, max(rows, 1), (sum(counts),), generator=torch.Generator().manual_seed(seed))
    return near, torch.tensor([0, *counts]).cumsum(0)


def in_python(x: Tensor, near: Tensor, ptr: Tensor) -> list[list[int]]:
    """Sums over neighbour lists in whole numbers of any size."""
    rows, ends = x.reshape(len(x), -1).tolist(), ptr.tolist()
    listed = [[rows[i] for i in near[a:b].tolist()] for a, b in zip(ends, ends[1:], strict=False)]
    return [[sum(each) for each in zip(*some, strict=True)] or [0] * x[0].numel() for some in listed]


def test_residues_are_canonical() -> None:
    x = torch.tensor([*EDGES, PRIME, PRIME + 1, 4 * PRIME - 1, 2**63 - 1])
    assert field.reduce(x).tolist() == [v % PRIME for v in x.tolist()]


@pytest.mark.parametrize("constant", range(-16, 17))
def test_constants_multiply_without_overflow(constant: int) -> None:
    x = elements(40)
    assert field.times(x, constant).tolist() == [constant * v % PRIME for v in x.tolist()]


def test_a_larger_constant_is_refused() -> None:
    with pytest.raises(IsthmusError, match="at most 16 in size; got -17"):
        field.times(elements(2), -17)


@pytest.mark.parametrize("coefficients", [(-1, 3), (1, 1, 1, 1), (4,), (16, -16, 16, -15, 7), (-4, 6, -4, 1)])
def test_combinations_equal_those_of_python(coefficients: tuple[int, ...]) -> None:
    tensors = [elements(30, seed=seed).roll(seed) for seed in range(len(coefficients))]
    kept = [x.clone() for x in tensors]
    columns = zip(*(x.tolist() for x in tensors), strict=True)
    expected = [sum(c * v for c, v in zip(coefficients, some, strict=True)) % PRIME for some in columns]
    assert field.combine(coefficients, tensors).tolist() == expected
    assert all(map(torch.equal, tensors, kept))


def test_signed_numbers_return() -> None:
    signed = torch.tensor([0, 1, -1, 12345, -12345, PRIME // 2, -(PRIME // 2)])
    inside = to_field(signed)
    assert inside.tolist() == [v % PRIME for v in signed.tolist()]
    assert torch.equal(from_field(inside), signed)
    assert to_field(signed[:0]).shape == (0,)


@pytest.mark.parametrize("beyond", [PRIME // 2 + 1, -PRIME // 2 - 1, -(2**63)])
def test_numbers_that_do_not_fit_are_refused(beyond: int) -> None:
    with pytest.raises(IsthmusError, match="do not fit the field"):
        to_field(torch.tensor([0, beyond]))


def test_random_words_become_elements() -> None:
    words = torch.tensor([[0, 5, PRIME], [PRIME - 1, -1, 7 - 2**63]])
    assert field.uniform(words).tolist() == [[0, 5, 0], [PRIME - 1, 0, 7]]
    assert field.uniform(words).dtype == torch.int64


@pytest.mark.parametrize("choice", kernels.CHOICES)
def test_sums_equal_those_of_python(choice: str) -> None:
    kernels.choose(choice)
    x = elements(50, 5)
    near, ptr = lists(50, [0, 1, 6, 7, 8, 0, 14, 15, 100, 0])
    assert add_rows(x, near, ptr).tolist() == [[v % PRIME for v in row] for row in in_python(x, near, ptr)]
    signed = (x - PRIME // 2) >> 8
    assert add_whole(signed, near, ptr).tolist() == in_python(signed, near, ptr)


@pytest.mark.parametrize("choice", kernels.CHOICES)
@pytest.mark.parametrize("value", [PRIME - 1, 1, 0])
def test_ten_thousand_neighbours_of_extreme_value(choice: str, value: int) -> None:
    kernels.choose(choice)
    near, ptr = lists(3, [10_000, 1, 0])
    assert add_rows(torch.full((3, 2), value), near, ptr).tolist() == [
        [10_000 * value % PRIME] * 2,
        [value] * 2,
        [0, 0],
    ]


@needs_compiler
@pytest.mark.parametrize("shape", [(1,), (7,), (64,), (65,), (131,), (2, 64), (4, 3), ()])
def test_compiled_sums_equal_plain_ones_bit_for_bit(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    x, (near, ptr) = elements(60, *shape), lists(60, [k % 19 for k in range(90)])
    found = add_rows(x, near, ptr), add_whole(x >> 8, near, ptr)
    kernels.choose("plain")
    monkeypatch.setattr(field, "_CHUNK", 1000)  # several chunks, with a target cut between two of them
    assert found[0].shape == (90, *shape)
    assert torch.equal(found[0], add_rows(x, near, ptr)) and torch.equal(found[1], add_whole(x >> 8, near, ptr))


@needs_compiler
def test_threads_and_strides_make_no_difference() -> None:
    x, (near, ptr) = elements(9, 70).T, lists(70, [k % 5 for k in range(4000)])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        found = add_rows(x, near, ptr)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, add_rows(x.contiguous(), near, ptr))


@pytest.mark.parametrize("choice", kernels.CHOICES)
@pytest.mark.parametrize(("rows", "counts"), [(4, []), (4, [0, 0, 0]), (0, []), (0, [0, 0])])
def test_empty_graphs(rows: int, counts: list[int], choice: str) -> None:
    kernels.choose(choice)
    for shape in ((3,), (2, 3), (0,)):
        for found in (f(elements(rows, *shape), *lists(rows, counts)) for f in (add_rows, add_whole)):
            assert found.shape == (len(counts), *shape) and not found.any()


@pytest.mark.parametrize(
    ("near", "ptr", "said"),
    [
        ([0, 5], [0, 2], "rows 0 to 4; got 0 to 5"),
        ([-1], [0, 1], "got -1"),
        ([1], [0, 2], "rise"),
        ([1], [0, 2, 1], "rise"),
    ],
)
def test_lists_that_name_absent_rows_are_refused(near: list[int], ptr: list[int], said: str) -> None:
    with pytest.raises(IsthmusError, match=said):
        add_rows(elements(5, 2), torch.tensor(near), torch.tensor(ptr))


def test_other_number_formats_are_refused() -> None:
    with pytest.raises(IsthmusError, match="must be int64; got torch.float32"):
        add_rows(torch.ones(5, 2), *lists(5, [2]))


def shared(h: Tensor, z: Tensor) -> Tensor:
    """Shares of the rows h [n, w] that begin with z [n, T, w]: [n, T + 1, w]."""
    return share_out(h, torch.cat([z, h[:, None]], 1))


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_shares_lie_on_the_polynomial_and_give_the_rows_back(degree: int) -> None:
    h, z = elements(12, 5), elements(12, degree, 5, seed=3)
    shares = shared(h, z)
    assert shares.shape == (12, degree + 1, 5) and torch.equal(shares[:, :degree], z)
    assert 0 <= int(shares.min()) and int(shares.max()) < PRIME
    assert torch.equal(interpolate(shares), h)
    points = [h, *shares.unbind(1)]  # g(0), g(1), .., g(T + 1): the differences of order T + 1 are 0
    while len(points) > 1:
        points = [field.reduce(b - a) for a, b in zip(points, points[1:], strict=False)]
    assert not points[0].any()


def test_shares_of_degree_one_are_z_and_twice_z_minus_h() -> None:
    assert shared(torch.tensor([[5]]), torch.tensor([[[7]]])).tolist() == [[[7], [9]]]


@pytest.mark.parametrize("degree", [0, 4])
def test_other_degrees_are_refused(degree: int) -> None:
    with pytest.raises(IsthmusError, match=f"from 1 to 3; got {degree}"):
        shared(elements(2, 3), elements(2, degree, 3))
    with pytest.raises(IsthmusError, match=f"from 1 to 3; got {degree}"):
        interpolate(elements(2, degree + 1, 3))


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_sums_of_shares_decode_to_sums_of_rows(degree: int) -> None:
    h, (near, ptr) = elements(30, 6), lists(30, [3, 0, 40, 1, 9])
    shares = shared(h, elements(30, degree, 6, seed=5))
    assert torch.equal(interpolate(add_rows(shares, near, ptr)), add_rows(h, near, ptr))


CELLS, BAR = 8, 5.0  # cells of each share's range; deviations from which on shares count as not uniform


def from_uniform(shares: Tensor) -> float:
    """How far shares [n, k] are from uniform and independent: chi-square over 8^k cells, in standard deviations."""
    cells = (shares // (PRIME // CELLS + 1) * CELLS ** torch.arange(shares.shape[1])).sum(1)
    free = CELLS ** shares.shape[1] - 1
    counts = torch.bincount(cells, minlength=free + 1).double()
    expected = len(shares) / (free + 1)
    return (float(((counts - expected) ** 2 / expected).sum()) - free) / (2 * free) ** 0.5


def shares_of(value: int, degree: int, seed: int) -> Tensor:
    """Many independent shares of one number: [n, T + 1]."""
    words = np.random.default_rng((degree, seed)).integers(0, 2**64, (40_000, degree, 1), dtype=np.uint64)
    return shared(torch.full((len(words), 1), value), field.uniform(torch.from_numpy(words.view(np.int64))))[:, :, 0]


SECRETS = (0, PRIME // 3, PRIME - 1)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("seed", range(len(SECRETS)))
def test_any_T_shares_are_uniform_whatever_they_hide(degree: int, seed: int) -> None:
    shares = shares_of(SECRETS[seed], degree, seed)
    for some in combinations(range(degree + 1), degree):
        assert abs(from_uniform(shares[:, list(some)])) < BAR


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("seed", range(len(SECRETS)))
def test_all_shares_together_are_not_uniform(degree: int, seed: int) -> None:
    """The bar that T shares stay below is one that T + 1 shares, which give the number away, exceed."""
    shares = shares_of(SECRETS[seed], degree, seed)
    assert from_uniform(shares) > BAR
    assert torch.equal(interpolate(shares[:, :, None]), torch.full((len(shares), 1), SECRETS[seed]))
