"""All releases of a row together: noise averaged away, parameters that moved, blocks of releases, clipping."""

import pytest
import torch
from torch import Tensor

from isthmus.audit.attributes import Prior
from isthmus.audit.history import History
from isthmus.audit.stacked_releases import LinearViews, estimate

FEATURES, WIDTH = 6, 4


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def people(count: int = 400) -> tuple[Tensor, Prior]:
    """Features that hang together, and what is known of them beforehand."""
    x = drawn(count, FEATURES, seed=1) @ drawn(FEATURES, FEATURES, seed=2) + drawn(FEATURES, seed=3)
    return x, Prior.of(count, x.sum(0), x.T @ x)


def released(x: Tensor, views: int, sigma: float = 0.0, width: int = WIDTH, seed: int = 4) -> LinearViews:
    """Releases of rows by parameters that are other ones at every release."""
    slope, offset = drawn(views, width, FEATURES, seed=seed), drawn(views, width, seed=seed + 1)
    rows = torch.einsum("vwf,tf->tvw", slope, x) + offset + sigma * drawn(len(x), views, width, seed=seed + 2)
    return LinearViews(slope, offset, rows, torch.full((len(x), views), sigma, dtype=x.dtype))


def error(found: Tensor, true: Tensor) -> float:
    return float((found - true).square().mean())


def guess_error(prior: Prior, x: Tensor) -> float:
    return error(prior.mean.expand_as(x), x)


def by_the_book(prior: Prior, views: LinearViews) -> Tensor:
    """mu + S E^T (E S E^T + N)^-1 (r - c - E mu), with everything stacked and written out, target by target."""
    slope, offset = views.slope.flatten(0, 1), views.offset.flatten()
    covariance, out = prior.root @ prior.root.T, []
    for rows, noise in zip(views.rows, views.noise, strict=True):
        spread = torch.diag(noise.repeat_interleave(views.slope.shape[1]).square())
        gain = covariance @ slope.T @ torch.linalg.inv(slope @ covariance @ slope.T + spread)
        out.append(prior.mean + gain @ (rows.flatten() - offset - slope @ prior.mean))
    return torch.stack(out)


@pytest.mark.parametrize("views", [1, 2, 5])  # fewer equations than features, more, many more
def test_the_estimate_is_the_posterior_mean(views: int) -> None:
    x, prior = people()
    seen = released(x[:30], views, sigma=0.7)
    assert torch.allclose(estimate(prior, seen), by_the_book(prior, seen), atol=1e-9)


def test_views_of_different_noise_weigh_differently() -> None:
    x, prior = people()
    seen = released(x[:30], 4, sigma=0.7)
    noise = torch.tensor([0.7, 0.7, 1.4, 2.8], dtype=x.dtype).expand(30, 4)
    seen = LinearViews(seen.slope, seen.offset, seen.rows, noise)
    assert torch.allclose(estimate(prior, seen), by_the_book(prior, seen), atol=1e-9)


def test_without_noise_two_narrow_releases_show_what_one_cannot() -> None:
    """Four columns do not hold six features; eight, made by two sets of parameters, do."""
    x, prior = people()
    one, two = (error(estimate(prior, released(x[:50], views)), x[:50]) for views in (1, 2))
    assert two < 1e-16 < 0.01 < one


def test_many_releases_average_noise_away() -> None:
    """From 42 releases the error falls about as if noise were smaller by the root of 42; from one it stays large."""
    x, prior = people()
    seen = released(x[:200], 42, sigma=3.0, width=8)
    last = LinearViews(seen.slope[-1:], seen.offset[-1:], seen.rows[:, -1:], seen.noise[:, -1:])
    fine = released(x[:200], 1, sigma=3.0 / 42**0.5, width=8)
    all_of_them, alone, finer = (error(estimate(prior, each), x[:200]) for each in (seen, last, fine))
    assert all_of_them < 0.25 * alone and all_of_them < 1.5 * finer


def test_noise_leads_back_to_the_guess() -> None:
    x, prior = people()
    found = [error(estimate(prior, released(x[:200], 3, sigma)), x[:200]) for sigma in (0.0, 0.3, 3.0, 30.0, 3000.0)]
    assert found == sorted(found) and found[0] < 1e-16
    assert found[-1] == pytest.approx(guess_error(prior, x[:200]), rel=0.01)


def test_a_release_that_a_target_had_no_part_in_is_not_read() -> None:
    x, prior = people()
    seen = released(x[:20], 3, sigma=0.5)
    noise = seen.noise.clone()
    noise[::2, 1] = torch.inf
    rows = seen.rows.clone()
    rows[::2, 1] = 1e6
    found = estimate(prior, LinearViews(seen.slope, seen.offset, rows, noise))
    some = torch.tensor([0, 2])
    fewer = LinearViews(seen.slope[some], seen.offset[some], seen.rows[:, some], seen.noise[:, some])
    assert torch.allclose(found[::2], estimate(prior, fewer)[::2], atol=1e-9)
    assert torch.allclose(found[1::2], estimate(prior, seen)[1::2], atol=1e-9)


def test_length_that_clipping_took_away_is_found_again() -> None:
    x, prior = people()
    seen = released(x[:50], 1, width=9)
    length = seen.rows.norm(dim=2, keepdim=True)
    clip = float(length.median())
    rows = seen.rows * (clip / length).clamp(max=1)
    noise = torch.full((50, 1), 1e-9, dtype=x.dtype)
    aware, unaware = (
        error(estimate(prior, LinearViews(seen.slope, seen.offset, rows, noise, at)), x[:50])
        for at in (clip, torch.inf)
    )
    assert aware < 1e-12 < 0.01 < unaware


# ---- blocks of releases


def history_of(events: int, most: int, nodes: int = 3) -> tuple[History, Tensor]:
    rows, history = drawn(events, nodes, 2), History(nodes, most)
    for event in range(events):
        history.add(torch.arange(nodes), rows[event], {"enter.weight": torch.tensor([float(event)])})
    return history, rows


@pytest.mark.parametrize("events", [1, 4, 5, 37])
def test_no_release_is_lost_and_the_last_one_stays_by_itself(events: int) -> None:
    history, rows = history_of(events, most=4)
    assert len(history.blocks) == min(events, 5)
    assert history.counts.tolist() == [events] * 3
    assert sum(block.events for block in history.blocks) == events
    assert torch.allclose(sum(block.rows for block in history.blocks), rows.sum(0))  # type: ignore[arg-type]
    assert history.blocks[-1].events == 1 and torch.equal(history.blocks[-1].mean, rows[-1])
    means = [float(block.mean_parameters()["enter.weight"]) for block in history.blocks]
    sizes = [block.events for block in history.blocks]
    assert means == sorted(means) and sum(m * n for m, n in zip(means, sizes, strict=True)) == sum(range(events))
    assert max(sizes) <= 4 * max(1, events // 4)


def test_rows_that_did_not_leave_are_not_counted_and_copies_count_once() -> None:
    history = History(3, 2)
    history.add(torch.tensor([0, 2, 2]), torch.tensor([[1.0], [5.0], [5.0]]), {})
    history.add(torch.tensor([2]), torch.tensor([[7.0]]), {})
    assert history.counts.tolist() == [1, 0, 2]
    joined = history.blocks[0].join(history.blocks[1])
    assert joined.mean.flatten().tolist() == [1.0, 0.0, 6.0]


def test_releases_wait_for_parameters_that_are_not_known_yet() -> None:
    history = History(1, 2)
    for event in range(5):
        history.add(torch.tensor([0]), torch.tensor([[float(event)]]), None)
    assert len(history.blocks) == 1  # whatever becomes known will be known of all of them
    history.settle({"enter.weight": torch.tensor([3.0])})
    assert float(history.blocks[0].mean_parameters()["enter.weight"]) == 3.0
    assert float(history.blocks[0].mean) == 2.0 and history.counts.tolist() == [5]
    assert len(history.coarser(1).blocks) == 1
