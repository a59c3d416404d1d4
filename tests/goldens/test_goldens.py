"""Every method still has the losses, bytes and releases that were recorded."""

from typing import Any

import pytest
import torch

from tests.goldens.cases import HOSTS, SILOS, cases, full_over, joined, outcome, read
from tests.goldens.record import measured
from tests.helpers.hosts import on_hosts, on_wire
from tests.helpers.small import numbers


def check(found: dict[str, Any], recorded: dict[str, Any], name: str, rtol: float = 1e-12) -> None:
    torch.testing.assert_close(numbers(found["losses"]), numbers(recorded["losses"]), rtol=rtol, atol=0, msg=name)
    assert found["bytes"] == recorded["bytes"], name
    assert found["releases"] == recorded["releases"], name


@pytest.mark.parametrize("name", list(cases()))
def test_a_run_is_as_recorded(name: str) -> None:
    check(outcome(cases()[name]), read(1)[name], name)


@pytest.mark.hosts
@pytest.mark.parametrize("hosts", [hosts for hosts in HOSTS if hosts > 1])
def test_runs_on_several_hosts_are_as_recorded(hosts: int) -> None:
    recorded = read(hosts)
    found = measured(hosts)
    assert found.keys() == recorded.keys()
    for name in found:
        check(found[name], recorded[name], name)


@pytest.mark.hosts
def test_a_server_in_a_process_of_its_own_changes_nothing() -> None:
    """Four hosts for three silos: the first carries the server alone, and nothing of any silo leaves more often."""
    found = joined(on_hosts(SILOS + 1, on_wire, SILOS, full_over))
    assert len(found) > 20
    for name, each in found.items():
        check(each, read(1)[name], name, rtol=1e-11)
