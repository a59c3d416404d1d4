"""HiFGL with more than two holders of each row: exact, read by no T of them, and refused where there are too few."""

from itertools import combinations
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from isthmus.audit.visibility import violations
from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind, silo_of_devices
from isthmus.methods.exchange.hifgl import LiveSecretMessages, check_holders
from isthmus.protect.base import Chain
from isthmus.protect.field import PRIME, from_field, interpolate
from isthmus.protect.fixed_point import FixedPoint
from isthmus.protect.shares import Shares
from isthmus.wire.door import Door
from isthmus.wire.local import LocalWire
from isthmus.wire.neighbour_sums import Lanes
from tests.helpers.small import losses, open_method, parameters, run_method, small_graph

GRAPH, FOUR = small_graph(30, 140), torch.arange(30) % 4
DOUBTED = 1e-4


def chain(threshold: int) -> dict[str, Any]:
    return {"protect": {"threshold": threshold}}


@pytest.mark.parametrize("threshold", [2, 3])
@pytest.mark.parametrize("sync", ["fedavg", "sync-sgd"])
def test_shares_of_any_degree_change_no_bit(threshold: int, sync: str) -> None:
    whole, shared = (
        run_method("hifgl", GRAPH, FOUR, 4, "gcn", {"sync": {"name": sync}, **protect})
        for protect in ({"protect": {"name": "fixed-point,masks"}}, chain(threshold))
    )
    assert losses(whole) == losses(shared) and whole.test.as_dict() == shared.test.as_dict()
    mine, theirs = parameters(shared), parameters(whole)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def lanes_of(threshold: int, silos: int = 4) -> Lanes:
    live = open_method("hifgl", GRAPH, torch.arange(30) % silos, silos, "gcn", chain(threshold)).stage.exchange
    assert isinstance(live, LiveSecretMessages)
    return live._around.inward


@pytest.mark.parametrize(("threshold", "silos"), [(2, 2), (2, 4), (3, 3), (3, 4)])
def test_no_two_shares_of_a_message_go_to_one_party(threshold: int, silos: int) -> None:
    """For each pair of silos with an edge between their devices, T + 1 receivers, and one of them is a device."""
    source, target = (torch.arange(30) % silos)[GRAPH.edge_index]
    holders, zeros = lanes_of(threshold, silos).holders, 0
    assert len(holders) == threshold + 1
    for k, traffic in enumerate(holders):
        found = torch.zeros(silos, silos, dtype=torch.int64)
        for sender, receiver, rows in zip(traffic.sender, traffic.receiver, traffic.rows, strict=True):
            owner = silo_of_devices(int(receiver))
            assert (owner is None) == (k > 0)
            found[silo_of_devices(int(sender)), int(receiver) if owner is None else owner] += int(rows)
        # share k >= 1 of a message to a device of silo s goes to silo s + k - 1
        expected = torch.zeros(silos, silos, dtype=torch.int64)
        to = (target + max(k - 1, 0)) % silos
        expected.index_put_((source, to), torch.ones_like(source), accumulate=True)
        padding = found - expected
        assert bool((padding >= 0).all()) and (k > 0 or not padding.any())
        zeros = zeros or int(padding.sum())
        assert int(padding.sum()) == (zeros if k else 0)


def test_each_holder_s_sums_go_to_the_silo_of_the_target() -> None:
    up = lanes_of(3).up
    assert [silo_of_devices(int(party)) for party in up[0].sender] == up[0].receiver.tolist() == [0, 1, 2, 3]
    assert [each.sender.tolist() for each in up[1:]] == [[1, 2, 3, 0], [2, 3, 0, 1]]
    assert all(each.receiver.tolist() == [0, 1, 2, 3] for each in up)


# ---- what holders have


def overheard(monkeypatch: pytest.MonkeyPatch, threshold: int) -> tuple[Tensor, Tensor]:
    """The rows of the first messages of a run as whole numbers, and their shares as they left."""
    kept: list[tuple[Tensor, Tensor]] = []
    leave = Door.leave

    def noted(self: Door, kind: Kind, parcels: Any, carry: Any, *given: Any, **named: Any) -> Any:
        def carried(sealed: Any) -> Any:
            if kind == Kind.EMBEDDINGS and not kept:
                rows = FixedPoint().rounded(parcels[0].rows, kind)
                kept.append((rows[parcels[0].copies], sealed[0].clone()))
            return carry(sealed)

        return leave(self, kind, parcels, carried, *given, **named)

    monkeypatch.setattr(Door, "leave", noted)
    run_method("hifgl", GRAPH, FOUR, 4, "gcn", chain(threshold), epochs=1)
    return kept[0]


def looks_uniform(shares: Tensor) -> bool:
    return float(stats.kstest(shares.double().numpy().ravel() / PRIME, "uniform").pvalue) > DOUBTED


@pytest.mark.parametrize("threshold", [2, 3])
def test_any_t_holders_have_uniform_numbers_and_all_of_them_have_the_row(
    threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jointly, by a chi-square over the upper bits of each; and no interpolation of T of them opens anything."""
    rows, shares = overheard(monkeypatch, threshold)
    assert torch.equal(from_field(interpolate(shares)), rows)
    assert not looks_uniform(interpolate(shares))
    for held in combinations(range(threshold + 1), threshold):
        some = shares[:, list(held)]
        assert all(looks_uniform(some[:, k]) for k in range(threshold))
        code = ((some >> 60) * 2 ** torch.arange(threshold)[:, None]).sum(1).flatten()
        table = torch.bincount(code + 2**threshold * (rows.flatten() > 0), minlength=2 ** (threshold + 1))
        assert stats.chi2_contingency(table.reshape(2, -1).numpy()).pvalue > DOUBTED
        if threshold > 1:  # as if T of them were all there are
            assert not bool((from_field(interpolate(some)) == rows).any())


def test_the_table_of_who_may_see_what_holds() -> None:
    result = run_method("hifgl", GRAPH, FOUR, 4, "gcn", chain(3))
    ledger = result.training.wire.ledger.table().to_pylist()
    assert violations(ledger, {f"silo-{i}": 7 for i in range(4)}) == []
    between = {(line["sender"], line["receiver"]) for line in ledger if line["kind"] == "share-sums"}
    assert ("silo-1", "silo-0") in between and ("silo-2", "silo-0") in between
    assert ("silo-3", "silo-0") not in between  # four holders: a device, its silo and two more


# ---- refusals


def test_too_few_silos_to_hold_shares_are_refused() -> None:
    with pytest.raises(IsthmusError, match="a neighbour and 3 silos, but there are 2; use protect.threshold=2"):
        open_method("hifgl", GRAPH, torch.arange(30) % 2, 2, "gcn", chain(3))
    with pytest.raises(IsthmusError, match=r"protect.threshold is 4; it must lie in 1..3"):
        open_method("hifgl", GRAPH, FOUR, 4, "gcn", chain(4))


def test_several_hosts_are_refused() -> None:
    wire = LocalWire(4)
    wire.protect, wire.hosts = Chain((FixedPoint(), Shares(2))), 2
    with pytest.raises(IsthmusError, match="one process alone; use --hosts 1 or protect.threshold=1"):
        check_holders(wire)
