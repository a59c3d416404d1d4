"""Masks at the server: they cancel to the last bit, hide each silo's vector, and refuse sums over too few silos."""

from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.core.parcel import Origin, Parcel, Traffic
from isthmus.protect import server_masks
from isthmus.protect.base import Chain
from isthmus.protect.secrets import Noise, common_from_seed
from isthmus.protect.server_masks import FRACTION, ServerMasks
from isthmus.runs.config import resolve
from isthmus.testing.runs import resumed
from tests.helpers.small import losses, numbers, open_method, parameters, run_method, small_graph

DOUBTED = 1e-4
GRAPH, FOUR = small_graph(30, 140), torch.arange(30) % 7 % 4  # silos of 9, 8, 8 and 5 nodes
MASKED: dict[str, Any] = {"protect": {"name": "server-masks"}}


def parcel(rows: Tensor, kind: Kind = Kind.PARAMETERS, weights: Tensor | None = None, first: int = 0) -> Parcel:
    """Vectors of all silos, or of those from ``first`` on, that the server is to add up."""
    silos = torch.arange(first, len(rows))
    traffic = Traffic.round_trip(tuple(silos.tolist()))
    return Parcel(kind, rows[first:], Origin.whole(silos), traffic, added=tuple(range(len(rows))), weights=weights)


def vectors(silos: int = 5, width: int = 300) -> Tensor:
    return torch.randn(silos, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def noise() -> Noise:
    return Noise({}, common_from_seed(7))


def whole(x: Tensor) -> Tensor:
    return (x * 2.0**FRACTION).round().long()


@pytest.mark.parametrize("silos", [3, 5, 64, 127, 131])
def test_masks_cancel_to_the_last_bit(silos: int) -> None:
    """With 131 silos there are two groups; within each of them masks cancel."""
    x = vectors(silos, 4)
    left, event, _ = ServerMasks().seal(parcel(x), noise())
    assert torch.equal(left.sum(0), whole(x).sum(0)) and not bool((left == whole(x)).any())
    found = ServerMasks().open(Kind.PARAMETERS, left.sum(0)[None], x)
    torch.testing.assert_close(found[0], x.sum(0), rtol=0, atol=silos * 2.0**-FRACTION)
    assert str(event) == f"masked, added up by the server over {64 if silos == 131 else silos} silos"
    groups = left[:64].sum(0), left[64:].sum(0)
    assert torch.equal(groups[0], whole(x)[:64].sum(0)) == (silos in (131, 64) or silos < 64), silos


def test_what_a_silo_sends_is_uniform_and_what_it_hides_is_not() -> None:
    x = vectors(4, 4000)
    left, _, _ = ServerMasks().seal(parcel(x), noise())
    for sent, plain in zip(left, whole(x), strict=True):
        assert float(stats.kstest(sent.double().numpy() / 2**64 + 0.5, "uniform").pvalue) > DOUBTED
        assert float(stats.kstest(plain.double().numpy() / 2**64 + 0.5, "uniform").pvalue) < DOUBTED
    some = left[:3].sum(0)  # all but one: still hidden, in sums over fewer than all
    assert float(stats.kstest(some.double().numpy() / 2**64 + 0.5, "uniform").pvalue) > DOUBTED


def test_masks_are_fresh_in_every_sum_and_others_with_every_seed() -> None:
    x, given = vectors(), noise()
    first, second = (ServerMasks().seal(parcel(x), given)[0] for _ in range(2))
    other = ServerMasks().seal(parcel(x), Noise({}, common_from_seed(8)))[0]
    assert not bool((first == second).any()) and not bool((first == other).any())


def test_a_silo_s_vector_does_not_depend_on_who_shares_its_host() -> None:
    x = vectors()
    together, apart = (ServerMasks().seal(parcel(x, first=at), noise())[0] for at in (0, 3))
    assert torch.equal(together[3:], apart)


def test_weights_come_before_masks() -> None:
    x, weights = vectors(), torch.tensor([0.5, 0.25, 0.125, 0.125, 0.0], dtype=torch.float64)[:, None]
    left, _, _ = ServerMasks().seal(parcel(x, weights=weights), noise())
    assert torch.equal(left.sum(0), whole(x * weights).sum(0))


def test_sums_of_statistics_are_masked_and_whole_numbers_leave_as_they_are() -> None:
    x = vectors()
    left, event, _ = ServerMasks().seal(parcel(x, Kind.STATISTICS), noise())
    assert torch.equal(left.sum(0), whole(x).sum(0)) and event is not None
    counts = torch.arange(15).reshape(5, 3)
    same, none, _ = ServerMasks().seal(parcel(counts, Kind.STATISTICS), noise())
    assert torch.equal(same, counts) and none is None
    assert torch.equal(ServerMasks().open(Kind.STATISTICS, counts, counts), counts)


@pytest.mark.parametrize("kind", [Kind.METRICS, Kind.EMBEDDINGS])
def test_other_payloads_leave_as_they_are(kind: Kind) -> None:
    x = vectors()
    left, event, _ = ServerMasks().seal(parcel(x, kind), noise())
    assert torch.equal(left, x) and event is None
    one = Parcel(Kind.PARAMETERS, x, Origin.whole(torch.arange(5)), Traffic.single(0, -1, 5))  # not to be added up
    assert torch.equal(ServerMasks().seal(one, noise())[0], x)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2.0**26])
def test_numbers_whose_sum_might_wrap_are_refused(bad: float) -> None:
    x = vectors()
    x[1, 1] = bad
    with pytest.raises(IsthmusError, match="adds up numbers of 5 silos within"):
        ServerMasks().seal(parcel(x), noise())


# ---- runs

RUNS = [
    ("fedavg", {}),
    ("fedper", {}),
    ("fedprox", {}),
    ("swift-fedgnn", {}),
    ("sync-sgd+fwd-bwd-le", {}),
    ("ce-fedgnn", {"sync": {"local_steps": 2}}),
    ("fedpergnn", {"protect": {"name": "laplace,server-masks", "bound": 0.1, "scale": 0.01}}),
    ("hifgl", {"protect": {"name": "fixed-point,shares,masks,server-masks"}}),
]


@pytest.mark.parametrize(("method", "options"), RUNS, ids=[name for name, _ in RUNS])
def test_runs_are_those_without_masks_to_the_step(
    method: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with masks of zero the run is the same to the last bit."""
    protect = options.get("protect", {"name": "server-masks"})
    chain = protect["name"].removesuffix("server-masks").removesuffix(",") or "nothing"
    masked = run_method(method, GRAPH, FOUR, 4, "gcn", {**options, "protect": protect})
    plain = run_method(method, GRAPH, FOUR, 4, "gcn", {**options, "protect": {**protect, "name": chain}})
    if method != "fedpergnn":  # whose noise is drawn once for each sum, with other draws between
        torch.testing.assert_close(numbers(losses(masked)), numbers(losses(plain)), rtol=1e-7, atol=1e-9)
    told = masked.training.wire.ledger.table().to_pylist()
    up = {
        line["event"] for line in told if line["kind"] in ("parameters", "gradients") and line["receiver"] == "server"
    }
    assert up and all("masked, added up by the server over 4 silos" in event for event in up)
    monkeypatch.setattr(server_masks, "keystream", lambda key, words, device: torch.zeros(words, dtype=torch.int64))
    unmasked = run_method(method, GRAPH, FOUR, 4, "gcn", {**options, "protect": protect})
    assert losses(masked) == losses(unmasked)
    mine, theirs = parameters(masked), parameters(unmasked)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_the_server_gets_no_sum_of_features_and_no_label_count_of_one_device() -> None:
    """One device a silo: its statistics are what its node has, and what is plain tells of its split and scores."""
    options = {"protect": {"name": "fixed-point,shares,masks,server-masks"}}
    result = run_method("hifgl", small_graph(12, 40), torch.arange(12), 12, "gcn", options, epochs=1)
    told = result.training.wire.ledger.table().to_pylist()
    plain = [line for line in told if line["receiver"] == "server" and "masked" not in line["event"]]
    assert {line["kind"] for line in plain} == {"schema", "statistics", "metrics"}
    counts = [line["bytes"] // line["messages"] for line in plain if line["kind"] == "statistics"]
    assert counts == [8] * len(counts)  # one number each: how many nodes are in a split


def test_agreed_moments_and_their_derivatives_are_masked_too() -> None:
    """Batch normalisation over all silos, forwards and backwards."""
    given: dict[str, Any] = {"batches": "joint", "model_options": {"norm": "batch"}}
    masked, plain = (run_method("sync-sgd", GRAPH, FOUR, 4, "gcn", options, **given) for options in (MASKED, {}))
    torch.testing.assert_close(numbers(losses(masked)), numbers(losses(plain)), rtol=1e-6, atol=1e-8)
    steps = [
        line["event"]
        for line in masked.training.wire.ledger.table().to_pylist()
        if line["kind"] == "statistics" and line["purpose"] == "step" and line["receiver"] == "server"
    ]
    assert steps and all("masked" in event for event in steps)


def test_a_resumed_run_goes_on_with_the_same_numbers_and_draws_no_mask_twice() -> None:
    whole, again = resumed(lambda: open_method("fedavg", GRAPH, FOUR, 4, "gcn", MASKED, epochs=3), (1, 2))
    for each in again.values():
        assert losses(each) == losses(whole)[-len(losses(each)) :]
        assert each.training.wire.noise.draws == whole.training.wire.noise.draws > 0


# ---- refusals


def test_too_few_silos_are_refused_before_anything_leaves() -> None:
    with pytest.raises(IsthmusError, match=r"3 silos or more, and there are 2; use more silos, or protect.least=2"):
        run_method("fedavg", GRAPH, torch.arange(30) % 2, 2, "gcn", MASKED)
    run_method("fedavg", GRAPH, torch.arange(30) % 2, 2, "gcn", {"protect": {"name": "server-masks", "least": 2}})
    with pytest.raises(IsthmusError, match="there are 2; use more silos"):
        ServerMasks().seal(parcel(vectors(2)), noise())  # also where silos have gone since
    with pytest.raises(IsthmusError, match=r"protect.least is 1"):
        ServerMasks(1)


@pytest.mark.parametrize(
    ("method", "protect", "says"),
    [
        ("fed-pub", "server-masks", "sync=fed-pub has it compare each silo's"),
        ("local", "server-masks", "none reach it"),
        ("fedavg", "server-masks,gaussian", "put it last"),
        ("hifgl", "server-masks,fixed-point,shares,masks", "put it last"),
    ],
)
def test_masks_that_would_hide_nothing_are_refused(method: str, protect: str, says: str) -> None:
    with pytest.raises(IsthmusError, match=says):
        resolve({"method": method, "model": {"name": "gcn"}, "protect": {"name": protect}})


def test_the_chain_knows_who_weighs() -> None:
    chain = Chain((ServerMasks(),))
    assert chain.weighs(Kind.PARAMETERS) and not chain.weighs(Kind.METRICS) and chain.of_totals
    assert not Chain().weighs(Kind.PARAMETERS) and not Chain().of_totals
