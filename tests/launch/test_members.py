"""What members of a run have in common, and what their hosts tell each other at its end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.data.write_parts import write_parts
from isthmus.graph.cut import split_graph
from isthmus.launch.ledgers import collect_ledgers
from isthmus.launch.settings import OF_HOST, common_settings
from isthmus.protect.base import Chain
from isthmus.protect.events import Events
from isthmus.protect.gaussian import Gaussian
from isthmus.protect.secrets import Noise, secrets_from_seed
from isthmus.runs.config import resolve
from isthmus.wire.books import COLUMNS
from isthmus.wire.wire import Wire
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import owners, small_graph

OTHERWISE: dict[str, dict[str, Any]] = {
    "data": {"folder": "elsewhere"},
    "system": {
        "device": "cuda",
        "threads": 3,
        "kernels": "plain",
        "timeout": 5.0,
        "log": "log.jsonl",
        "track": "tensorboard:tb",
    },
    "link": {"mbps": 10.0, "latency_ms": 30.0},
    "protect": {"sigma": 0.5, "clip": 1.0, "secrets": "random"},
}
BASE: dict[str, Any] = {"method": "optimes", "protect": {"sigma": 0.5, "clip": 1.0}}


def test_only_what_is_named_may_differ_from_host_to_host() -> None:
    assert {f"{table}.{key}" for table, keys in OTHERWISE.items() for key in keys} >= set(OF_HOST)
    here, there = (common_settings(resolve(recipe), resume=False) for recipe in (BASE, {**BASE, **OTHERWISE}))
    assert here == there


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"train": {"lr": 0.5}}, {"train": {"epochs": 7}}, {"dtype": "float64"}, {"protect": {"sigma": 0.0}}],
    ids=str,
)
def test_what_affects_results_may_not(change: dict[str, Any]) -> None:
    here, there = (common_settings(resolve(recipe), resume=False) for recipe in (BASE, {**BASE, **change}))
    assert here != there
    assert common_settings(resolve(BASE), resume=True) != here


def test_parts_may_lie_in_different_folders_but_must_be_of_the_same_silos(tmp_path: Path) -> None:
    silos = split_graph(small_graph(24, 60), owners(3, 24), 3)
    write_parts(silos, tmp_path / "a")
    write_parts(silos, tmp_path / "b")
    write_parts([replace(silo, name=f"bank-{silo.number}") for silo in silos], tmp_path / "c")
    a, b, c = (
        common_settings(resolve({"data": {"name": str(tmp_path / name)}}), resume=False) for name in ("a", "b", "c")
    )
    assert a == b != c


def tell(wire: Wire) -> tuple[list[str], dict[int, set[Events]], str]:
    """Two ends of a run: an honest one, and one at which the last host lies about who has sent."""
    if wire.host < 2:
        wire.protect = Chain((Gaussian(clip_parameters=1.0, sigma_parameters=2.0),))
        wire.noise = Noise(secrets_from_seed(0, wire.mine))
    wire.total(Kind.PARAMETERS, torch.ones(len(wire.mine), 4))
    collected = collect_ledgers(wire, ["All know.", f"Only host {wire.host} knows."])
    events = {silo: set(each) for silo, each in wire.ledger.treatments(Kind.PARAMETERS).items()}
    with pytest.MonkeyPatch.context() as patch:
        if wire.host == 2:
            wire.ledger.book("ledger")  # closes all pages
            wire.ledger.books.pages["ledger"][0][:, COLUMNS.index("sender")] = 0
            patch.setattr("isthmus.launch.ledgers._concerns", lambda lines, silo: lines[:, 0] >= 0)
        try:
            collect_ledgers(wire, [])
            said = ""
        except IsthmusError as error:
            said = str(error)
    return collected.notes, events, said


@pytest.mark.hosts
def test_the_server_hears_every_hosts_notes_and_ledger_and_refuses_lines_of_others() -> None:
    (notes, events, first), *others = on_hosts(3, on_wire, 3, tell)
    assert notes == ["All know.", *(f"On the host of silo-{i}: Only host {i} knows." for i in range(3))]
    assert [bool(*each) for each in events.values()] == [True, True, False]  # one silo's noise covers nobody else
    assert "silo-2 sent ledger lines of messages between other parties" in first
    assert all(said == first for *_, said in others)
