"""Every method still has the losses, bytes and releases that were recorded."""

from typing import Any

import pytest
import torch

from tests.goldens.cases import HOSTS, cases, outcome, read
from tests.goldens.record import measured
from tests.helpers.small import numbers


def check(found: dict[str, Any], recorded: dict[str, Any], name: str) -> None:
    torch.testing.assert_close(numbers(found["losses"]), numbers(recorded["losses"]), rtol=1e-12, atol=0, msg=name)
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
