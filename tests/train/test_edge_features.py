"""Features of edges that no layer of a model reads are told of."""

import pytest

from tests.helpers.small import open_method, owners, small_graph


@pytest.mark.parametrize(
    ("model", "edge_task", "says"),
    [
        ("sage", False, "nothing reads them, since layers of sage do not; those of gin, gat, pna do."),
        ("gcn", True, "only the head reads them"),
        ("gin", False, ""),
        ("pna", True, ""),
    ],
)
def test_edge_features_that_nothing_reads_are_told_of(model: str, edge_task: bool, says: str) -> None:
    graph = small_graph(edge_task=edge_task)
    training = open_method("fedavg", graph, owners(3, graph.n), 3, model)
    told = [note for note in training.federation.notes if note.startswith("Edge features (2 columns)")]
    assert len(told) == bool(says)
    assert all(says in note for note in told)
