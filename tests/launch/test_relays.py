"""Hosts behind a relay that delays, drops or cuts what passes: late is late, and who is cut off is named by all."""

import os
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import Kind
from isthmus.launch import host as host_module
from isthmus.launch.processes import LOST, _explain
from isthmus.launch.start import Start
from isthmus.runs.config import resolve
from isthmus.runs.folder import RunFolder
from isthmus.wire import rendezvous
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.local import LocalWire
from isthmus.wire.pulse import Pulse
from isthmus.wire.roll_call import compare_settings
from tests.helpers.hosts import on_hosts
from tests.helpers.relays import RelayedStore, Trouble

VICTIM, TIMEOUT = 2, 9.0


def behind(host: int, ports: dict[str, int]) -> list[tuple[str, float]]:
    """What a host says in each trouble, and after how many seconds."""
    said = []
    for name, port in ports.items():
        os.environ["MASTER_PORT"] = str(port)
        said.append(in_trouble(host, name))
        while dist.is_initialized():
            time.sleep(0.01)
    return said


def in_trouble(host: int, name: str) -> tuple[str, float]:
    """Some sums over hosts, all connections of one of which get into trouble half-way; what is said, and when."""
    trouble, stores = Trouble(name, delay=0.003), list[RelayedStore]()
    plain = rendezvous.joined_store

    def relayed(*given: Any) -> RelayedStore:
        stores.append(RelayedStore(plain(*given), trouble))
        return stores[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendezvous, "joined_store", relayed)
        wire = DistributedWire(3, timeout=TIMEOUT)
    if host == VICTIM:
        stores[0].inner.set("victim", str(socket.ntohs(stores[0].own)))
    else:
        trouble.port = int(stores[0].inner.get("victim"))
    began = time.monotonic()
    try:
        for turn in range(8):
            found = wire.total(Kind.PARAMETERS, torch.ones(1, 4000))
            assert bool((found == 3).all())
            if turn == 3:
                trouble.begun.set()
        wire.close_down()
        return "", time.monotonic() - began
    except IsthmusError as error:
        wire.end(str(error))
        return str(error), time.monotonic() - began


@pytest.mark.hosts
def test_a_host_in_trouble_is_named_by_all_and_nobody_hangs() -> None:
    stores = {
        name: dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
        for name in ("delays", "drops", "cuts")
    }
    told = on_hosts(3, behind, {name: store.port for name, store in stores.items()})
    for name, each in zip(stores, zip(*told, strict=True), strict=True):
        assert all(seconds < TIMEOUT + 20 for _, seconds in each), (name, each)
        for words, _ in each:
            if name == "delays":
                assert words == ""
            else:
                assert words.startswith("The connection between hosts 0 and 2 broke") and "--resume" in words, name


def test_who_waits_for_one_that_waits_itself_is_not_to_blame() -> None:
    pulse = Pulse(dist.HashStore(), 1, 4)  # type: ignore[arg-type]
    pulse.stop()
    for host, peer in ((0, "2"), (2, "0"), (3, "x")):
        pulse.store.set(f"lost/{host}", peer)
    assert pulse._parted(0) == (0, 2) and pulse._parted(3) == (1, 3) and pulse._parted(None) == (0, 2)
    assert Pulse._parted(pulse, 2) == (0, 2)


def test_the_others_hear_of_an_error_and_nothing_of_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Heard(LocalWire):
        told = ""

        def end(self, problem: str) -> None:
            self.told = problem

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("account 4711 has no balance")

    monkeypatch.setattr(host_module, "_run_on", fail)
    wire = Heard(2)
    with pytest.raises(ZeroDivisionError):
        host_module.run_over(wire, Start(resolve({}), RunFolder(tmp_path)))
    assert wire.told == "The host of silo-0, silo-1 has ended by an error of its own (ZeroDivisionError)."


def test_a_host_that_its_transport_ended_is_not_blamed(tmp_path: Path) -> None:
    said = str(_explain([-signal.SIGABRT, LOST], tmp_path))
    assert "Host 0 was ended by its transport (SIGABRT)" in said and "another host" in said
    assert "Host 1 was killed (SIGKILL)" in str(_explain([LOST, -signal.SIGKILL], tmp_path))


def test_another_version_is_refused_by_name() -> None:
    here, there = {"version of isthmus": "0.2.0"}, {"version of isthmus": "0.3.1"}
    with pytest.raises(IsthmusError, match="version of isthmus is '0.2.0' on host 0 and '0.3.1' on host 1"):
        compare_settings([here, there])
