"""The table of who may see what, over ledgers of real runs: HiFGL keeps it, and leaky variants are named."""

from collections import Counter
from typing import Any

import pytest
import torch

from isthmus.audit.visibility import DEVICE, SERVER, SILO, TABLE, role, violations
from isthmus.core.kinds import Kind
from tests.helpers.small import run_method, small_graph

GRAPH, THREE = small_graph(30, 140), torch.arange(30) % 3


def lines(method: str = "hifgl", **options: Any) -> list[dict[str, Any]]:
    """The ledger of a run, from the handshake to its test."""
    result = run_method(method, GRAPH, THREE, 3, "gcn", options, epochs=2)
    told: list[dict[str, Any]] = result.training.wire.ledger.table().to_pylist()
    return told


def cells(found: list[Any]) -> set[tuple[str, str]]:
    """Who received which kind, of what is forbidden."""
    return {(role(each.receiver), each.kind) for each in found}


@pytest.mark.parametrize("sync", ["fedavg", "sync-sgd"])
def test_every_cell_of_a_run_is_allowed(sync: str) -> None:
    ledger = lines(sync={"name": sync})
    assert violations(ledger, {f"silo-{i}": 10 for i in range(3)}) == []
    seen = Counter((role(line["sender"]), role(line["receiver"]), line["kind"]) for line in ledger)
    must = {(DEVICE, DEVICE, "embeddings"), (DEVICE, DEVICE, "adjoints"), (DEVICE, SILO, "gradients"),
            (DEVICE, SILO, "share-sums"), (SILO, DEVICE, "neighbour-sums"), (SILO, DEVICE, "parameters")}  # fmt: skip
    assert must <= seen.keys()  # the table is not kept by silence


def test_every_other_cell_is_forbidden() -> None:
    """Cell by cell: one message of each kind between each pair of parties passes where the table says so alone."""
    parties = {DEVICE: "devices of silo-0", SILO: "silo-0", SERVER: "server"}
    for (a, sender), (b, receiver) in ((x, y) for x in parties.items() for y in parties.items()):
        for kind in Kind if (a, b) != (SERVER, SERVER) else ():
            line = {"sender": sender, "receiver": receiver, "kind": kind.value, "rows": 1}
            how = TABLE[a, b].get(kind)
            for event in ("unprotected", "shares, 2 of which open", "masked, read as sums over groups of 64"):
                fits = (
                    how == "open"
                    or (how == "shares" and "shares" in event)
                    or (how == "masked sums" and "masked" in event)
                )
                assert (violations([{**line, "event": event}]) == []) == fits, (a, b, kind, event)


@pytest.mark.parametrize("kind", [Kind.FEATURES, Kind.LABELS, Kind.EDGES, Kind.PORTS, Kind.SCORES, Kind.IDS])
def test_what_a_device_holds_reaches_neither_silo_nor_server(kind: Kind) -> None:
    for receiver in ("silo-0", "silo-1", "server"):
        for sender in ("devices of silo-0", "silo-0", "silo-1"):
            line = {"sender": sender, "receiver": receiver, "kind": kind.value, "rows": 3, "event": "unprotected"}
            assert sender == receiver or violations([line]), line


OF_ROWS = {(DEVICE, "embeddings"), (DEVICE, "adjoints")}
OF_SUMS = {(SILO, "gradients"), (SILO, "metrics"), (SILO, "statistics")}


@pytest.mark.parametrize(
    ("protect", "leaks"),
    [
        ("nothing", OF_ROWS | OF_SUMS),
        ("fixed-point,shares", OF_SUMS),
        ("fixed-point,masks", OF_ROWS),
        ("masks", OF_ROWS),
    ],
    ids=["nothing", "without masks", "without shares", "masks alone"],
)
def test_leaky_variants_are_named(protect: str, leaks: set[tuple[str, str]]) -> None:
    found = violations(lines(protect={"name": protect}))
    assert cells(found) == leaks
    assert all(each.rows > 0 and str(each) for each in found)
    assert any("must leave as" in str(each) for each in found)


@pytest.mark.parametrize("method", ["sync-sgd+fwd-bwd-le", "swift-fedgnn", "fedsage+"])
def test_methods_for_silos_do_not_keep_the_table_of_devices(method: str) -> None:
    """Rows, ids or partial sums pass between silos and the server there."""
    assert cells(violations(lines(method)))


def one_each(sync: str, protect: str) -> list[dict[str, Any]]:
    """The ledger of a run with one device a silo: cross-device alone."""
    options = {"sync": {"name": sync}, "protect": {"name": f"fixed-point,shares,masks{protect}"}}
    result = run_method("hifgl", small_graph(12, 40), torch.arange(12), 12, "gcn", options, epochs=1)
    told: list[dict[str, Any]] = result.training.wire.ledger.table().to_pylist()
    return told


@pytest.mark.parametrize(("sync", "kind"), [("sync-sgd", "gradients"), ("fedavg", "parameters")])
def test_one_device_a_silo_needs_masks_at_the_server(sync: str, kind: str) -> None:
    """Else the server gets the gradient of one device, or its model; its silo is the device itself."""
    sizes = {f"silo-{i}": 1 for i in range(12)}
    ledger = one_each(sync, "")
    assert violations(ledger) == []  # as far as lines tell
    found = violations(ledger, sizes)
    assert cells(found) == {(SERVER, kind)}
    assert "a sum over 1 of its devices, fewer than 2" in str(found[0])
    assert violations(one_each(sync, ",server-masks"), sizes, least=12) == []
    assert cells(violations(one_each(sync, ",server-masks"), sizes, least=13)) == {(SERVER, kind)}


def test_a_silo_with_one_device_among_larger_ones_is_named() -> None:
    owner = torch.cat([torch.arange(29) % 2, torch.tensor([2])])
    result = run_method("hifgl", GRAPH, owner, 3, "gcn", {"sync": {"name": "sync-sgd"}}, epochs=1)
    ledger = result.training.wire.ledger.table().to_pylist()
    found = violations(ledger, {"silo-0": 15, "silo-1": 14, "silo-2": 1})
    assert cells(found) == {(SILO, "gradients"), (SERVER, "gradients")}


def test_gradients_of_another_silo_s_devices_are_named() -> None:
    line = {"sender": "devices of silo-0", "receiver": "silo-1", "kind": "gradients", "rows": 1,
            "event": "masked, read as sums over groups of 64"}  # fmt: skip
    assert "another silo" in str(violations([line])[0])
