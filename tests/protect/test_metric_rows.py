"""Metric figures of released embeddings: one set of neighbours over layers, equal rows found out, samples named."""

import math

import pytest
import torch
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.protect.accounting import metric_rows
from isthmus.protect.accounting.guarantee import DP, METRIC, OF_A_SAMPLE, ROW, headline
from isthmus.protect.accounting.metric_dp import epsilon
from isthmus.protect.accounting.metric_rows import homogeneity_note, metric_figures, metric_guarantee
from isthmus.protect.accounting.neighbours import nearest
from isthmus.protect.events import GaussianNoise
from isthmus.protect.releases import Releases
from tests.helpers.small import run_method, small_graph

NOISE = GaussianNoise(clip=5.0, sigma=0.7, hidden="row", delta=1e-4, neighbours=1)


def released(*layers: Tensor, times: int = 1) -> Releases:
    """A book in which all rows of each layer left so many times."""
    book = Releases()
    book.open(len(layers[0]))
    for layer, rows in enumerate(layers):
        for _ in range(times):
            book.record(Kind.EMBEDDINGS, layer, torch.arange(len(rows)), rows, rows)
    return book


def points(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_neighbours_are_the_same_nodes_at_every_layer() -> None:
    """Node 0 has a near neighbour at each layer, but never the same one: no node is near at both."""
    first, second = points(0, 0.1, 3, 9), points(0, 3, 0.1, 9)
    found = metric_figures(released(first, second, times=4), slice(0, 4), NOISE)
    assert found is not None
    one_set = 4 * (0.1**2 + 3**2)
    assert float(found.epsilon[0]) == pytest.approx(float(epsilon(1, 0.7, math.sqrt(one_set), 1e-4)))
    apart = 4 * (0.1**2 + 0.1**2)
    assert float(found.epsilon[0]) > 3 * float(epsilon(1, 0.7, math.sqrt(apart), 1e-4))
    assert float(found.rho[0]) == pytest.approx(math.sqrt(one_set / 8))


def test_only_nodes_that_left_at_the_same_layers_are_neighbours() -> None:
    """Of node 2 nothing is known at layer 1, so that node 0, which left at both, is not hidden beside it."""
    rows = [points(0, 5, 0.1), points(0, 5, 0.0)]
    counts = torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = nearest(rows, counts, 1, torch.arange(3))
    assert found.squared.tolist() == pytest.approx([50, 50, 0.01]) and found.others.tolist() == [1, 1, 2]


def test_equal_rows_are_found_out() -> None:
    """Three distinct rows of 200 nodes each: epsilon at rho is 0, and what it is worth is said."""
    rows = torch.tensor([[0.0, 1.0], [2.0, 0.0], [-1.0, -1.0]], dtype=torch.float64).repeat(200, 1)
    noise = GaussianNoise(5.0, 0.01, "row", 1e-4, neighbours=50)
    found = metric_figures(released(rows), slice(0, 600), noise)
    assert found is not None and found.epsilon.tolist() == [0.0] * 5
    assert (found.homogeneous, found.distinct) == (600, (1, 1))
    assert "says nothing of 600 of 600 nodes" in homogeneity_note({"silo-0": found})
    moved = rows + 1e-9 * torch.arange(600)[:, None]  # not equal, and still told apart at a glance
    near = metric_figures(released(moved), slice(0, 600), noise)
    assert near is not None and (near.homogeneous, near.distinct[0]) == (0, 51)
    assert homogeneity_note({"silo-0": near}) == "" and float(near.rho[-1]) < 1e-5 * near.spread


def test_spread_is_the_distance_of_two_rows_at_random() -> None:
    rows = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = metric_figures(released(rows), slice(0, 40), NOISE)
    every = (rows[:, None] - rows[None]).square().sum(2)
    assert found is not None and found.spread == pytest.approx(float(every.mean().sqrt()))


def test_the_worst_node_of_a_sample_is_called_that(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rows[17] = 50.0  # alone, far from all others
    book = released(rows)
    whole = metric_figures(book, slice(0, 60), NOISE)
    monkeypatch.setattr(metric_rows, "MOST", 60 * 10)
    some = metric_figures(book, slice(0, 60), NOISE)
    assert whole is not None and some is not None
    assert (whole.measured, some.measured, some.nodes) == (60, 10, 60)
    assert float(whole.epsilon[-1]) > float(some.epsilon[-1])
    assert "epsilon of a sample" in some.as_dict() and "epsilon" not in some.as_dict() and "epsilon" in whole.as_dict()
    assert metric_guarantee({"a": whole}, NOISE).notion == METRIC
    assert metric_guarantee({"a": whole, "b": some}, NOISE).notion == OF_A_SAMPLE


def test_rows_of_a_model_that_diverged_are_like_no_others() -> None:
    found = metric_figures(released(points(0, 1, math.nan)), slice(0, 3), NOISE)
    assert found is not None and found.epsilon.tolist()[-1] == math.inf and found.epsilon.tolist()[0] < math.inf


def test_a_node_alone_is_hidden_among_nobody() -> None:
    found = metric_figures(released(points(1)), slice(0, 1), NOISE)
    assert (
        found is not None and found.epsilon.tolist() == [math.inf] * 5 and (found.others, found.homogeneous) == (0, 0)
    )


def test_a_run_of_equal_rows_is_not_known_by_an_epsilon_of_zero() -> None:
    """Three feature vectors for all nodes, hardly any noise: the worst case has a huge epsilon, and a note says why."""
    graph = small_graph(60, 240)
    graph.x[:] = graph.x[torch.arange(60) % 3]
    protect = {"clip": 5.0, "sigma": 0.01, "neighbours": 5}
    made = {"options": {"protect": protect}, "model_options": {"layers": 1}, "epochs": 2}
    training = run_method("ce-fedgnn", graph, torch.arange(60) % 2, 2, **made).training
    found = privacy_of(training, take_account(training))
    (metric,) = [each for each in found if each.notion != DP]
    (rows,) = [each for each in found if (each.of, each.unit, each.notion) == ("embeddings", ROW, DP)]
    assert metric.epsilon == 0 and sum(silo["homogeneous"] for silo in metric.silos.values()) > 40
    assert rows.epsilon > 500_000 and headline(found).epsilon == math.inf  # parameters left as they are
    assert any("says nothing of" in note for note in training.federation.notes)
