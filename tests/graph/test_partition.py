import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import IsthmusError
from isthmus.graph.communities import louvain, pack_into_silos, simple_adjacency
from isthmus.graph.graph import TRAIN, Graph, Schema
from isthmus.graph.partition import PARTITIONERS, check_owner, partition
from isthmus.graph.stats import simple_pairs, split_statistics

HOW = ("louvain", "metis", "random", "label:0.5", "attribute:branch")


def graph_of(n: int, m: int, seed: int = 0, components: int = 1) -> Graph:
    """A random multigraph with self-loops, parallel edges and isolated nodes."""
    rng = np.random.default_rng(seed)
    component = torch.arange(n) * components // n
    edges = torch.from_numpy(rng.integers(n, size=(2, m)))
    return Graph(
        ids=rng.permutation(10 * n)[:n],
        x=torch.ones(n, 1),
        edge_index=edges[:, component[edges[0]] == component[edges[1]]],
        schema=Schema(1, ("a", "b", "c")),
        y=torch.from_numpy(rng.integers(-1, 3, size=n)),
        split=torch.from_numpy(rng.integers(4, size=n).astype(np.int8)),
        columns={"branch": np.array([f"b{i % 11}" for i in range(n)]), "one": np.zeros(n, dtype=int)},
        component=component if components > 1 else None,
    )


def clusters(count: int, size: int) -> Graph:
    """Cliques joined into a ring by one edge each, whose communities are obvious."""
    pairs = [(c * size + i, c * size + j) for c in range(count) for i in range(size) for j in range(i)]
    pairs += [(c * size, (c + 1) % count * size) for c in range(count)]
    edges = torch.tensor(pairs).T
    n = count * size
    return Graph(np.arange(n), torch.ones(n, 1), edges, Schema(1, ("a",)), y=torch.zeros(n, dtype=torch.int64))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(HOW), st.integers(11, 60), st.integers(0, 200), st.integers(1, 11), st.integers(0, 3))
def test_every_node_has_one_owner_and_no_silo_is_empty(how: str, n: int, m: int, silos: int, seed: int):
    graph = graph_of(n, m, seed)
    owner = partition(graph, how, silos, seed)
    check_owner(graph, owner, silos)
    assert owner.dtype == torch.int64
    assert set(owner.tolist()) == set(range(silos))


@pytest.mark.parametrize("how", HOW)
def test_the_same_seed_gives_the_same_split_whatever_was_drawn_before(how: str):
    graph = graph_of(300, 900)
    random.seed(1)
    first = partition(graph, how, 4, seed=3)
    random.seed(2)
    state = random.getstate()
    assert torch.equal(first, partition(graph, how, 4, seed=3))
    assert random.getstate() == state  # nobody's generator is touched


@pytest.mark.parametrize("how", HOW[:4])
def test_another_seed_gives_another_split(how: str):
    graph = graph_of(300, 900)
    assert not torch.equal(partition(graph, how, 4, seed=0), partition(graph, how, 4, seed=1))


@pytest.mark.parametrize("how", ["random", "label:0.5"])
def test_the_owner_of_a_node_does_not_depend_on_row_order(how: str):
    graph = graph_of(200, 0)
    turned = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    other = Graph(graph.ids[turned], graph.x, graph.edge_index, graph.schema, y=graph.y[turned])
    assert torch.equal(partition(graph, how, 4)[turned], partition(other, how, 4))


@pytest.mark.parametrize("how", ["louvain", "metis", "random"])
def test_independent_graphs_are_split_one_by_one(how: str):
    graph = graph_of(90, 400, components=3)
    owner = partition(graph, how, 4)
    for number in range(3):
        rows = (graph.component == number).nonzero().flatten()
        inside = (graph.component[graph.edge_index[0]] == number).nonzero().flatten()
        alone = Graph(graph.ids[rows], graph.x[rows], graph.edge_index[:, inside] - int(rows[0]), graph.schema)
        assert torch.equal(owner[rows], partition(alone, how, 4))


@pytest.mark.parametrize("how", ["louvain", "metis"])
def test_communities_stay_whole_and_parallel_edges_do_not_matter(how: str):
    graph = clusters(6, 8)
    owner = partition(graph, how, 3)
    assert (owner.view(6, 8) == owner.view(6, 8)[:, :1]).all()
    assert torch.bincount(owner).tolist() == [16, 16, 16]
    doubled = Graph(graph.ids, graph.x, graph.edge_index.repeat(1, 130).flip(0), graph.schema)
    assert torch.equal(owner, partition(doubled, how, 3))


def test_louvain_cuts_a_community_that_is_larger_than_a_share():
    graph = clusters(2, 12)
    assert torch.bincount(partition(graph, "louvain", 2)).tolist() == [12, 12]
    assert torch.bincount(partition(graph, "louvain", 6)).tolist() == [4] * 6
    community = louvain(simple_adjacency(graph.edge_index.numpy(), 24), 4.0, 1.0, 0)
    assert np.bincount(community).max() <= 4


def test_metis_communities_are_packed_into_equal_silos():
    graph = graph_of(600, 2400)
    size = torch.bincount(partition(graph, "metis", 5, communities=60))
    assert size.max() - size.min() <= 12  # a community holds about ten nodes


def test_parts_are_split_without_directions_loops_and_parallel_edges():
    matrix = simple_adjacency(np.array([[0, 1, 0, 2, 2] * 130, [1, 0, 1, 2, 1] * 130]), 4)
    assert matrix.toarray().astype(int).tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


def test_metis_fills_every_silo_even_with_hardly_a_node_for_each():
    path = torch.stack([torch.arange(9), torch.arange(1, 10)])
    graph = Graph(np.arange(10), torch.ones(10, 1), path, Schema(1, ("a",)))
    assert sorted(torch.bincount(partition(graph, "metis", 9)).tolist()) == [1] * 8 + [2]


def test_the_largest_community_is_packed_first():
    assert pack_into_silos(np.array([0, 1, 2, 3, 3, 3]), 2).tolist() == [1, 1, 1, 0, 0, 0]


@given(st.lists(st.integers(1, 20), min_size=3, max_size=30))
def test_greedy_packing_differs_by_one_community_at_most(sizes: list[int]):
    community = np.repeat(np.arange(len(sizes)), sizes)
    owner = pack_into_silos(community, 3)
    assert all(len(set(owner[community == c])) == 1 for c in range(len(sizes)))
    size = np.bincount(owner, minlength=3)
    assert size.max() - size.min() <= max(sizes)


def test_label_skew_grows_as_alpha_shrinks():
    graph = graph_of(3000, 0)
    spread = [
        split_statistics(graph, partition(graph, f"label:{alpha}", 5), 5).label_distance for alpha in (1000, 1, 0.05)
    ]
    assert spread[0] < 0.05 < spread[1] < spread[2]


def test_an_attribute_value_is_one_silo_and_further_values_are_packed():
    graph = graph_of(110, 50)
    owner = partition(graph, "attribute:branch", 11)
    _, code = np.unique(graph.columns["branch"], return_inverse=True)
    assert owner.tolist() == code.tolist()
    packed = partition(graph, "attribute:branch", 4)
    assert all(len(set(packed[code == c].tolist())) == 1 for c in range(11))
    assert sorted(torch.bincount(packed).tolist()) == [20, 30, 30, 30]


@pytest.mark.parametrize(
    ("how", "silos", "options", "says"),
    [
        ("louvian", 2, {}, "Did you mean 'louvain'?"),
        ("louvain:3", 2, {}, "as 'louvain'"),
        ("label", 2, {}, "as 'label:ALPHA'"),
        ("label:", 2, {}, "as 'label:ALPHA'"),
        ("label:-1", 2, {}, "positive number, not '-1'"),
        ("label:nan", 2, {}, "positive number, not 'nan'"),
        ("label:much", 2, {}, "positive number, not 'much'"),
        ("attribute:bank", 2, {}, "Choose from: branch, one"),
        ("attribute:one", 2, {}, "has 1 values for 2 silos"),
        ("random", 0, {}, "between 0 silos"),
        ("random", 21, {}, "choose 1 to 20 silos"),
        ("random", 2, {"resolution": 2.0}, "takes no resolution"),
        ("louvain", 2, {"communities": 9}, "takes no communities"),
        ("louvain", 2, {"resolution": -1.0}, "positive number, not -1.0"),
        ("metis", 4, {"communities": 3}, "choose more communities"),
    ],
)
def test_errors_say_what_to_do(how: str, silos: int, options: dict, says: str):
    with pytest.raises(IsthmusError, match="^[^\n]*$") as caught:
        partition(graph_of(20, 40), how, silos, **options)
    assert says in str(caught.value)


def test_small_independent_graphs_and_missing_labels_are_refused():
    with pytest.raises(IsthmusError, match="has 4 nodes for 5 silos"):
        partition(graph_of(12, 20, components=3), "metis", 5)
    graph = graph_of(12, 20)
    bare = Graph(graph.ids, graph.x, graph.edge_index, graph.schema)
    with pytest.raises(IsthmusError, match="needs node labels"):
        partition(bare, "label:1", 2)
    with pytest.raises(IsthmusError, match="no attribute columns"):
        partition(bare, "attribute:bank", 2)


def test_owners_are_checked():
    graph = graph_of(5, 4)
    with pytest.raises(IsthmusError, match="for 5 nodes"):
        check_owner(graph, torch.zeros(4, dtype=torch.int64), 2)
    with pytest.raises(IsthmusError, match=f"Node {graph.ids[3]} belongs to silo 2; silos are numbered 0 to 1"):
        check_owner(graph, torch.tensor([0, 1, 0, 2, 0]), 2)


def test_every_partitioner_is_tested_here():
    assert {how.partition(":")[0] for how in HOW} == {usage.partition(":")[0] for usage in PARTITIONERS}


def test_statistics_of_a_split_counted_by_hand():
    edges = torch.tensor([[0, 1, 0, 0, 2, 3, 4], [1, 0, 1, 2, 3, 3, 0]])
    graph = Graph(
        np.arange(5),
        torch.ones(5, 1),
        edges,
        Schema(1, ("a", "b")),
        y=torch.tensor([0, 0, 1, 1, -1]),
        split=torch.tensor([TRAIN, 0, TRAIN, TRAIN, 0], dtype=torch.int8),
    )
    stats = split_statistics(graph, torch.tensor([0, 0, 1, 1, 1]), 2)
    left, right = stats.silos
    assert (left.nodes, left.training, left.inner, left.cross) == (2, 1, 3, 2)
    assert (left.inner_pairs, left.cross_pairs, left.label_distance) == (1, 2, 0.5)
    assert (right.nodes, right.training, right.inner, right.cross) == (3, 2, 2, 2)
    assert (right.inner_pairs, right.cross_pairs, right.label_distance) == (1, 2, 0.5)
    assert (stats.edges, stats.cross, stats.pairs, stats.cross_pairs, stats.cut) == (7, 2, 4, 2, 0.5)


def test_label_distance_of_tasks_and_of_edge_labels():
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    y = torch.tensor([[1, 0], [1, -1], [0, 1], [0, 0]])
    graph = Graph(np.arange(4), torch.ones(4, 1), edges, Schema(1, ("p", "q"), task="tasks"), y=y)
    owner = torch.tensor([0, 0, 1, 1])
    # Task p: rates 1 and 0 against 1/2; task q: rates 0 and 1/2 against 1/3.
    assert split_statistics(graph, owner, 2).silos[0].label_distance == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert split_statistics(graph, owner, 2).silos[1].label_distance == pytest.approx((1 / 2 + 1 / 6) / 2)
    by_edge = Graph(
        np.arange(4),
        torch.ones(4, 1),
        edges,
        Schema(1, ("a", "b"), target="edge"),
        edge_y=torch.tensor([0, 0, 1]),
        edge_split=torch.full((3,), TRAIN, dtype=torch.int8),
    )
    stats = split_statistics(by_edge, owner, 2)
    assert [silo.training for silo in stats.silos] == [2, 2]
    assert stats.training == 3
    assert [silo.label_distance for silo in stats.silos] == pytest.approx([1 / 3, 1 / 6])


@given(st.integers(2, 12), st.integers(0, 60), st.integers(0, 5))
@settings(deadline=None)
def test_inner_and_cross_edges_add_up(n: int, m: int, seed: int):
    graph = graph_of(n, m, seed)
    stats = split_statistics(graph, torch.arange(n) % 2, 2)
    assert sum(silo.inner for silo in stats.silos) + stats.cross == graph.m
    simple = {frozenset(edge) for edge in graph.edge_index.T.tolist() if edge[0] != edge[1]}
    assert stats.pairs == len(simple) == simple_pairs(graph.edge_index, n).shape[1]
    assert sum(silo.inner_pairs for silo in stats.silos) + stats.cross_pairs == stats.pairs
