"""Scaling of features: what all silos decide together, that they decide alike wherever they are, and what crosses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.federation.federation import open_federation
from isthmus.federation.scaling import Scaling, scale_features, scaled_again
from isthmus.graph.cut import split_graph
from isthmus.graph.features import Features, SparseRows
from isthmus.graph.graph import Graph
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo
from isthmus.train.result import Result
from isthmus.wire.local import LocalWire
from tests.helpers.small import losses, numbers, small_graph

N = 60
THREE = torch.arange(N) % 3
RNG = np.random.default_rng(0)
SIZES = torch.logspace(-2, 3, 5)  # 0.01 to 1000
EXACT = "sync-sgd+fwd-bwd-le"


def draws(width: int) -> Tensor:
    return torch.from_numpy(RNG.normal(size=(N, width))).float()


def words(width: int, share: float) -> Tensor:
    """1 where a word is present."""
    return torch.from_numpy(RNG.random((N, width)) < share).float()


def one_hots_and(column: Tensor) -> Tensor:
    return torch.cat([torch.eye(40)[torch.arange(N) % 40], column[:, None]], 1)


def graph_of(x: Features, edges: Tensor | None = None) -> Graph:
    graph = small_graph(N, 4 * N)
    attr = graph.edge_attr if edges is None or graph.edge_attr is None else graph.edge_attr * edges
    return replace(graph, x=x, edge_attr=attr, schema=replace(graph.schema, features=x.shape[1]))


def decided(x: Features, how: str = "auto", agreed: bool = True) -> tuple[list[Silo], dict[str, Scaling]]:
    graph = graph_of(x)
    return scale_features(LocalWire(3), split_graph(graph, THREE, 3), graph.schema, how, agreed)


KINDS: dict[str, tuple[Features, str, str]] = {
    "words of a few papers": (SparseRows.from_dense(words(200, 0.05)), "none", "bag of words: 5.1%"),
    "the same stored densely": (words(200, 0.05), "none", "bag of words"),
    "shares of words": (SparseRows.from_dense(words(200, 0.05) / 30), "lengths", "those are of about 0.033"),
    "counts of words in books": (500 * words(200, 0.05), "lengths", "those are of about 5e+02"),
    "word counts": (words(200, 0.1) * torch.from_numpy(RNG.integers(1, 4, (N, 200))), "none", "bag of words"),
    "dense words": (words(767, 0.35), "columns", "row of their means is 9."),
    "dense words stored as sparse ones": (SparseRows.from_dense(words(767, 0.35)), "columns", "far from 0"),
    "dense words whose rows sum to 1": (words(767, 0.35) / 267, "columns", "about 0.0037"),
    "columns from 0.01 to 1000": (draws(5) * SIZES, "columns", "column '4' holds values of about"),
    "one small column": (torch.cat([draws(9), draws(1) / 100], 1), "columns", "column '9' holds values of about 0.0"),
    "one-hots and an income": (one_hots_and(50_000 + 9_000 * draws(1)[:, 0]), "columns", "column '40'"),
    "one-hots and a rare large amount": (one_hots_and(1e6 * words(1, 0.2)[:, 0]), "columns", "column '40'"),
    "standard normal columns": (draws(8), "none", "of like sizes"),
    "one-hots": (torch.eye(6)[torch.arange(N) % 6], "none", "of like sizes"),
    "a single 1": (torch.ones(N, 1), "none", "of like sizes"),
    "sparse columns with negative entries": (SparseRows.from_dense(words(200, 0.05) * draws(200)), "none", "sparse"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_auto_goes_by_what_the_features_are(kind: str) -> None:
    x, how, why = KINDS[kind]
    silos, scaling = decided(x)
    assert scaling["x"].how == how and why in scaling["x"].why, scaling["x"].why
    for silo in silos:
        assert isinstance(silo.x, SparseRows) == (isinstance(x, SparseRows) and how != "columns")


@pytest.mark.parametrize("kind", KINDS)
def test_one_silo_of_all_decides_and_scales_as_three_do(kind: str) -> None:
    graph = graph_of(KINDS[kind][0])
    silos, apart = decided(graph.x)
    [whole], alone = scale_features(LocalWire(1), [merge(split_graph(graph, THREE, 3))], graph.schema, "auto", True)
    assert {name: (s.how, s.why) for name, s in apart.items()} == {name: (s.how, s.why) for name, s in alone.items()}
    rows = [silo.x.dense() if isinstance(silo.x, SparseRows) else silo.x for silo in silos]
    assert torch.equal(torch.cat(rows), whole.x.dense() if isinstance(whole.x, SparseRows) else whole.x)


def test_rows_have_sum_or_length_1_and_columns_mean_0_and_deviation_1() -> None:
    for how, power in (("rows", 1), ("lengths", 2)):
        scaled = decided(words(200, 0.1), how)[0]
        assert torch.allclose(torch.cat([(silo.x**power).sum(1) for silo in scaled]), torch.ones(N))
    by_columns = torch.cat([silo.x for silo in decided(draws(5) * SIZES + 7, "columns")[0]])
    assert by_columns.mean(0).abs().max() < 1e-5 and (by_columns.std(0, correction=0) - 1).abs().max() < 1e-5


def test_a_constant_column_becomes_1_and_no_rounding_is_blown_up() -> None:
    x = torch.cat([torch.full((N, 1), 0.1), torch.full((N, 1), -3e5), torch.zeros(N, 1), draws(1)], 1)
    found = torch.cat([silo.x for silo in decided(x, "columns")[0]])
    assert torch.equal(found[:, :3], torch.tensor([[1.0, -1.0, 0.0]]).expand(N, 3))


def test_a_silo_does_not_decide_alone() -> None:
    """Two silos have even columns, one has not; all three scale, by the same moments."""
    x = draws(4)
    x[THREE == 2] *= 100
    silos, scaling = decided(x)
    assert scaling["x"].how == "columns" and scaling["x"].mean is not None
    assert torch.allclose(torch.cat([silo.x for silo in silos]).std(0, correction=0), torch.ones(4), atol=1e-5)


def test_with_moments_of_their_own_most_rows_decide() -> None:
    x = draws(4)
    x[THREE == 2] *= 100
    assert decided(x, agreed=False)[1]["x"].how == "none"  # a third of the rows
    x[THREE == 1] *= 100
    silos, scaling = decided(x, agreed=False)
    assert scaling["x"].how == "columns" and "each silo's own moments" in scaling["x"].sentence("Node features")
    for silo in silos:
        assert isinstance(silo.x, Tensor) and silo.x.mean(0).abs().max() < 1e-5


def test_edges_are_scaled_by_columns_and_a_cross_edge_alike_in_both_silos() -> None:
    graph = graph_of(draws(3), edges=torch.tensor([1e3, 1.0]))
    silos, scaling = scale_features(LocalWire(3), split_graph(graph, THREE, 3), graph.schema, "auto", True)
    assert (scaling["x"].how, scaling["edge_attr"].how) == ("none", "columns")
    [whole], _ = scale_features(LocalWire(1), [merge(split_graph(graph, THREE, 3))], graph.schema, "auto", True)
    assert whole.edge_attr is not None and whole.edge_attr.mean(0).abs().max() < 1e-5
    values = {tuple(row) for row in whole.edge_attr.tolist()}
    assert all(tuple(row) in values for silo in silos if silo.edge_attr is not None for row in silo.edge_attr.tolist())


def test_what_cannot_be_done_is_refused() -> None:
    with pytest.raises(IsthmusError, match="make sparse features dense, of which 5.*use data.scale=lengths"):
        decided(SparseRows.from_dense(words(200, 0.05)), "columns")
    with pytest.raises(IsthmusError, match="features are negative; use data.scale=columns"):
        decided(draws(5), "rows")
    with pytest.raises(
        IsthmusError, match="Unknown data.scale 'zscore'. Choose from: auto, columns, lengths, none, rows"
    ):
        decided(draws(5), "zscore")


def test_what_was_scaled_is_told_and_booked() -> None:
    def opened(how: str, x: Features) -> tuple[list[str], int]:
        wire = LocalWire(3)
        notes = open_federation(wire, split_graph(graph_of(x), THREE, 3), scale=how).notes
        return notes, wire.ledger.by_kind().get(Kind.STATISTICS, 0)

    [told], crossed = opened("auto", draws(5) * SIZES)
    assert told.startswith("Node features: columns scaled to mean 0 and deviation 1, by moments of all silos, because")
    there_and_back = 3 * 2 * 8
    edges = (2 * 2 + 1) + 2  # sums, counts and rows, then squares of two columns
    assert crossed == there_and_back * (6 + (2 * 5 + 1) + 5 + edges)
    assert opened("auto", words(200, 0.05)) == ([], there_and_back * (6 + edges))  # nothing is told of single words
    assert opened("none", draws(5) * SIZES) == ([], 0)


# ---- runs


def run(method: str, x: Features, **settings: Any) -> Result:
    table = {"train.epochs": 3, "train.lr": 0.05, "model.hidden": 8, **settings}
    return isthmus.fit(split_graph(graph_of(x), THREE, 3), method, "gcn", dtype="float64", settings=table)


@pytest.mark.parametrize("kind", ["columns from 0.01 to 1000", "dense words", "shares of words"])
def test_exact_equals_centralised_with_scaled_features(kind: str) -> None:
    exact, central = (numbers(losses(run(method, KINDS[kind][0]))) for method in (EXACT, "centralised"))
    torch.testing.assert_close(exact, central, rtol=1e-10, atol=0)
    plain = numbers(losses(run(EXACT, KINDS[kind][0], **{"data.scale": "none"})))
    assert (plain - exact).abs().max() > 1e-3


CASES = (("local", False), ("local-mlp", False), ("fedavg", True), ("optimes", True), ("centralised", True))


def test_who_scales_by_whose_moments() -> None:
    x = draws(5) * SIZES
    for method, agreed in CASES:
        table = {"train.epochs": 1, "model.hidden": 8}
        model = "mlp" if method == "local-mlp" else "gcn"
        result = isthmus.fit(split_graph(graph_of(x), THREE, 3), method, model, settings=table)
        assert result.training.federation.scaling["x"].agreed == agreed, method
    apart = run("fedavg", x, **{"train.statistics": "own"})
    assert not apart.training.federation.scaling["x"].agreed


def test_new_data_is_scaled_as_that_of_the_run_was() -> None:
    x = draws(5) * SIZES
    silos, scaling = decided(x)
    told = {name: each.as_dict() for name, each in scaling.items()}
    part = split_graph(graph_of(x), (THREE != 1).long(), 2)[0]
    assert torch.equal(scaled_again(part, told).x, silos[1].x)  # not by its own moments
    own = {"x": decided(x, agreed=False)[1]["x"].as_dict()}
    again = scaled_again(part, own).x
    assert "mean" not in own["x"] and isinstance(again, Tensor) and again.mean(0).abs().max() < 1e-5
    rows = {"x": Scaling("rows", "").as_dict()}
    words_again = scaled_again(replace(part, x=words(30, 0.3)[: part.n]), rows).x
    assert isinstance(words_again, Tensor) and torch.allclose(words_again.sum(1), torch.ones(part.n))
    assert scaled_again(part, {}) is part
