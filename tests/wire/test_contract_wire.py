"""Wires keep the contract, in one process and on several hosts, and the contract catches wires that do not."""

import traceback
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from torch import Tensor

from isthmus.core.kinds import Kind
from isthmus.testing import WireContract
from isthmus.testing.wire_truths import TRUTHS
from isthmus.wire.local import LocalWire
from isthmus.wire.wire import Letters, Wire
from tests.helpers.hosts import on_hosts, on_wire

SILOS = WireContract.silos


class TestLocalWire(WireContract):
    part = LocalWire


class TestLocalWireOfOneSilo(WireContract):
    part, silos = LocalWire, 1


def every_truth(wire: Wire) -> dict[str, tuple[bool, Any]]:
    """What each truth returned on this host, or where it failed; what comes after a failure is not tried."""
    told: dict[str, tuple[bool, Any]] = {}
    for truth in TRUTHS:
        try:
            told[truth.__name__] = True, truth(wire)
        except Exception:
            told[truth.__name__] = False, traceback.format_exc()
            break
    return told


@cache
def of_hosts(hosts: int) -> list[dict[str, tuple[bool, Any]]]:
    """All truths on hosts of their own, which are started once."""
    return on_hosts(hosts, on_wire, SILOS, every_truth)


@pytest.mark.hosts
class TestDistributedWire(WireContract):
    @pytest.fixture(autouse=True, params=[2, SILOS, SILOS + 1], ids=["two", "one each", "server alone"])
    def make(self, request: pytest.FixtureRequest) -> None:
        self.hosts = request.param

    def everywhere(self, truth: Callable[[Wire], Any]) -> list[Any]:
        told = [host.get(truth.__name__, (False, "not reached")) for host in of_hosts(self.hosts)]
        for number, (kept, found) in enumerate(told):
            assert kept, f"host {number}: {found}"
        return [found for _, found in told]


# ---- the contract can fail


def broken(make: type[Wire]) -> WireContract:
    """The contract of a wire that breaks it."""
    contract = WireContract()
    contract.part = make
    return contract


class Backwards(LocalWire):
    """Adds silos up from the last to the first."""

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        return x.flip(0).sum(0)


class Hands(LocalWire):
    """Hands out what its sender holds."""

    def post(self, kind: Kind, letters: Letters) -> dict[tuple[int, int], Tensor]:
        super().post(kind, letters)
        return dict(sorted(letters.items()))


class OffTheBooks(LocalWire):
    """Sums what the ledger never hears of."""

    def total(self, kind: Kind, x: Tensor, weights: Tensor | None = None) -> Tensor:
        with self.ledger.unrecorded():
            return super().total(kind, x, weights)


class OneWay(LocalWire):
    """Returns twice the adjoints."""

    def move(self, kind: Kind, rows: Tensor, *given: Any) -> Tensor:
        return super().move(kind, rows, *given) * (2 if kind == Kind.ADJOINTS else 1)


class Mixed(LocalWire):
    """Delivers rows, but not the ids that ask for them, in another order."""

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        return rows if kind == Kind.IDS else rows.roll(1, 0)


class Unweighted(LocalWire):
    def total(self, kind: Kind, x: Tensor, weights: Tensor | None = None) -> Tensor:
        return super().total(kind, x)


@pytest.mark.parametrize(
    ("wire", "test", "match"),
    [
        (Backwards, "a_total_is_the_sum_in_silo_order", "a total is"),
        (Unweighted, "a_total_is_the_sum_in_silo_order", "a weighted total is"),
        (Hands, "a_letter_is_a_copy", "the letter of 0"),
        (OffTheBooks, "every_byte_is_in_the_ledger", "the ledgers have"),
        (OneWay, "the_way_back_is_the_transpose", "<Ax, y> is"),
        (Mixed, "rows_arrive_where_they_are_held", "a row that crossed is"),
        (Mixed, "partials_are_merged_by_the_server", "not close"),
    ],
    ids=lambda given: given.__name__ if isinstance(given, type) else "",
)
def test_a_broken_wire_is_caught(wire: type[Wire], test: str, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        partial(getattr(WireContract, f"test_{test}"), broken(wire))()
