import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isthmus.graph.ports import ports as ports_of_rows

Edge = tuple[int, int, int]
edges = st.lists(st.tuples(st.integers(-3, 5), st.integers(-3, 5), st.integers(0, 4)), max_size=40)


def slow(rows: list[Edge], at: int, other: int) -> list[int]:
    """Port numbers by their definition: distinct neighbours ordered by (first time, key), numbered from 0."""
    out = []
    for edge in rows:
        first: dict[int, int] = {}
        for row in rows:
            if row[at] == edge[at]:
                first[row[other]] = min(row[2], first.get(row[other], row[2]))
        order = sorted(first, key=lambda node: (first[node], node))
        out.append(order.index(edge[other]))
    return out


def ports(source: Tensor, target: Tensor, time: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Ports where ends are given by their keys, from -3 to 5; rows lie in another order than keys."""
    row = torch.tensor([4, 0, 8, 2, 6, 1, 7, 3, 5])  # of keys -3, -2, ...
    return ports_of_rows(torch.argsort(row) - 3, row[source + 3], row[target + 3], time)


def columns(rows: list[Edge]) -> tuple[Tensor, Tensor, Tensor]:
    source, target, time = torch.tensor(rows, dtype=torch.int64).view(-1, 3).T
    return source, target, time


@settings(deadline=None)
@given(edges)
def test_ports_are_what_the_definition_says(rows: list[Edge]):
    inward, outward = ports(*columns(rows))
    assert inward.tolist() == slow(rows, at=1, other=0)
    assert outward.tolist() == slow(rows, at=0, other=1)


@settings(deadline=None)
@given(edges, st.randoms(use_true_random=False))
def test_ports_do_not_depend_on_row_order(rows: list[Edge], chance):
    turned = list(range(len(rows)))
    chance.shuffle(turned)
    for port, other in zip(ports(*columns(rows)), ports(*columns([rows[i] for i in turned])), strict=True):
        assert port[turned].tolist() == other.tolist()


@settings(deadline=None)
@given(edges)
def test_reversed_edges_swap_their_ports(rows: list[Edge]):
    source, target, time = columns(rows)
    inward, outward = ports(source, target, time)
    assert [p.tolist() for p in ports(target, source, time)] == [outward.tolist(), inward.tolist()]


@settings(deadline=None)
@given(edges)
def test_without_times_all_edges_are_simultaneous(rows: list[Edge]):
    source, target, _ = columns(rows)
    same = ports(source, target, torch.zeros_like(source))
    assert [p.tolist() for p in ports(source, target)] == [p.tolist() for p in same]
