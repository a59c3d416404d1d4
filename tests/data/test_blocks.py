import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from isthmus.core.errors import IsthmusError
from isthmus.data.blocks import blocks
from isthmus.graph.graph import TEST, TRAIN
from isthmus.graph.partition import partition
from isthmus.graph.stats import split_statistics


def test_the_graph_is_simple_and_undirected_with_the_degree_asked_for():
    graph = blocks(nodes=2000, classes=4, degree=10.0)
    edges = {tuple(edge) for edge in graph.edge_index.T.tolist()}
    assert len(edges) == graph.m == 20_000
    assert all((target, source) in edges and source != target for source, target in edges)


@pytest.mark.parametrize("homophily", [0.0, 0.3, 1.0])
def test_homophily_is_the_share_of_edges_within_classes(homophily: float):
    graph = blocks(nodes=5000, degree=8.0, homophily=homophily)
    within = graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]
    assert within.double().mean().item() == pytest.approx(homophily, abs=0.02)


def test_neighbours_tell_more_than_the_node_itself():
    graph = blocks(nodes=4000, seed=1)
    source, target = graph.edge_index
    degree = torch.bincount(target, minlength=graph.n).clamp(min=1)
    around = torch.zeros_like(graph.x).index_add_(0, target, graph.x[source]) / degree[:, None]
    train, test = graph.split == TRAIN, graph.split == TEST
    scores = []
    for x in (graph.x, torch.cat([graph.x, around], 1)):
        fit = LogisticRegression(max_iter=200).fit(x[train], graph.y[train])
        scores.append(fit.score(x[test], graph.y[test]))
    assert scores[0] + 0.3 < scores[1]


def test_splitting_by_bank_cuts_most_edges_and_by_class_few():
    graph = blocks(nodes=4000)
    by_bank = split_statistics(graph, partition(graph, "attribute:bank", 10), 10)
    by_class = split_statistics(graph, partition(graph, "attribute:class", 8), 8)
    assert by_bank.cut > 0.85 and by_bank.label_distance < 0.1
    assert by_class.cut < 0.25 and by_class.label_distance == pytest.approx(7 / 8)


def test_seed_and_split():
    graph = blocks(nodes=3000, degree=4.0, seed=5)
    again, other = blocks(nodes=3000, degree=4.0, seed=5), blocks(nodes=3000, degree=4.0, seed=6)
    assert torch.equal(graph.edge_index, again.edge_index) and torch.equal(graph.x, again.x)
    assert not torch.equal(graph.edge_index, other.edge_index)
    assert np.bincount(graph.split.numpy())[1:] / 3000 == pytest.approx([0.6, 0.2, 0.2], abs=0.03)
    assert torch.bincount(graph.y).tolist() == [375] * 8


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": 20}, "four nodes for each class"),
        ({"nodes": 100, "degree": 50.0}, "degrees up to 6.25, not 50.0"),
        ({"degree": 0.0}, "not 0.0"),
        ({"homophily": 1.5}, "0 to 1"),
        ({"classes": 1, "homophily": 0.5}, "1 for a single class"),
    ],
)
def test_errors_say_what_to_do(options: dict, says: str):
    with pytest.raises(IsthmusError, match=says):
        blocks(**options)
