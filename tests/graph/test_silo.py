"""What a silo holds after a graph is cut, what it finds out about it once, and what of that lasts."""

import pytest
import torch

from isthmus.core.random import combine
from isthmus.core.tensors import by_value
from isthmus.graph.cut import split_graph
from isthmus.graph.silo import Silo, changed
from isthmus.testing.runs import owners, small_graph

SILOS = 4


def silos() -> list[Silo]:
    graph = small_graph(30, 90)
    return split_graph(graph, owners(SILOS), SILOS)


def test_a_silo_has_its_nodes_and_every_edge_that_touches_them():
    graph = small_graph(30, 90)
    owner = owners(SILOS)
    for silo in split_graph(graph, owner, SILOS):
        every = list(silo.ids) + list(silo.halo_ids)
        listed = [(every[a], every[b]) for a, b in silo.edge_index.T.tolist()]
        mine = {node for node in range(graph.n) if owner[node] == silo.number}
        assert listed == [(graph.ids[a], graph.ids[b]) for a, b in graph.edge_index.T.tolist() if mine & {a, b}]
        assert [graph.ids.tolist().index(i) for i in silo.ids] == sorted(mine)
        far = {graph.ids[n] for e in graph.edge_index.T.tolist() if mine & {*e} for n in e if n not in mine}
        assert sorted(silo.halo_ids) == sorted(far) and len(silo.halo_ids) == len(far)
        assert silo.halo_owner.tolist() == [int(owner[graph.ids.tolist().index(i)]) for i in silo.halo_ids]


def test_both_silos_list_their_common_edges_alike():
    made = silos()
    pairs = [(a, b) for a in made for b in made if b.number in a.cross_by_peer]
    assert len(pairs) > 4
    for a, b in pairs:
        assert torch.equal(a.cross_by_peer[b.number].keys, b.cross_by_peer[a.number].keys)
        for one, other in ((a, b), (b, a)):
            each = one.cross_by_peer[other.number]
            assert torch.equal(one.edge_keys[each.edges], each.keys)
    found = [torch.cat([each.edges for each in silo.cross_by_peer.values()]).sort().values for silo in made]
    assert all(torch.equal(edges, silo.crosses.nonzero().flatten()) for edges, silo in zip(found, made, strict=True))


@pytest.mark.parametrize(
    ("field", "stays"),
    [
        ("x", ["keys", "crosses", "edge_keys", "ports", "cross_by_peer"]),
        ("notes", ["keys", "crosses", "edge_keys", "ports", "cross_by_peer"]),
        ("edge_attr", ["keys", "crosses", "ports"]),
        ("edge_time", ["keys", "crosses"]),
        ("halo_owner", ["keys", "crosses", "edge_keys", "ports"]),
        ("edge_index", ["keys"]),
    ],
)
def test_what_was_found_out_lasts_as_long_as_what_it_follows_from(field: str, stays: list[str]):
    silo = silos()[0]
    known = {name: getattr(silo, name) for name in ("keys", "crosses", "edge_keys", "ports", "cross_by_peer")}
    other = changed(silo, **{field: getattr(silo, field)})
    assert {name for name, value in known.items() if other.__dict__.get(name) is value} == {*stays}


@pytest.mark.parametrize("count", [1, 5, 200, 40_000])
def test_places_are_grouped_by_the_number_that_stands_there(count: int):
    value = torch.randint(count, (300,), generator=torch.Generator().manual_seed(count))
    order, counts = by_value(value, count)
    assert order.tolist() == sorted(range(300), key=lambda i: (int(value[i]), i))
    assert counts == [int((value == number).sum()) for number in range(count)] if count < 1000 else sum(counts) == 300


def test_long_lists_of_keys_are_hashed_as_short_ones_are():
    a, b = (torch.randint(2**62, (70_000,), generator=torch.Generator().manual_seed(i)) for i in (0, 1))
    assert torch.equal(combine(a, b)[[0, 40_000, -1]], combine(a[[0, 40_000, -1]], b[[0, 40_000, -1]]))
