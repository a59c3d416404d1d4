"""Aggregates through a server that cannot read them: what a run equals, who gets what, and what is refused."""

from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.report.disclosure import protection
from isthmus.testing.runs import resumed
from isthmus.train.result import Result
from isthmus.train.training import Training
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts
from tests.helpers.small import losses, numbers, open_method, owners, parameters, run_method, small_graph

SAMPLED = {"batch": 4, "fanout": (2,), "epochs": 2}
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("fedgnn-g", "sage", {}, {}),
    ("fedgnn-g", "gcn", {"exchange": {"fewest": 2}}, {**SAMPLED, "fanout": (4,)}),
    ("swift-fedgnn", "gin", {"schedule": {"every": 2, "silos": 2}}, SAMPLED),
    ("fedgnn-pns", "gcn", {"schedule": {"period": 2}}, SAMPLED),
]
FIVE = torch.arange(30) % 5
FIVE[FIVE == 3] = 0  # silo 3 owns nothing


def run(
    method: str, model: str, protect: str, options: dict[str, Any], training: dict[str, Any], **more: Any
) -> Result:
    chain = {"protect": {"name": protect}} if protect else {}
    return run_method(method, small_graph(30, 140), FIVE, 5, model, {**options, **chain}, **training, **more)


@pytest.mark.parametrize(("method", "model", "options", "training"), CASES)
def test_shares_change_no_bit_and_fixed_point_little(
    method: str, model: str, options: dict[str, Any], training: dict[str, Any]
) -> None:
    plain, whole, shared = (
        run(method, model, protect, options, training) for protect in ("", "fixed-point", "fixed-point,shares")
    )
    assert losses(shared) == losses(whole) and shared.test.as_dict() == whole.test.as_dict()
    ours, theirs = parameters(shared), parameters(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    torch.testing.assert_close(numbers(losses(whole)), numbers(losses(plain)), rtol=1e-7, atol=0)
    assert abs(losses(whole)[0] - losses(plain)[0]) < 1e-9
    assert losses(whole) != losses(plain)


def test_a_coarser_step_moves_losses_further() -> None:
    plain = run("fedgnn-g", "gcn", "", {}, {"epochs": 1})
    coarse = run("fedgnn-g", "gcn", "", {"protect": {"name": "fixed-point", "fraction": 6}}, {"epochs": 1})
    assert 1e-6 < abs(losses(coarse)[0] - losses(plain)[0]) < 2**-5


Outcome = tuple[list[float], dict[str, int], str]


def on_many(host: int) -> list[Outcome]:
    """Some cases on one of several hosts."""
    wire = DistributedWire(5, timeout=60)
    done = cases(wire)
    wire.close_down()
    return done


def cases(wire: Wire | None) -> list[Outcome]:
    """Losses, bytes by kind and notes of some cases."""
    done = []
    for case in CASES[1:3]:
        if wire is not None:
            wire.ledger.__init__()  # type: ignore[misc]
        result = run(case[0], case[1], "fixed-point,shares", *case[2:], wire=wire)
        done.append((losses(result), result.bytes, " ".join(result.training.stage.exchange.notes())))
    return done


@pytest.mark.hosts
def test_one_host_and_three_are_equal() -> None:
    hosted = on_hosts(3, on_many)
    for (loss, by_kind, notes), *each in zip(cases(None), *hosted, strict=True):
        for hosted_loss, _, hosted_notes in each:
            torch.testing.assert_close(numbers(hosted_loss), numbers(loss), rtol=1e-11, atol=0)
            assert "The server ran in the process of silo-0, so that both shares" in hosted_notes
        assert "The server ran in the process" not in notes
        assert {kind: sum(sent.get(kind, 0) for _, sent, _ in each) for kind in by_kind} == by_kind


def test_who_gets_which_shares_is_in_the_ledger() -> None:
    result = run("fedgnn-g", "gcn", "fixed-point,shares", {}, {"epochs": 1, "evaluate_every": 9})
    lines = [line for line in result.training.wire.ledger.table().to_pylist() if line["purpose"] == "step"]
    rows = {}
    for line in lines:
        if line["kind"] in ("partials", "adjoints", "share-sums"):
            assert "Who holds one part of it alone reads nothing" in protection(line["event"])
            way = tuple("server" if line[end] == "server" else "silo" for end in ("sender", "receiver"))
            rows[*way, line["kind"]] = rows.get((*way, line["kind"]), 0) + line["rows"]
    partials, slots = rows["silo", "server", "partials"], rows["silo", "server", "adjoints"]
    assert partials > slots > 0
    assert rows == {
        ("silo", "server", "partials"): partials,  # first shares, one for each partial
        ("silo", "silo", "partials"): partials,  # second shares
        ("server", "silo", "share-sums"): slots + partials,  # sums of first shares; first shares of derivatives
        ("silo", "server", "adjoints"): slots,
        ("silo", "silo", "adjoints"): partials,  # a copy for every silo that added to a sum
    }
    legs = result.training.wire.ledger.leg_table().to_pydict()
    trips = [n for n, why in zip(legs["legs"], legs["purpose"], strict=True) if why == "step"]
    assert trips == [2 + 2 * (2 + 2)]  # no more than without shares


def test_aggregates_with_parts_of_one_silo_are_counted() -> None:
    graph = small_graph(30, 140)
    options: dict[str, Any] = {"protect": {"name": "fixed-point,shares"}}
    for silos, everything in ((2, True), (4, False)):
        result = run_method("fedgnn-g", graph, owners(silos), silos, "gcn", options, epochs=1)
        state = result.training.stage.exchange.state
        opened, handed = int(state["opened"].sum()), int(state["handed"][:, 0].sum())
        assert (opened == handed) == everything and opened > 0
        told = " ".join(result.training.stage.exchange.notes())
        assert f"{opened:,} of {handed:,} aggregates that silos opened" in told
    plain = run_method("fedgnn-g", graph, owners(2), 2, "gcn", epochs=1).training.stage.exchange
    assert "opened" not in plain.state and "that silos opened" not in " ".join(plain.notes())


def test_a_resumed_run_goes_on_with_the_same_numbers_and_draws_no_share_twice() -> None:
    options: dict[str, Any] = {"protect": {"name": "fixed-point,shares"}}

    def opened() -> Training:
        return open_method(
            "swift-fedgnn", small_graph(30, 140), owners(3), 3, "gcn", options, **{**SAMPLED, "epochs": 3}
        )

    whole, again = resumed(opened, (1, 2))
    for each in again.values():
        assert losses(each) == losses(whole)[-len(losses(each)) :]
        assert all(torch.equal(value, each.last[name]) for name, value in whole.last.items())
        assert each.training.wire.noise.draws == whole.training.wire.noise.draws > 0


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("pna", {}, {}, "pna reads maxima of neighbours' rows"),
    ("sage", {"options": {"aggregate": "max"}}, {}, "sage with model.aggregate=mean"),
    ("gcn", {}, {"protect": {"threshold": 2}}, "divides each row among 3 holders"),
    ("gcn", {}, {"protect": {"most": 2}}, "has parts of 3 silos, but protect.most=2"),
    ("gcn", {}, {"score": "across"}, "protect=shares opens sums alone"),
]


@pytest.mark.parametrize(("model", "shape", "options", "message"), REFUSED)
def test_what_cannot_be_added_up_is_refused(
    model: str, shape: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    chain = {"protect": {"name": "fixed-point,shares", **options.get("protect", {})}}
    with pytest.raises(IsthmusError, match=message):
        run("fedgnn-g", model, "", {**options, **chain}, {}, model_options=shape)
