"""Silo graphs and the handshake: every edge where it belongs, plans that mirror, lies found out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import IsthmusError
from isthmus.federation.cross_edges import compare_edges
from isthmus.federation.federation import open_federation
from isthmus.federation.handshake import plan_halo
from isthmus.federation.schema_agreement import agree_schema
from isthmus.graph.cut import split_graph
from isthmus.graph.merged import merge
from isthmus.graph.silo import Silo, parallel_rank
from isthmus.wire.local import LocalWire
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.letters import in_threads
from tests.helpers.small import small_graph, without_edges


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[Silo], int]:
    nodes, silos = draw(st.integers(1, 25)), draw(st.integers(1, 6))
    owner = torch.tensor(draw(st.lists(st.integers(0, silos - 1), min_size=nodes, max_size=nodes)))
    graph = small_graph(nodes, draw(st.integers(0, 80)), draw(st.integers(0, 999)))
    return split_graph(graph, owner, silos), silos


@given(splits())
@settings(max_examples=60, deadline=None)
def test_plans_mirror_and_every_halo_row_has_its_owner(case: tuple[list[Silo], int]) -> None:
    silos, count = case
    plan = plan_halo(LocalWire(count), silos)
    for (mine, peer), rows in plan.fill.items():
        theirs = plan.send[peer, mine]
        assert torch.equal(silos[mine].keys[rows], silos[peer].keys[theirs])
        assert bool((theirs < silos[peer].n).all())
    for silo in silos:
        filled = [rows for (mine, _), rows in plan.fill.items() if mine == silo.number]
        every = torch.cat(filled).sort().values if filled else torch.zeros(0)
        assert every.tolist() == list(range(silo.n, silo.n + silo.h))


@given(splits())
@settings(max_examples=60, deadline=None)
def test_each_silo_holds_exactly_the_edges_that_touch_its_nodes(case: tuple[list[Silo], int]) -> None:
    silos, count = case
    every = [key for silo in silos for key in silo.edge_keys.tolist()]
    for silo in silos:
        assert bool((silo.edge_index < silo.n).any(0).all())
        assert len(set(silo.edge_keys.tolist())) == len(silo.edge_keys)  # parallel edges have keys of their own
    inner = {key for silo in silos for key in silo.edge_keys[~silo.crosses].tolist()}
    crossing = {key for silo in silos for key in silo.edge_keys[silo.crosses].tolist()}
    assert all(every.count(key) == 1 for key in inner)
    assert all(every.count(key) == 2 for key in crossing)
    compared = compare_edges(LocalWire(count), silos)
    assert compared.notes == [] and not bool(torch.cat(compared.alone).any())


@given(splits())
@settings(max_examples=40, deadline=None)
def test_merging_all_silos_gives_the_whole_graph_back(case: tuple[list[Silo], int]) -> None:
    silos, _ = case
    whole = merge(silos)
    assert sorted(whole.ids.tolist()) == sorted(i for silo in silos for i in silo.ids.tolist())
    assert set(whole.edge_keys.tolist()) == {key for silo in silos for key in silo.edge_keys.tolist()}
    assert whole.h == 0


def three_silos() -> list[Silo]:
    return split_graph(small_graph(24, 120), torch.arange(24) % 3, 3)


def test_a_node_may_lie_in_three_halos() -> None:
    owner = torch.arange(24) % 4
    silos = split_graph(small_graph(24, 300), owner, 4)
    plan = plan_halo(LocalWire(4), silos)
    holders = [sum(5 in plan.send[0, peer].tolist() for peer in range(1, 4))]
    assert holders == [3]


def test_a_denied_id_names_silo_and_id() -> None:
    silos = three_silos()
    gone = silos[1].ids[0]
    ids = silos[1].ids.copy()
    ids[0] = 10**9
    silos[1] = replace(silos[1], ids=ids)
    with pytest.raises(IsthmusError, match=rf"silo-\d has edges to 1 nodes of silo-1.*{gone}"):
        open_federation(LocalWire(3), silos, edges="claimed")


def test_two_owners_of_one_node_are_found() -> None:
    silos = three_silos()
    ids = silos[2].ids.copy()
    ids[3] = silos[0].ids[1]
    silos[2] = replace(silos[2], ids=ids)
    with pytest.raises(IsthmusError, match=f"two owners: silo-0 and silo-2 both own {silos[0].ids[1]}"):
        open_federation(LocalWire(3), silos)


def test_edges_that_one_side_does_not_list_are_reported() -> None:
    silos = three_silos()
    cross = silos[0].crosses.nonzero().flatten()
    keep = torch.ones(silos[0].edge_index.shape[1], dtype=torch.bool)
    keep[cross[:2]] = False
    silos[0] = without_edges(silos[0], keep)
    notes = open_federation(LocalWire(3), silos).notes
    missing = [note for note in notes if "that silo-0 does not list" in note]
    assert missing and "->" in missing[0]
    assert sum(int(note.split(" lists ")[1].split()[0]) for note in missing) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": 6}, "disagree on features: silo-0 has 5, silo-1 has 6"),
        ({"task": "tasks"}, "disagree on task"),
        ({"edge_features": 0}, "disagree on edge features"),
        ({"feature_names": ("age",)}, "disagree on feature names"),
    ],
)
def test_schemas_that_differ_name_the_silos(change: dict, message: str) -> None:
    silos = three_silos()
    silos[1] = replace(silos[1], schema=replace(silos[1].schema, **change))
    with pytest.raises(IsthmusError, match=message):
        agree_schema(LocalWire(3), silos)


def test_class_names_become_the_union_and_labels_follow() -> None:
    silos = three_silos()
    silos[0] = replace(silos[0], schema=replace(silos[0].schema, labels=("a", "c")), y=silos[0].y.clamp(max=1))
    silos[1] = replace(silos[1], schema=replace(silos[1].schema, labels=()), y=torch.full_like(silos[1].y, -1))
    agreed, schema = agree_schema(LocalWire(3), silos)
    assert schema.labels == ("a", "b", "c")
    assert all(silo.schema.labels == ("a", "b", "c") for silo in agreed)
    assert torch.equal(agreed[0].y, silos[0].y * 2)
    assert torch.equal(agreed[2].y, silos[2].y)
    assert bool((agreed[1].y == -1).all())


@pytest.mark.parametrize("known", ["time and attributes", "time", "attributes", "neither"])
def test_parallel_edges_are_numbered_by_time_attributes_and_place(known: str) -> None:
    made = torch.Generator().manual_seed(0)
    pair, when = (torch.randint(high, (200,), generator=made) for high in (40, 3))
    look = torch.randint(2, (200, 3), generator=made).float()
    time, attr = (when if "time" in known else None), (look if "attributes" in known else None)
    shown = [() if attr is None else tuple(row) for row in look.tolist()]
    times = [0] * 200 if time is None else when.tolist()
    places = sorted(range(200), key=lambda e: (int(pair[e]), times[e], shown[e], e))
    rank = [sum(int(pair[other] == pair[e]) for other in places[: places.index(e)]) for e in range(200)]
    assert parallel_rank(pair, time, attr).tolist() == rank


def test_both_ends_number_parallel_edges_alike_whatever_their_order() -> None:
    graph = small_graph(10, 60)
    owner = torch.arange(10) % 2
    shuffled = torch.randperm(graph.m, generator=torch.Generator().manual_seed(0))
    mixed = replace(
        graph,
        edge_index=graph.edge_index[:, shuffled],
        edge_attr=graph.edge_attr[shuffled],
        edge_time=graph.edge_time[shuffled],
    )
    ours, theirs = split_graph(graph, owner, 2)[0], split_graph(mixed, owner, 2)[1]
    assert compare_edges(LocalWire(2), [ours, theirs]).notes == []


def test_text_ids_work() -> None:
    graph = small_graph(24, 120)
    text = replace(graph, ids=np.array([f"konto {i} é" for i in graph.ids], dtype=object))
    federation = open_federation(LocalWire(3), split_graph(text, torch.arange(24) % 3, 3))
    assert federation.notes == []


def test_wrong_owner_vectors_are_refused() -> None:
    graph = small_graph(24, 60)
    with pytest.raises(IsthmusError, match="23 entries for 24 nodes"):
        split_graph(graph, torch.zeros(23, dtype=torch.int64), 2)
    with pytest.raises(IsthmusError, match="Owners lie in 0..2; allowed are 0..1"):
        split_graph(graph, torch.arange(24) % 3, 2)


@pytest.mark.parametrize("name", ["server", "devices of silo-1", "silo-1"])
def test_names_of_other_parties_are_refused(name: str) -> None:
    first, second = split_graph(small_graph(), torch.arange(12) % 2, 2)
    with pytest.raises(IsthmusError, match=name):
        agree_schema(LocalWire(2), [replace(first, name=name), second])


def meet_under_one_name(wire: Wire) -> str:
    """What a host ends with that hears of two silos called alpen."""
    silos = split_graph(small_graph(12, 30), torch.arange(12) % 3, 3, ("bern", "alpen", "alpen"))
    with pytest.raises(IsthmusError) as refused:
        agree_schema(wire, [silos[number] for number in wire.mine])
    return str(refused.value)


@pytest.mark.hosts
def test_a_second_silo_of_a_name_is_refused_on_every_wire() -> None:
    """In one process, between hosts that exchange letters (FLARE's), and over gloo."""
    told = [meet_under_one_name(LocalWire(3)), *in_threads(Membership.dealt(3, 3), meet_under_one_name)]
    told += on_hosts(2, on_wire, 3, meet_under_one_name)
    assert told == ["Two silos are called 'alpen'; silo names must differ."] * 6
