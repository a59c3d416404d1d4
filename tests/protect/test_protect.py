"""Clip and noise: off they are nothing, on they bound what leaves, and every release is counted and accounted for."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import isthmus
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin
from isthmus.graph.graph import Graph
from isthmus.launch.privacy import privacy_of, take_account
from isthmus.methods import catalogue
from isthmus.methods.compose import compose
from isthmus.protect.accounting.guarantee import DP, NODE, ROW, Guarantee
from isthmus.protect.base import Chain
from isthmus.protect.gaussian import Gaussian, clipped, drawn
from isthmus.protect.releases import COUNTS, LEFT, PLAIN
from isthmus.protect.secrets import Noise, secrets_from_seed, secrets_from_system
from isthmus.train.result import Result
from isthmus.wire.local import LocalWire
from isthmus.wire.route import Lot
from tests.helpers.small import assert_same, losses, run_method, small_graph

THREE = torch.arange(12) % 3
EXCHANGES = ("ce-fedgnn", "fedgnn-st", "sync-sgd+fwd-bwd-le", "fedavg+fwd-le", "optimes")
KINDS = ("", "_adjoints", "_parameters", "_gradients")


def trained(method: str, protect: dict[str, Any], graph: Graph | None = None, **training: Any) -> Result:
    options = {"protect": protect} | training.pop("options", {})
    return run_method(method, graph or small_graph(), THREE, 3, options=options, **training)


def events(result: Result, kind: str) -> set[str]:
    return {line["event"] for line in result.training.wire.ledger.table().to_pylist() if line["kind"] == kind}


# Off


@pytest.mark.parametrize("method", ["local", "fedavg", "sync-sgd", *EXCHANGES])
def test_without_bound_and_noise_a_run_is_exactly_the_unprotected_one(method: str) -> None:
    off = trained(method, {f"clip{kind}": math.inf for kind in KINDS} | {f"sigma{kind}": 0.0 for kind in KINDS})
    bare = trained(method, {})
    assert (off.training.method.protect, bare.training.method.protect) == ((Gaussian(),), ())
    assert losses(off) == losses(bare)
    assert off.bytes == bare.bytes
    assert all(line["event"] == "unprotected" for line in off.training.wire.ledger.table().to_pylist())


@pytest.mark.parametrize("method", ["fedavg", "sync-sgd", *EXCHANGES])
def test_a_bound_that_nothing_reaches_changes_nothing(method: str) -> None:
    """Each silo's gradient is then a payload of its own, so that sums are rounded in another order."""
    wide = trained(method, {f"clip{kind}": 1e9 for kind in KINDS})
    assert_same(wide, trained(method, {}))


# On


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.floats(1e-3, 1e3), st.floats(1e-6, 1e6))
def test_clipped_rows_keep_their_direction_within_the_bound(shape: list[int], clip: float, size: float) -> None:
    rows = size * torch.randn(5, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows[0] = 0
    done = clipped(rows, clip).flatten(1)
    before, after = rows.flatten(1).norm(dim=1), done.norm(dim=1)
    assert bool((after <= clip * (1 + 1e-12)).all())
    torch.testing.assert_close(after, before.clamp(max=clip))
    inside = before <= clip
    assert torch.equal(done[inside], rows.flatten(1)[inside])
    torch.testing.assert_close(done * before[:, None], rows.flatten(1) * after[:, None])


@pytest.mark.parametrize(
    ("method", "kinds"),
    [
        ("ce-fedgnn", {"embeddings": "row", "parameters": "silo", "gradients": "silo"}),
        ("sync-sgd+fwd-bwd-le", {"embeddings": "row", "adjoints": "silo", "gradients": "silo"}),
        ("fedavg+fwd-bwd-le", {"embeddings": "row", "adjoints": "silo", "parameters": "silo"}),
        ("optimes", {"embeddings": "row", "parameters": "silo"}),
    ],
)
def test_every_kind_of_release_can_be_protected(method: str, kinds: dict[str, str]) -> None:
    options: dict[str, Any] = {"sync": {"local_steps": 1}} if method == "ce-fedgnn" else {}
    plain = trained(method, {}, options=options)
    for kind, unit in kinds.items():
        suffix = "" if kind == "embeddings" else f"_{kind}"
        noisy = trained(method, {f"clip{suffix}": 2.0, f"sigma{suffix}": 0.1}, options=options)
        assert losses(noisy) != losses(plain)
        assert events(noisy, kind) == {f"Gaussian noise (clip 2, sigma 0.1)/{unit}"}
        assert all(events(noisy, other) == {"unprotected"} for other in kinds if other != kind)


def test_silos_are_clipped_before_they_are_weighed() -> None:
    wire = LocalWire(2, Chain((Gaussian(clip_parameters=1.0),)))
    mean = wire.total(Kind.PARAMETERS, torch.tensor([[30.0, 40.0], [0.3, 0.4]]), torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(mean, 0.25 * torch.tensor([0.6, 0.8]) + 0.75 * torch.tensor([0.3, 0.4]))


# Noise


def test_noise_is_standard_normal() -> None:
    numbers = Noise({0: b"secret"}).normal(0, 200, 51).flatten()
    assert stats.kstest(numbers.numpy(), "norm").pvalue > 0.01
    assert abs(float(numbers[:-1] @ numbers[1:])) / len(numbers) < 0.03  # neither do neighbours depend on each other


def test_noise_belongs_to_a_secret_and_to_a_draw() -> None:
    noise, again = Noise(secrets_from_seed(1, (0, 1))), Noise(secrets_from_seed(1, (0,)))
    first = noise.normal(0, 3, 4)
    assert torch.equal(first, again.normal(0, 3, 4))
    assert not torch.equal(first, noise.normal(1, 3, 4))
    noise.draws += 1
    assert not torch.equal(first, noise.normal(0, 3, 4))
    assert not torch.equal(first, Noise(secrets_from_seed(2, (0,))).normal(0, 3, 4))


def test_all_receivers_of_a_row_get_the_same_noise() -> None:
    origin = Origin(torch.tensor([0, 0, 1, 1, 0]), torch.tensor([4, 7, 9, 9, 4]))
    noise = Noise(secrets_from_seed(0, (0, 1)))
    numbers = drawn(torch.zeros(5, 3, dtype=torch.float64), origin, noise, noise.normal)
    assert torch.equal(numbers[0], numbers[4]) and torch.equal(numbers[2], numbers[3])
    assert len({tuple(row) for row in numbers.tolist()}) == 3


def test_a_silo_without_a_secret_sends_no_noisy_row() -> None:
    wire = LocalWire(2, Chain((Gaussian(sigma_parameters=1.0),)))
    with pytest.raises(IsthmusError, match="no secret"):
        wire.total(Kind.PARAMETERS, torch.ones(2, 3))


def test_secrets_of_the_system_are_new_each_time() -> None:
    first, second = secrets_from_system((0, 2)), secrets_from_system((0, 2))
    assert len({*first.values(), *second.values()}) == 4 and all(len(secret) == 32 for secret in first.values())


# Counting


def boundary_nodes(graph: Graph) -> Tensor:
    """How many silos but its own hold each node as the far end of an edge: [nodes, silos] marks."""
    held = torch.zeros(graph.n, 3, dtype=torch.bool)
    for source, target in graph.edge_index.T.tolist():
        if THREE[source] != THREE[target]:
            held[source, THREE[target]] = held[target, THREE[source]] = True
    return held.any(1)


def counted(result: Result, kind: Kind, layer: int) -> dict[int, int]:
    """Releases by public id, of owned rows."""
    found: dict[int, int] = {}
    counts = result.training.wire.releases.get(COUNTS, kind, layer).tolist()
    for silo in result.training.federation.silos:
        part, counts = counts[: silo.n + silo.h], counts[silo.n + silo.h :]
        found |= dict(zip(silo.ids.tolist(), part, strict=False))
        assert not any(part[silo.n :])  # nobody releases what it does not own
    return found


@pytest.mark.parametrize(("score", "times"), [("released", 3), ("fresh", 3 + 3 + 2)])
def test_twelve_nodes_with_known_release_counts(score: str, times: int) -> None:
    """Six full steps in rounds of two: every boundary node leaves three times at each of two layers.

    Scored with fresh rows, it leaves three times more for validations, and twice at the end.
    """
    graph = small_graph()
    options = {"sync": {"local_steps": 2}, "exchange": {"scored_with": score}}
    result = trained("ce-fedgnn", {"sigma": 0.5}, graph, epochs=6, options=options)
    at_boundary = boundary_nodes(graph)
    assert 0 < int(at_boundary.sum()) < 12
    expected = {int(i): times * int(b) for i, b in zip(graph.ids, at_boundary, strict=True)}
    assert counted(result, Kind.EMBEDDINGS, 0) == counted(result, Kind.EMBEDDINGS, 1) == expected
    assert result.training.wire.releases.layers(Kind.EMBEDDINGS) == [0, 1]


def test_rows_that_leave_for_an_evaluation_count_too() -> None:
    """Four steps, four validations, and validation and test of the selected parameters."""
    graph = small_graph()
    result = trained("sync-sgd+fwd-le", {}, graph, epochs=4)
    assert set(counted(result, Kind.EMBEDDINGS, 1).values()) == {0, 4 + 4 + 2}


def test_adjoints_are_counted_as_releases_of_whoever_computed_them() -> None:
    releases = trained("sync-sgd+fwd-bwd-le", {}, epochs=4).training.wire.releases
    halo = torch.cat([torch.arange(s.n + s.h) >= s.n for s in _silos("sync-sgd+fwd-bwd-le")])
    assert torch.equal(releases.get(COUNTS, Kind.ADJOINTS, 1), 4 * halo.long())


def _silos(method: str) -> Any:
    return trained(method, {}, epochs=1).training.federation.silos


def test_the_book_keeps_rows_as_they_left_and_as_noise_found_them() -> None:
    released = {"exchange": {"scored_with": "released"}}
    result = trained("ce-fedgnn", {"clip": 0.5, "sigma": 2.0}, epochs=3, options=released)
    releases = result.training.wire.releases
    left, plain = (releases.get(what, Kind.EMBEDDINGS, 0) for what in (LEFT, PLAIN))
    out = releases.get(COUNTS, Kind.EMBEDDINGS, 0) > 0
    assert float(plain.norm(dim=1).max()) <= 0.5 + 1e-12 < float(left.norm(dim=1).max())
    assert 1 < float((left - plain)[out].std()) < 3
    assert not bool(left[~out].any())
    received = result.training.stage.exchange.state["halo-0"]  # of the first silos to ask: what arrived is what left
    where = {tuple(row) for row in left[out].tolist()}
    assert all(tuple(row) in where for row in received.tolist())


# Accounting


def found_of(result: Result) -> list[Guarantee]:
    return privacy_of(result.training, take_account(result.training))


def one_of(result: Result, of: str, unit: str) -> Guarantee:
    """The worst-case guarantee of a kind for a unit."""
    (told,) = [each for each in found_of(result) if (each.of, each.unit, each.notion) == (of, unit, DP)]
    return told


def test_epsilon_by_kind_is_infinite_where_nothing_protects() -> None:
    noisy = trained("ce-fedgnn", {"clip": 1.0, "sigma": 5.0, "neighbours": 2, "sigma_gradients": 3.0}, epochs=4)
    spent = {each.of: each.epsilon for each in found_of(noisy) if each.unit == NODE}
    assert {kind: value == math.inf for kind, value in spent.items()} == {
        "embeddings": False, "parameters": True, "gradients": True,  # the last has noise, and no bound
    }  # fmt: skip
    row, node = (one_of(noisy, "embeddings", unit) for unit in (ROW, NODE))
    assert 0 < row.epsilon < node.epsilon < math.inf
    rounds = sum(
        line["messages"]
        for line in noisy.training.wire.ledger.table().to_pylist()
        if line["kind"] == "gradients" and line["sender"] == "silo-0"
    )
    assert one_of(noisy, "gradients", NODE).silos["silo-0"]["releases"] == rounds > 0


def test_a_row_that_is_not_finite_leaves_as_noise_alone() -> None:
    """Else it would stand out from every other, whatever the noise; without noise it leaves as it is."""
    rows = torch.tensor([[1.0, 2.0], [math.nan, 0.0], [0.0, math.inf]])
    wire = LocalWire(3, Chain((Gaussian(clip_gradients=1.0, sigma_gradients=0.5),)))
    wire.noise = Noise(secrets_from_seed(0, (0, 1, 2)))
    assert bool(wire.total(Kind.GRADIENTS, rows).isfinite().all())
    bare = LocalWire(3, Chain((Gaussian(clip_gradients=1.0),)))
    assert not bool(bare.total(Kind.GRADIENTS, rows).isfinite().all())


def test_sums_of_features_are_protected_and_counted_hop_by_hop() -> None:
    result = run_method("fedgcn", small_graph(), THREE, 3, "gcn", options={"protect": {"clip": 1.0, "sigma": 0.5}})
    assert events(result, "aggregates") == {"Gaussian noise (clip 1, sigma 0.5)/node"}
    releases = result.training.wire.releases
    assert releases.layers(Kind.AGGREGATES) == [0, 1]
    told = one_of(result, "aggregates", NODE)
    assert 0 < told.epsilon < math.inf and told.releases == int(sum_counts(small_graph(), THREE).max())


def sum_counts(graph: Graph, owner: Tensor) -> Tensor:
    """By hand, how many sums that left hold each node: of its silo for a far node, and whole ones of its silo."""
    source, target = graph.edge_index.tolist()
    first = {(owner[u].item(), v, u) for u, v in zip(source, target, strict=True) if owner[u] != owner[v]}
    read = {u for u, v in zip(source, target, strict=True) if owner[u] != owner[v]}  # whose whole sums others read
    second = {(v, v) for v in read} | {
        (v, u) for u, v in zip(source, target, strict=True) if v in read and owner[u] == owner[v]
    }
    counts = torch.zeros(graph.n, dtype=torch.int64)
    for *_, node in [*first, *second]:
        counts[node] += 1
    return counts


def test_a_node_is_charged_for_every_sum_that_it_is_in() -> None:
    """Not the far end under which a sum is booked: whose data is inside."""
    graph = small_graph(24, 90, seed=4)
    owner = torch.arange(24) % 3
    result = run_method("fedgcn", graph, owner, 3, "gcn", options={"protect": {"clip": 1.0, "sigma": 0.5}})
    releases, found = result.training.wire.releases, torch.zeros(24, dtype=torch.int64)
    counts = sum(releases.get(COUNTS, Kind.AGGREGATES, layer) for layer in (0, 1))
    first = 0
    for silo in result.training.federation.silos:
        nodes = torch.tensor([graph.ids.tolist().index(node) for node in silo.ids.tolist()])
        found[nodes] = counts[first : first + silo.n].long()
        first += silo.n + silo.h
    assert found.tolist() == sum_counts(graph, owner).tolist()


def test_less_noise_costs_more() -> None:
    spent = []
    for sigma in (0.5, 1.0, 2.0):
        spent.append(one_of(trained("ce-fedgnn", {"clip": 1.0, "sigma": sigma}), "embeddings", ROW).epsilon)
    assert spent[0] > spent[1] > spent[2] > 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sigma": -0.1}, "sigma is -0.1"),
        ({"sigma": math.inf}, "finite"),
        ({"sigma_adjoints": math.nan}, "finite"),
        ({"clip": 0.0}, "must be positive"),
        ({"clip_gradients": -1.0}, "must be positive"),
        ({"delta": 1.0}, "between 0 and 1"),
        ({"neighbours": 0}, "at least 1"),
        ({"secrets": "public"}, "random, seed"),
        ({"noise": 1.0}, "no option protect.noise"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        compose(catalogue.get("ce-fedgnn"), {"protect": wrong})


def test_a_lot_knows_whose_rows_leave() -> None:
    lot = Lot(torch.tensor([0, 1]), torch.tensor([5, 6]), torch.tensor([1, 5]), [2], silos=3)
    assert lot.origin.silo.tolist() == [0, 1] and lot.origin.row.tolist() == [5, 6]
    assert replace(lot, pairs=torch.tensor([8, 8])).origin.silo.tolist() == [2, 2]


def test_noise_from_python() -> None:
    silos = isthmus.split(small_graph(24, 120), torch.arange(24) % 3)
    noisy = {"protect.sigma": 0.5, "protect.clip": 1.0, "train.epochs": 2, "sync.local_steps": 1}
    same = [isthmus.fit(silos, "ce-fedgnn", settings=noisy) for _ in range(2)]
    secret = isthmus.fit(silos, "ce-fedgnn", settings=noisy | {"protect.secrets": "random"})
    assert losses(same[0]) == losses(same[1]) != losses(secret)
