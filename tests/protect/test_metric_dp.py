"""Metric differential privacy: the paper's table, Opacus, the exact mechanism, a simulation, and plain loops."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import log_ndtr
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.protect.accounting import neighbours
from isthmus.protect.accounting.metric_dp import (
    FINE_ORDERS,
    ORDERS,
    EpsilonLine,
    epsilon,
    epsilon_table,
    neighbour_distances,
    rho_percentiles,
)
from isthmus.studies.tables import read_table

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
TABLE = read_table("ce_fedgnn_metric_dp_epsilon")
SIGMAS = {name: float(name.removeprefix("sigma_")) for name in TABLE[0] if name.startswith("sigma_")}


def by_loop(releases: float, sigma: float, rho: float, delta: float, orders: tuple[float, ...]) -> float:
    least = math.inf
    for alpha in orders:
        spent = releases * alpha * rho**2 / (2 * sigma**2)
        least = min(least, spent + math.log((alpha - 1) / alpha) - math.log(delta * alpha) / (alpha - 1))
    return max(least, 0.0)


def exact(mu: float, delta: float) -> float:
    """The epsilon of the Gaussian mechanism (Balle and Wang 2018), mu = sqrt(releases) rho / sigma."""

    def excess(eps: float) -> float:
        return float(math.exp(log_ndtr(mu / 2 - eps / mu)) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu)) - delta)

    return float(brentq(excess, 0, mu**2 + 20 * mu))


def simulated(releases: int, sigma: float, rho: float, delta: float) -> float:
    """The smallest epsilon that real draws allow: the mean of max(0, 1 - exp(epsilon - loss)) is at most delta."""
    generator = torch.Generator().manual_seed(0)
    one, other = torch.tensor([0.6, 0.8, 0.0]).double(), torch.tensor([0.6, 0.8, rho]).double()
    seen = one + sigma * torch.randn(200_000, releases, 3, generator=generator, dtype=torch.float64)
    loss = ((seen - other).square() - (seen - one).square()).sum((1, 2)) / (2 * sigma**2)

    def excess(eps: float) -> float:
        return float((1 - (eps - loss).exp()).clamp(min=0).mean()) - delta

    return float(brentq(excess, 0, float(loss.max())))


def brute_force(rows: Tensor, k: int, normalise: bool) -> list[float]:
    points = rows.double()
    if normalise:
        points = torch.stack([row / row.norm() if row.norm() > 0 else row for row in points])
    found = []
    for i, here in enumerate(points):
        others = sorted(float((here - there).norm()) for j, there in enumerate(points) if j != i)
        found.append(others[min(k, len(others)) - 1])
    return found


def draw(n: int, width: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_orders() -> None:
    assert len(ORDERS) == 151 and ORDERS[0] == 1.1 and ORDERS[98:100] == (10.9, 12.0) and ORDERS[-1] == 63
    assert set(ORDERS) < set(FINE_ORDERS) and min(FINE_ORDERS) > 1


@pytest.mark.parametrize("line", TABLE, ids=lambda line: f"{line['dataset']}-{line['percentile']}")
def test_the_papers_table(line: dict[str, str]) -> None:
    percentile, rho = float(line["percentile"]), float(line["rho"])
    assert int(line["releases"]) == {"HI-Small": 200, "HI-Medium": 100}[line["dataset"]]
    (ours,) = epsilon_table({percentile: rho}, list(SIGMAS.values()), int(line["releases"]), 1e-4, ORDERS)
    assert (ours.percentile, ours.rho) == (percentile, rho)
    assert {name: f"{ours.epsilons[sigma]:.3f}" for name, sigma in SIGMAS.items()} == {n: line[n] for n in SIGMAS}


def test_the_papers_table_has_70_cells() -> None:
    assert len(TABLE) * len(SIGMAS) == 70


@pytest.mark.parametrize("orders", [ORDERS, FINE_ORDERS], ids=["opacus", "fine"])
@pytest.mark.parametrize(("sigma", "delta"), [(0.3, 1e-4), (2.0, 1e-6), (5.0, 0.3)])
def test_against_the_obvious_loop(orders: tuple[float, ...], sigma: float, delta: float) -> None:
    releases, rho = [1, 7, 200, 7], [0.001, 0.05, 0.9, 2.0, 30.0]
    ours = epsilon(torch.tensor(releases), sigma, torch.tensor(rho, dtype=torch.float64)[:, None], delta, orders)
    assert ours.shape == (5, 4) and ours.dtype == torch.float64
    for i, distance in enumerate(rho):
        for j, times in enumerate(releases):
            expected = by_loop(times, sigma, distance, delta, orders)
            assert float(ours[i, j]) == pytest.approx(expected, rel=1e-12, abs=1e-12)
            assert float(epsilon(times, sigma, distance, delta, orders)) == float(ours[i, j])


@pytest.mark.filterwarnings("ignore")  # it warns where the best order is the largest
@pytest.mark.parametrize(("releases", "sigma", "rho"), [(1, 5.0, 0.01), (1, 1.0, 1.0), (40, 0.7, 0.2), (200, 0.3, 0.9)])
def test_against_opacus(releases: int, sigma: float, rho: float) -> None:
    opacus = pytest.importorskip("opacus.accountants", reason="the second opinion of Opacus: pip install opacus")
    accountant = opacus.RDPAccountant()
    assert tuple(accountant.DEFAULT_ALPHAS) == ORDERS
    accountant.history = [(sigma / rho, 1.0, releases)]
    assert float(epsilon(releases, sigma, rho, 1e-4, ORDERS)) == pytest.approx(accountant.get_epsilon(1e-4), rel=1e-12)


@pytest.mark.parametrize("releases", [1, 9, 100])
@pytest.mark.parametrize("mu", [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
def test_never_below_the_exact_loss_and_at_most_a_fifth_above(releases: int, mu: float) -> None:
    sigma = 0.5
    ours, truth = float(epsilon(releases, sigma, mu * sigma / math.sqrt(releases), 1e-4)), exact(mu, 1e-4)
    assert 1.05 * truth < ours < 1.2 * truth


@pytest.mark.parametrize(("releases", "sigma", "rho"), [(1, 1.0, 1.0), (1, 0.5, 0.15), (6, 1.0, 1.0)])
def test_simulated_releases_lose_less(releases: int, sigma: float, rho: float) -> None:
    bound, seen = float(epsilon(releases, sigma, rho, 0.01)), simulated(releases, sigma, rho, 0.01)
    assert 0.75 * bound < seen < bound


numbers = st.floats(0, 1e3, allow_subnormal=False)
deviations = st.floats(1e-3, 1e3)


@settings(max_examples=40, deadline=None)
@given(
    releases=st.tuples(numbers, numbers), sigma=st.tuples(deviations, deviations), rho=st.tuples(numbers, numbers),
    delta=st.floats(1e-9, 0.99), orders=st.sampled_from([ORDERS, FINE_ORDERS]),
)  # fmt: skip
def test_more_releases_less_noise_or_more_distance_never_lose_less(
    releases: tuple[float, float], sigma: tuple[float, float], rho: tuple[float, float], delta: float, orders: Any
) -> None:
    (few, many), (quiet, loud), (near, far) = sorted(releases), sorted(sigma), sorted(rho)
    rarer, closer, worst = epsilon(
        torch.tensor([few, many, many]), quiet, torch.tensor([far, near, far]), delta, orders
    )
    assert rarer <= worst and closer <= worst
    louder = epsilon(torch.tensor(many), loud, torch.tensor(far), delta, orders)
    assert 0 <= louder <= worst


@settings(max_examples=25, deadline=None)
@given(releases=numbers, sigma=deviations, rho=numbers, delta=st.floats(1e-9, 0.99))
def test_fine_orders_are_never_above(releases: float, sigma: float, rho: float, delta: float) -> None:
    fine, coarse = epsilon(releases, sigma, rho, delta), epsilon(releases, sigma, rho, delta, ORDERS)
    assert fine <= coarse


def test_fine_orders_gain_where_the_best_order_is_off_the_coarse_grid() -> None:
    for releases, rho in ((1, 0.01), (100, 0.7724 / 0.3)):
        assert epsilon(releases, 1.0, rho, 1e-4) < 0.999 * epsilon(releases, 1.0, rho, 1e-4, ORDERS)


def test_clamped_at_zero() -> None:
    assert min(math.log1p(-1 / alpha) - math.log(0.5 * alpha) / (alpha - 1) for alpha in ORDERS) < -0.01
    assert epsilon(1, 1.0, 1e-6, 0.5, ORDERS) == 0


@pytest.mark.parametrize("orders", [ORDERS, FINE_ORDERS], ids=["opacus", "fine"])
@pytest.mark.parametrize("sigma", [0.0, 1e-300, 1.0])
def test_nothing_released_or_nothing_to_tell_apart_is_zero(sigma: float, orders: tuple[float, ...]) -> None:
    ours = epsilon(torch.tensor([0, 0, 5]), sigma, torch.tensor([0.0, 0.3, 0.0]), 1e-4, orders)
    assert ours.tolist() == [0, 0, 0]


def test_without_noise_infinite() -> None:
    ours = epsilon(torch.tensor([0, 1, 1, 5]), 0.0, torch.tensor([1.0, 0.0, 1e-300, 1.0], dtype=torch.float64), 1e-4)
    assert ours.tolist() == [0, 0, math.inf, math.inf]
    assert epsilon(3, 1.0, math.inf, 1e-4) == math.inf


def test_each_node_by_how_often_it_was_released() -> None:
    counts, rho = torch.tensor([3, 0, 64, 3]), torch.tensor([0.1, 0.1, 0.2, 0.4])
    shared = epsilon(counts, 0.5, 0.1, 1e-4)
    assert shared.tolist() == [float(epsilon(int(count), 0.5, 0.1, 1e-4)) for count in counts]
    own = epsilon(counts, 0.5, rho, 1e-4, ORDERS)
    expected = [float(epsilon(int(c), 0.5, float(r), 1e-4, ORDERS)) for c, r in zip(counts, rho, strict=True)]
    assert own.tolist() == expected and len(set(expected)) == 4
    assert len(epsilon(torch.zeros(0, dtype=torch.int64), 0.5, 0.1, 1e-4)) == 0


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (9, 1), (30, 7), (30, 29), (6, 50)])
@pytest.mark.parametrize("pairs", [1, 100, 2**24])
def test_neighbours_by_brute_force(
    n: int, k: int, normalise: bool, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "_PAIRS", pairs)
    rows = 5 * draw(n)
    rows[0] = 0
    ours = neighbour_distances(rows, k, normalise)
    assert ours.dtype == torch.float64
    assert ours.tolist() == pytest.approx(brute_force(rows, k, normalise), rel=1e-12)


def test_no_block_holds_more_pairs_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    plain = neighbours._Known._distances

    def watched(*given: Any) -> Tensor:
        found = plain(*given)
        sizes.append(found.numel())
        return found

    monkeypatch.setattr(neighbours, "_PAIRS", 1000)
    monkeypatch.setattr(neighbours._Known, "_distances", watched)
    neighbour_distances(draw(70), 3)
    assert sum(sizes) == 70 * 70 and max(sizes) <= 1000


def test_equal_rows_are_at_distance_zero() -> None:
    rows = draw(40).float().repeat(3, 1)
    assert neighbour_distances(rows, 2).tolist() == [0.0] * 120  # each has two equals, and is not its own neighbour
    third = neighbour_distances(rows, 3)
    assert third.tolist() == pytest.approx(brute_force(rows, 3, True), rel=1e-12) and third.min() > 0


def test_close_rows_keep_their_digits() -> None:
    rows = torch.ones(1, 8, dtype=torch.float64) + 1e-4 * draw(50, 8)
    assert neighbour_distances(rows, 5).tolist() == pytest.approx(brute_force(rows, 5, True), rel=1e-9)


def test_a_node_alone_has_nobody_to_be_mistaken_for() -> None:
    assert neighbour_distances(draw(1), 50).tolist() == [math.inf]
    assert neighbour_distances(draw(0), 50).tolist() == []
    (line,) = epsilon_table(rho_percentiles(draw(1), percentiles=(90,)), (1.0,), 1, 1e-4)
    assert line == EpsilonLine(90, math.inf, {1.0: math.inf})


@pytest.mark.parametrize("n", [1, 7, 20, 100])
def test_percentiles_cover_so_many_nodes_and_no_smaller_distance_does(n: int) -> None:
    rows = draw(n)
    distances = neighbour_distances(rows, 3)
    rhos = rho_percentiles(rows, 3)
    assert list(rhos) == [50, 90, 95, 99, 100]
    for percentile, rho in rhos.items():
        assert (distances <= rho).sum() * 100 >= percentile * n > (distances < rho).sum() * 100


def test_percentiles_pass_on_how_rows_are_measured() -> None:
    rows = 5 * draw(80)
    assert rho_percentiles(rows, 60) != rho_percentiles(rows) == rho_percentiles(rows, 50)
    assert rho_percentiles(rows, normalise=False)[100] == float(neighbour_distances(rows, 50, False).max())


def test_a_table_has_a_line_for_each_percentile_and_a_value_for_each_sigma() -> None:
    lines = epsilon_table({50: 0.1, 100: 0.7}, (1.0, 2.0), 10, 1e-4)
    assert [(line.percentile, line.rho) for line in lines] == [(50, 0.1), (100, 0.7)]
    for line in lines:
        assert line.epsilons == {sigma: float(epsilon(10, sigma, line.rho, 1e-4)) for sigma in (1.0, 2.0)}


def test_the_example_of_the_page_prints_what_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    exec(found[1], {})
    assert capsys.readouterr().out == found[2]


ONE = {"releases": 1, "sigma": 1.0, "rho": 0.1, "delta": 1e-4}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sigma": -0.5}, "sigma is -0.5; it must be a finite number, 0 (no noise) or more."),
        ({"sigma": math.nan}, "sigma is nan; it must be a finite number, 0 (no noise) or more."),
        ({"sigma": math.inf}, "sigma is inf; it must be a finite number, 0 (no noise) or more."),
        ({"delta": 0.0}, "delta is 0.0; it must lie between 0 and 1, both excluded."),
        ({"delta": 1.0}, "delta is 1.0; it must lie between 0 and 1, both excluded."),
        ({"delta": math.nan}, "delta is nan; it must lie between 0 and 1, both excluded."),
        ({"releases": -1}, "releases is -1.0; it must be 0 or more."),
        ({"releases": torch.tensor([2, -3])}, "releases is -3.0; it must be 0 or more."),
        ({"releases": math.inf}, "releases is infinite; give how often the row was released, a finite number."),
        ({"rho": -0.1}, "rho is -0.1; it must be 0 or more."),
        ({"rho": torch.tensor([0.5, math.nan])}, "rho is nan; it must be 0 or more."),
        ({"orders": ()}, "orders are []; give one or more finite numbers, each above 1."),
        ({"orders": (1.0, 2.0)}, "orders are [1.0, 2.0]; give one or more finite numbers, each above 1."),
    ],
)
def test_what_epsilon_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(IsthmusError, match=f"^{re.escape(message)}$"):
        epsilon(**(ONE | given))


def test_what_the_others_refuse() -> None:
    def refuses(message: str) -> Any:
        return pytest.raises(IsthmusError, match=f"^{re.escape(message)}$")

    rows = draw(3)
    broken = rows.clone()
    broken[1, 1] = math.nan
    with refuses("rows of shape [4] must be [nodes, width], and every value finite."):
        neighbour_distances(rows[0], 1)
    with refuses("rows of shape [3, 4] must be [nodes, width], and every value finite."):
        neighbour_distances(broken, 1)
    with refuses("k is 0; it must be 1 or more: the k-th nearest neighbour is measured."):
        neighbour_distances(rows, 0)
    with refuses("There are no rows; percentiles need one or more."):
        rho_percentiles(draw(0))
    for percentile in (0, 101):
        with refuses(f"percentile is {percentile}; it must be above 0 and at most 100."):
            rho_percentiles(rows, percentiles=(percentile,))
