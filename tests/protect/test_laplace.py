"""Laplace noise: bounds, its distribution, what leaves unchanged, and what the accountant makes of it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.methods import catalogue
from isthmus.methods.compose import compose, tables_of
from isthmus.protect.accounting.accountant import guarantees
from isthmus.protect.accounting.charges import Charge, noise_of
from isthmus.protect.accounting.metric_dp import composed_epsilon
from isthmus.protect.accounting.privacy_loss import Loss, epsilons, loss_of
from isthmus.protect.base import Chain
from isthmus.protect.events import Bounded, GaussianNoise, LaplaceNoise, describe
from isthmus.protect.laplace import Laplace
from isthmus.protect.secrets import Noise, secrets_from_seed
from tests.helpers.small import run_method, small_graph

NOISE = LaplaceNoise(0.1, 0.2, "silo")


def parcel(rows: Tensor, kind: Kind = Kind.GRADIENTS) -> Parcel:
    """Payloads of silos 0, 1, ..., one row each."""
    silos = torch.arange(len(rows))
    return Parcel(kind, rows, Origin.whole(silos), Traffic.up(silos))


def noise(silos: int = 2) -> Noise:
    return Noise(secrets_from_seed(7, range(silos)))


# ---- the mechanism


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    st.floats(1e-6, 1e3),
    st.sampled_from([0.0, 0.5]),
)
def test_no_number_is_beyond_the_bound_before_its_noise(values: list[float], bound: float, scale: float) -> None:
    rows = torch.tensor([values], dtype=torch.float64)
    sealed = Chain((Laplace(bound=bound, scale=scale),)).seal(parcel(rows), noise())
    plain = sealed.rows if sealed.plain is None else sealed.plain
    assert float(plain.abs().max()) <= bound
    within = rows.abs() <= bound
    assert torch.equal(plain[within], rows[within]) and bool((plain.sign() == rows.sign()).all())


def test_noise_is_laplace_of_the_scale_that_was_asked_for() -> None:
    """Against the distribution itself, at every point: Kolmogorov and Smirnov, of 200,000 numbers of one secret."""
    scale, count = 0.3, 200_000
    left = Chain((Laplace(bound=1.0, scale=scale),)).seal(parcel(torch.zeros(1, count).double()), noise(1)).rows[0]
    x = np.sort(left.numpy()) / scale
    wanted = np.where(x < 0, np.exp(np.minimum(x, 0)) / 2, 1 - np.exp(-np.maximum(x, 0)) / 2)
    found = np.arange(1, count + 1) / count
    assert float(np.abs(found - wanted).max()) < 1.95 / math.sqrt(count)  # a thousandth of all draws are beyond
    assert float(left.abs().mean()) == pytest.approx(scale, rel=0.01)
    assert float(left.square().mean()) == pytest.approx(2 * scale**2, rel=0.02)


def test_other_kinds_and_what_the_server_made_leave_as_they_are() -> None:
    rows, chain = torch.randn(2, 5).double(), Chain((Laplace(bound=0.01, scale=1.0),))
    for kind in (Kind.PARAMETERS, Kind.EMBEDDINGS, Kind.STATISTICS):
        assert torch.equal(chain.seal(parcel(rows, kind), noise()).rows, rows) and not chain.separates(kind)
    down = Parcel(Kind.GRADIENTS, rows, Origin.server(2), Traffic.down(torch.arange(2)), by_server=True)
    assert torch.equal(chain.seal(down, noise()).rows, rows)


def test_without_bound_and_noise_nothing_is_done_and_without_noise_nothing_is_hidden() -> None:
    rows = 100 * torch.randn(2, 5).double()
    off, bounded = (Chain((each,)).seal(parcel(rows), noise()) for each in (Laplace(), Laplace(bound=1.0)))
    assert torch.equal(off.rows, rows) and off.events == ()
    assert bounded.events == (Bounded(1.0),) and describe(bounded.events) == "each number within 1, no noise"
    assert describe((NOISE,)) == "Laplace noise (each number within 0.1, scale 0.2)/silo"


def test_a_gradient_that_is_not_finite_leaves_as_noise_alone() -> None:
    rows = torch.tensor([[1.0, math.nan], [0.05, -0.02]], dtype=torch.float64)
    sealed = Chain((Laplace(bound=0.1, scale=0.2),)).seal(parcel(rows), noise())
    assert sealed.plain is not None and sealed.plain.tolist() == [[0, 0], [0.05, -0.02]]
    assert bool(torch.isfinite(sealed.rows).all())


@pytest.mark.parametrize(
    ("options", "why"),
    [({"bound": 0.0}, "protect.bound is 0.0; it must be positive"), ({"scale": -1.0}, "protect.scale is -1.0"),
     ({"scale": math.inf}, "protect.scale is inf"), ({"secrets": "none"}, "protect.secrets")],
)  # fmt: skip
def test_options_without_a_meaning_are_refused(options: dict[str, float], why: str) -> None:
    with pytest.raises(IsthmusError, match=why):
        Laplace(**options)


def test_its_options_imply_it_and_secrets_are_those_of_the_whole_chain() -> None:
    implied = compose(catalogue.get("sync-sgd"), {"protect": {"scale": 0.2, "bound": 0.1}})
    assert implied.protect == (Laplace(0.1, 0.2),)
    both = {"name": "gaussian,laplace", "secrets": "random", "scale": 0.5, "sigma": 1.0}
    chain = compose(catalogue.get("sync-sgd"), {"protect": both})
    assert [mechanism.secrets for mechanism in chain.protect] == ["random", "random"]
    assert compose(catalogue.get("sync-sgd"), tables_of(chain)).protect == chain.protect
    with pytest.raises(IsthmusError, match=r"no option protect.strength"):
        compose(catalogue.get("sync-sgd"), {"protect": {"strength": 1.0}})


# ---- the accountant


def test_epsilon_of_one_number_is_twice_the_bound_over_the_scale() -> None:
    """The density of two numbers at the ends of the bound differs by that factor at most, and attains it."""
    assert epsilons([loss_of(1, 1, NOISE)], 0.0) == [pytest.approx(1.0)]
    x = np.linspace(-5, 5, 10_001)
    ratio = (np.abs(x + NOISE.bound) - np.abs(x - NOISE.bound)) / NOISE.scale
    assert float(ratio.max()) == pytest.approx(1.0)


def test_releases_and_numbers_add_up() -> None:
    assert loss_of(7, 11, NOISE) == Loss(pytest.approx(7 * 11 / 2), pytest.approx(7 * 11))
    assert loss_of(0, 11, NOISE) == Loss() and loss_of(3, 2, None) == Loss(math.inf, math.inf)
    assert loss_of(1, 1, LaplaceNoise(math.inf, 0.2, "silo")).pure == math.inf


@pytest.mark.parametrize("alpha", [1.5, 2.0, 10.0])
@pytest.mark.parametrize("each", [0.1, 1.0, 4.0])
def test_the_renyi_bound_is_above_the_divergence(alpha: float, each: float) -> None:
    """Of two Laplace distributions at distance 2 bound, integrated by hand."""
    x = np.linspace(-40, 40, 800_001)
    p, q = (np.exp(-np.abs(x - at)) / 2 for at in (0.0, each))
    exact = math.log(float((p**alpha * q ** (1 - alpha)).sum() * (x[1] - x[0]))) / (alpha - 1)
    assert exact <= alpha * loss_of(1, 1, LaplaceNoise(each / 2, 1.0, "silo")).renyi * (1 + 1e-6)


def test_with_gaussian_noise_beside_it_both_are_composed_at_its_delta() -> None:
    gaussian = GaussianNoise(1.0, 2.0, "silo", 1e-5, 50)
    spent = {
        Kind.GRADIENTS: {"silo-0": (Charge(node=3, width=4), LaplaceNoise(0.01, 1.0, "silo"))},
        Kind.PARAMETERS: {"silo-0": (Charge(node=2, width=9), gaussian)},
    }
    everything, gradients, weights = guarantees(spent, [], [], edges=False)
    loss = 12 * 0.02**2 / 2 + 2 * (2 / 2.0) ** 2 / 2
    assert everything.epsilon == pytest.approx(float(composed_epsilon(loss, 1e-5))) and everything.delta == 1e-5
    assert (gradients.epsilon, gradients.delta) == (pytest.approx(12 * 0.02), 0.0)
    assert weights.epsilon == pytest.approx(float(composed_epsilon(1.0, 1e-5)))


def test_the_weakest_of_several_counts_and_two_kinds_of_noise_are_no_one_noise() -> None:
    weak = noise_of([(NOISE,), (LaplaceNoise(0.3, 0.5, "silo"),)])
    assert weak == LaplaceNoise(0.3, 0.2, "silo")
    assert noise_of([(NOISE,), (Bounded(0.1),)]) is None
    assert noise_of([(NOISE,), (GaussianNoise(1.0, 1.0, "silo", 1e-4, 50),)]) is None


def test_a_run_says_the_honest_total_of_numbers_and_steps() -> None:
    result = run_method("fedpergnn", small_graph(30, 140), torch.arange(30) % 3, 3, steps=5)
    everything, told = privacy_of(result.training, take_account(result.training))
    width = sum(p[0].numel() for p in result.training.learner.classifier.sets.parameters.values())
    assert told.epsilon == pytest.approx(5 * width * 2 * 0.1 / 0.2, rel=1e-12)
    assert (told.of, told.unit, told.delta, told.releases) == ("gradients", "node", 0.0, 5)
    assert everything.epsilon == pytest.approx(2 * told.epsilon) and everything.unit == "edge"  # edges have attributes
