"""Sums of neighbours' rows: the sums, their transposes, and who is told to hold which share."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isthmus.core.errors import IsthmusError, PeerError
from isthmus.core.kinds import Kind, silo_of_devices
from isthmus.core.parcel import Traffic
from isthmus.graph.graph import Graph
from isthmus.methods.exchange.hifgl import LiveSecretMessages
from isthmus.protect.field import PRIME
from isthmus.wire.neighbour_sums import Lanes, Surroundings, add_up
from isthmus.wire.wire import Wire
from tests.helpers.small import open_method, small_graph

GRAPH, THREE = small_graph(12, 40), torch.arange(12) % 3
ORDER = [node for silo in range(3) for node in range(12) if node % 3 == silo]  # owned rows, silo after silo


def opened(graph: Graph = GRAPH, **options: Any) -> tuple[Wire, Surroundings]:
    training = open_method("hifgl", graph, THREE, 3, "gcn", options)
    live = training.stage.exchange
    assert isinstance(live, LiveSecretMessages)
    return training.wire, live._around


def adjacency(graph: Graph = GRAPH) -> Tensor:
    """A[u, v]: edges from v to u, both as places among owned rows."""
    place = torch.empty(12, dtype=torch.int64)
    place[torch.tensor(ORDER)] = torch.arange(12)
    source, target = place[graph.edge_index]
    matrix = torch.zeros(12, 12, dtype=torch.float64)
    return matrix.index_put_((target, source), torch.ones(len(source), dtype=torch.float64), accumulate=True)


def rows(width: int = 4) -> Tensor:
    return torch.randn(12, width, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.mark.parametrize("protect", ["nothing", "fixed-point", "fixed-point,shares"])
def test_sums_and_their_derivatives_are_those_of_the_adjacency_matrix(protect: str) -> None:
    wire, around = opened(protect={"name": protect})
    h, weight, matrix = rows().requires_grad_(), rows().flip(0), adjacency()
    y = wire.sum_neighbours(h, around)
    wire.close((weight * y).sum()).backward()
    torch.testing.assert_close(y.detach(), matrix @ h.detach(), rtol=0, atol=1e-9)
    assert h.grad is not None
    torch.testing.assert_close(h.grad, matrix.T @ weight, rtol=0, atol=1e-9)


@pytest.mark.parametrize("fewest", [2, 3, 4])
def test_a_sum_that_is_not_made_is_zero_and_has_no_derivative(fewest: int) -> None:
    wire, around = opened(protect={"name": "nothing"}, exchange={"fewest": fewest})
    h, weight, matrix = rows().requires_grad_(), rows().flip(0), adjacency()
    others = (matrix * (1 - torch.eye(12)) > 0).double()
    forward = matrix * (others.sum(1) >= fewest)[:, None]
    backward = forward.T * (others.sum(0) >= fewest)[:, None]
    assert not torch.equal(forward, matrix)
    y = wire.sum_neighbours(h, around)
    wire.close((weight * y).sum()).backward()
    torch.testing.assert_close(y.detach(), forward @ h.detach(), rtol=0, atol=1e-12)
    assert h.grad is not None
    torch.testing.assert_close(h.grad, backward @ weight, rtol=0, atol=1e-12)


def told(traffic: Traffic) -> dict[tuple[int, int], int]:
    """Rows by sender and receiver, devices of a silo as its number plus 100."""
    found: dict[tuple[int, int], int] = {}
    for sender, receiver, count in zip(
        *(x.tolist() for x in (traffic.sender, traffic.receiver, traffic.rows)), strict=True
    ):
        ends = [x if silo_of_devices(x) is None else 100 + int(silo_of_devices(x) or 0) for x in (sender, receiver)]
        found[ends[0], ends[1]] = found.get((ends[0], ends[1]), 0) + count
    return found


@pytest.mark.parametrize("way", ["inward", "outward"])
@pytest.mark.parametrize("padded_to", [0, 40])
def test_holders_of_shares_are_the_target_and_its_silo(way: str, padded_to: int) -> None:
    """One message an edge for each; beside it shares of zero, up to the next power of two or as many as asked for."""
    _, around = opened(exchange={"padded_to": padded_to})
    lanes: Lanes = getattr(around, way)
    source, target = GRAPH.edge_index if way == "inward" else GRAPH.edge_index.flip(0)
    edges = {(a, b): int(((THREE[source] == a) & (THREE[target] == b)).sum()) for a in range(3) for b in range(3)}
    assert told(lanes.holders[0]) == {(100 + a, 100 + b): n for (a, b), n in edges.items()}
    zeros = [0, 0, 0]
    for node in range(12):
        degree = int((target == node).sum())
        wanted = padded_to or 1 << (degree - 1).bit_length()
        zeros[node % 3] += wanted - degree if degree else 0
    expected = {(100 + a, b): n + (zeros[a] if a == b else 0) for (a, b), n in edges.items()}
    assert told(lanes.holders[1]) == expected
    made = [int(((THREE == silo) & (torch.bincount(target, minlength=12) > 0)).sum()) for silo in range(3)]
    assert [told(up) for up in lanes.up] == [{(100 + silo, silo): n for silo, n in enumerate(made)}]
    assert told(lanes.down) == {(silo, 100 + silo): n for silo, n in enumerate(made)}


def test_more_neighbours_than_the_silo_is_to_see_are_an_error() -> None:
    with pytest.raises(IsthmusError, match="exchange.padded_to is 1, but a node has"):
        opened(exchange={"padded_to": 1})


def test_too_many_neighbours_for_the_field_are_an_error() -> None:
    wire, around = opened(protect={"most": 3})
    with pytest.raises(IsthmusError, match=r"neighbours, but protect.most=3 rows .* use a larger protect.most"):
        add_up(wire, rows(), around.inward, Kind.EMBEDDINGS, 0)


@pytest.mark.parametrize(
    ("protect", "bad"), [("fixed-point,shares", PRIME), ("fixed-point,shares", -1), ("nothing", math.nan)]
)
def test_what_another_host_sends_is_checked_before_it_is_added(
    protect: str, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, around = opened(protect={"name": protect})
    of = "messages" if wire.protect.shares else "rows"
    carriage = replace(getattr(around.inward, of), at=torch.tensor([0]), leaving=[1], arriving=[1])
    monkeypatch.setattr(wire, "carry_rows", lambda kind, sent, *splits: torch.full_like(sent, bad))
    with pytest.raises(PeerError, match="silo-0, silo-1, silo-2"):
        add_up(wire, rows(), replace(around.inward, **{of: carriage}), Kind.EMBEDDINGS, 0)


def test_a_row_is_one_message_to_each_of_its_holders() -> None:
    """Bytes of a share are those of a whole row of 64-bit numbers, and both shares of every edge are counted."""
    wire, around = opened()
    wire.ledger.__init__()  # type: ignore[misc]
    add_up(wire, rows(), around.inward, Kind.EMBEDDINGS, 0)
    lines = wire.ledger.table().to_pylist()
    sent = sum(line["rows"] for line in lines if line["kind"] == "embeddings")
    assert sent == sum(int(np.sum(each.rows)) for each in around.inward.holders)
    assert all(line["bytes"] == line["rows"] * 4 * 8 for line in lines)
    assert {line["kind"] for line in lines} == {"embeddings", "share-sums", "neighbour-sums"}
