"""HiFGL: what its runs equal, what it refuses, and how often each row is charged."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.engine.settings import TrainConfig
from isthmus.federation.federation import open_federation
from isthmus.graph.cut import split_graph
from isthmus.graph.graph import TEST, Graph
from isthmus.methods import catalogue
from isthmus.nn.model import MODELS
from isthmus.protect.releases import COUNTS
from isthmus.runs.config import resolve
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.wire.local import LocalWire
from tests.helpers.small import (
    assert_same,
    losses,
    numbers,
    open_method,
    owners,
    parameters,
    run_method,
    run_parts,
    small_graph,
    without_edges,
)

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3
PLAIN: dict[str, Any] = {"protect": {"name": "nothing"}, "sync": {"name": "sync-sgd"}}
SEALED: dict[str, Any] = {"protect": {"name": "fixed-point,masks"}}
JOINT = {"batches": "joint"}


def plain_edges(graph: Graph) -> Graph:
    """The graph without features on edges, which a GIN would read."""
    return replace(graph, edge_attr=None, schema=replace(graph.schema, edge_features=0)).check()


def run(options: dict[str, Any], model: str = "gcn", **given: Any) -> Result:
    return run_method("hifgl", GRAPH, THREE, 3, model, options, **given)


# ---- without protection it is centralised training


@pytest.mark.parametrize("silos", [1, 2, 5])
@pytest.mark.parametrize("model", ["gcn", "sage", "sage-gcn", "gin"])
def test_unprotected_it_is_centralised(model: str, silos: int) -> None:
    """On a multigraph with self-loops, parallel edges and an isolated node."""
    graph, owner = plain_edges(GRAPH), owners(silos)
    assert bool((graph.edge_index[0] == graph.edge_index[1]).any()) and 29 not in graph.edge_index
    together = run_method("centralised", graph, owner, silos, model, optimiser="sgd")
    assert_same(together, run_method("hifgl", graph, owner, silos, model, PLAIN, optimiser="sgd", **JOINT))


@pytest.mark.parametrize("edges", [0, 140])
def test_a_silo_without_nodes_and_a_graph_without_edges_change_nothing(edges: int) -> None:
    graph, owner = small_graph(30, edges), torch.arange(30) % 2 * 2
    together = run_method("centralised", graph, owner, 3, "gcn")
    assert_same(together, run_method("hifgl", graph, owner, 3, "gcn", PLAIN, **JOINT))


def test_one_device_a_silo_is_centralised() -> None:
    """Cross-device alone: every silo is one node, and all edges cross."""
    graph, own = small_graph(12, 40), torch.arange(12)
    together = run_method("centralised", graph, own, 12, "gcn")
    assert_same(together, run_method("hifgl", graph, own, 12, "gcn", PLAIN, **JOINT))


# ---- fixed point is near, and sharing is exact


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sync": {"name": "sync-sgd"}},
        {"sync": {"private": "head"}},
        {"objective": {"name": "proximal", "mu": 0.1}, "sync": {"local_epochs": 2}},
        {"exchange": {"fewest": 3, "padded_to": 64}},
        {"score": "global"},
    ],
    ids=["fedavg", "sync-sgd", "private head", "proximal", "fewest", "global"],
)
def test_shares_change_no_bit(options: dict[str, Any]) -> None:
    shared, sealed = run(options), run({**options, **SEALED})
    assert losses(shared) == losses(sealed) and shared.test.as_dict() == sealed.test.as_dict()
    mine, theirs = parameters(shared), parameters(sealed)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    plain = run({**options, "protect": {"name": "nothing"}})
    apart = (numbers(losses(shared)) - numbers(losses(plain))).abs()
    assert 0 < apart.max() and apart[0] < 1e-9  # the first loss is within some steps of 2^-37


def test_shared_runs_with_sync_sgd_are_centralised_to_the_step_of_the_fixed_point() -> None:
    together = run_method("centralised", GRAPH, THREE, 3, "gcn", optimiser="sgd")
    shared = run_method("hifgl", GRAPH, THREE, 3, "gcn", {"sync": {"name": "sync-sgd"}}, optimiser="sgd", **JOINT)
    torch.testing.assert_close(numbers(losses(shared)), numbers(losses(together)), rtol=1e-9, atol=0)
    coarse = {"sync": {"name": "sync-sgd"}, "protect": {"fraction": 6}}
    rough = run_method("hifgl", GRAPH, THREE, 3, "gcn", coarse, optimiser="sgd", **JOINT)
    assert 1e-4 < abs(losses(rough)[0] - losses(together)[0]) < 0.05


@pytest.mark.parametrize("fraction", [8, 16, 24, 36])
def test_the_first_loss_is_within_the_step(fraction: int) -> None:
    """Rounding moves each neighbour's row by half a step; a graph of degree near ten moves the loss by some steps."""
    given = {"protect": {"fraction": fraction}}
    apart = abs(losses(run(given, epochs=1))[0] - losses(run({"protect": {"name": "nothing"}}, epochs=1))[0])
    assert 0 < apart < 20 * 2.0**-fraction


def test_sums_that_are_not_opened_pass_no_gradient() -> None:
    """With ``fewest`` larger than all degrees, training is that of nodes without neighbours."""
    none = run_method("hifgl", GRAPH, THREE, 3, "sage", {"exchange": {"fewest": 99}, **PLAIN}, **JOINT)
    bare = small_graph(30, 0)
    same = replace(bare, ids=GRAPH.ids, x=GRAPH.x, y=GRAPH.y, split=GRAPH.split)
    assert_same(none, run_method("centralised", same, THREE, 3, "sage"))
    assert "were not opened: those of 29 of 29 devices" in none.training.stage.exchange.notes()[0]


# ---- what a sum of few says


def test_parallel_edges_and_self_loops_are_no_further_neighbours() -> None:
    """Twice one neighbour's row, or it and one's own: who gets the sum can work the row out."""
    ends = torch.tensor([[1, 1, 2, 3, 4, 5, 6], [0, 0, 2, 2, 7, 7, 6]])
    graph = small_graph(12, 7)
    times = torch.zeros(7, dtype=torch.int64)
    graph = replace(graph, edge_index=ends, edge_attr=torch.zeros(7, 2), edge_time=times)
    live = open_method("hifgl", graph, torch.arange(12) % 2, 2, "gcn").stage.exchange
    # Sums: 0 (two edges of one neighbour), 2 (itself and one), 6 (itself alone); 7 has two.
    # Derivatives: 1, 3, 4 and 5 have one outgoing neighbour, 2 and 6 themselves alone.
    assert live.figures()["devices with one neighbour"].tolist() == [4, 3]
    assert live.notes()[0].startswith("7 of 8 devices have a single neighbour")
    shut = open_method("hifgl", graph, torch.arange(12) % 2, 2, "gcn", {"exchange": {"fewest": 2}}).stage.exchange
    assert "7 of 8 devices" in shut.notes()[0]


# ---- releases


def test_each_row_is_charged_once_for_every_sum_that_it_is_in() -> None:
    """Counted by hand: distinct targets of a node, its own self-loop included, at each layer of each pass."""
    graph, owner = small_graph(12, 40), torch.arange(12) % 3
    result = run_method("hifgl", graph, owner, 3, "gcn", epochs=2, evaluate_every=9)
    source, target = graph.edge_index
    rows = {silo: (owner == silo).nonzero().flatten().tolist() for silo in range(3)}
    wire, stack = result.training.wire, result.training.stage.site.stack
    own = stack.owned.nonzero().flatten().tolist()
    nodes = [node for silo in range(3) for node in rows[silo]]
    for kind, near, far, layers in ((Kind.EMBEDDINGS, source, target, (0, 1)), (Kind.ADJOINTS, target, source, (0, 1))):
        into = {node: len(set(far[near == node].tolist())) for node in range(12)}
        for layer in layers:
            counts = wire.releases.get(COUNTS, kind, layer)
            sums = wire.releases.state[f"sums/{kind.value}/{layer}"]
            passes = int(sums.max())
            assert passes == 2 if kind == Kind.ADJOINTS else passes > 2
            assert [counts[row].item() for row in own] == [passes * into[node] for node in nodes], (kind, layer)
            assert sorted(counts.nonzero().flatten().tolist()) == [
                r for r, n in zip(own, nodes, strict=True) if into[n]
            ]


# ---- refusals


def refused(*says: str, method: str = "hifgl", **recipe: Any) -> None:
    """Refused when options are read, before any data is."""
    with pytest.raises(IsthmusError) as caught:
        resolve({"method": method, "model": {"name": "gcn"}, **recipe})
    for word in says:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("recipe", "says"),
    [
        ({"model": {"name": "gat"}}, ("gat", "softmax", "gcn, sage or gin")),
        ({"model": {"name": "pna"}}, ("pna", "maxima")),
        ({"model": {"name": "sage", "aggregate": "max"}}, ("maxima", "model.aggregate=mean")),
        ({"model": {"name": "gcn", "norm": "batch"}}, ("model.norm=batch", "model.norm=layer")),
        ({"model": {"name": "gcn", "embed": False}}, ("raw features",)),
        ({"train": {"batch": 8}}, ("train.batch=8", "train.batch=0")),
        ({"train": {"pooled": True}}, ("train.pooled=true", "label")),
        ({"data": {"level": "silo"}}, ("data.level=silo", "use data.level=device")),
        ({"data": {"cross": "unknown"}}, ("data.cross=unknown", "far ends")),
        ({"schedule": {"every": 2}}, ("schedule",)),
        ({"score": "own"}, ("score=own", "devices alone know", "score=trained")),
        ({"score": "across"}, ("score=across", "score=trained")),
        ({"exchange": {"fewest": 0}}, ("exchange.fewest is 0", "at least 1")),
        ({"exchange": {"padded_to": -1}}, ("exchange.padded_to is -1",)),
    ],
)
def test_what_cannot_be_kept_secret_or_added_up_is_refused(recipe: dict[str, Any], says: tuple[str, ...]) -> None:
    refused(*says, **recipe)


@pytest.mark.parametrize(
    ("protect", "says"),
    [
        ("shares,fixed-point", ("'shares' takes whole numbers", "put fixed-point before it")),
        ("shares", ("'shares' takes whole numbers",)),
        ("fixed-point,gaussian", ("'gaussian' must come before it",)),
        ("fixed-point,int8", ("must come before it",)),
        ("int8", ("protect=fixed-point instead",)),
        ("fixed-point,fixed-point", ("once",)),
    ],
)
def test_chains_that_cannot_add_up_sealed_rows_are_refused(protect: str, says: tuple[str, ...]) -> None:
    refused(*says, protect={"name": protect})


@pytest.mark.parametrize("method", ["fedavg", "sync-sgd+fwd-bwd-le", "ce-fedgnn", "swift-fedgnn"])
def test_other_methods_are_for_silos(method: str) -> None:
    refused("data.level=device", "use data.level=silo", method=method, data={"level": "device"})


def test_shares_and_masks_need_somebody_who_adds_up() -> None:
    refused("protect=shares", "exchange=nothing", method="fedavg", protect={"name": "fixed-point,shares"})
    refused("protect=masks", "leave masks out", method="fedavg", protect={"name": "masks"})


def test_aggregates_through_the_server_have_two_holders() -> None:
    chain = {"name": "fixed-point,shares", "threshold": 2}
    refused("protect.threshold=2", "there are 2", "use protect.threshold=1", method="swift-fedgnn", protect=chain)


def test_labels_and_features_on_edges_are_refused() -> None:
    with pytest.raises(IsthmusError, match="Labels lie on edges"):
        open_method("hifgl", small_graph(24, 120, edge_task=True), torch.arange(24) % 3, 3, "gcn")
    with pytest.raises(IsthmusError, match="gin reads the 2 features of each edge"):
        open_method("hifgl", GRAPH, THREE, 3, "gin")


def test_an_edge_that_one_silo_claims_alone_is_refused() -> None:
    """Its far end would have to send along an edge that it does not know of."""
    first, *others = split_graph(GRAPH, THREE, 3)
    crossing = (first.edge_index >= first.n).any(0)
    cut = without_edges(first, ~crossing | (crossing.cumsum(0) > 1))
    wire = LocalWire(3)
    federation = open_federation(wire, [cut, *others], edges="claimed", level="device")
    settings = TrainConfig(epochs=1)
    with pytest.raises(IsthmusError, match="listed by one of two silos alone.*data.edges=mutual"):
        Training(federation, catalogue.get("hifgl"), MODELS["gcn"], settings)
    mutual = run_parts("hifgl", [cut, *others], "gcn", PLAIN, **JOINT)
    assert losses(mutual) != losses(run(PLAIN, **JOINT))


# ---- scores


def test_scores_are_those_of_the_merged_graph() -> None:
    """Sums of all neighbours are in them, to the step of the fixed point, where all silos hold one model."""
    trained, merged = run({}), run({"score": "global"})
    assert losses(trained) == losses(merged) == losses(run({"score": "everywhere"}))
    mine, whole = (each.training.stage.scorer.logits(TEST)[0].sum(0) for each in (trained, merged))
    torch.testing.assert_close(mine, whole, rtol=0, atol=1e-8)
    assert trained.test.as_dict() == pytest.approx(merged.test.as_dict(), rel=1e-7, nan_ok=True)


@pytest.mark.parametrize("how", ["own", "across"])
def test_silos_do_not_score_along_edges_of_devices(how: str) -> None:
    with pytest.raises(IsthmusError, match=f"score={how}"):
        run({"score": how})


# ---- with noise


def test_noise_is_added_to_rows_by_devices_and_to_gradients_by_silos_once() -> None:
    noise = {"clip": 1.0, "sigma": 0.1, "clip_gradients": 1.0, "sigma_gradients": 0.1}
    protect = {"name": "gaussian,fixed-point,shares,masks", **noise}
    result = run({"protect": protect, "sync": {"name": "sync-sgd"}})
    told = {
        (line["kind"], line["sender"].split()[0].partition("-")[0], line["receiver"].partition("-")[0], line["event"])
        for line in result.training.wire.ledger.table().to_pylist()
    }
    gaussian = "Gaussian noise (clip 1, sigma 0.1)"
    sealed = f"{gaussian}, sent as fixed point of 36 binary places, shares, 2 of which open/row"
    assert {event for kind, *_, event in told if kind == "embeddings"} == {sealed}
    assert ("gradients", "devices", "silo", "masked, read as sums over groups of 64") in told
    assert ("gradients", "silo", "server", f"{gaussian}/silo") in told
    assert {event for kind, sender, *_, event in told if kind == "parameters" and sender == "silo"} == {"unprotected"}
    assert losses(result) != losses(run({"sync": {"name": "sync-sgd"}}))
