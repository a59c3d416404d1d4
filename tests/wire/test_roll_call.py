"""Before anything crosses: who is here, and whether all were started with the same settings."""

import socket
from typing import Any

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.roll_call import compare_settings
from tests.helpers.hosts import on_hosts

SAME = {"method": "fedavg", "train.lr": 0.1, "seed": 3}
CASES: tuple[list[dict[str, Any]], ...] = (
    [SAME, SAME, {**SAME, "train.lr": 0.2}],
    [SAME, {**SAME, "method": "fedgcn", "seed": 4}, {**SAME, "exchange.hops": 2}],
    [SAME, SAME, SAME],
)


def start(host: int, cases: tuple[list[dict[str, Any]], ...]) -> list[str]:
    """What a host is told in each case; nothing where it could start."""
    said = []
    for settings in cases:
        try:
            DistributedWire(3, timeout=30, settings=settings[host]).close_down()
            said.append("")
        except IsthmusError as error:
            said.append(str(error))
    return said


@pytest.mark.hosts
def test_every_host_is_told_which_settings_differ() -> None:
    one, several, same = zip(*on_hosts(3, start, CASES), strict=True)
    assert len(set(one)) == len(set(several)) == 1  # all are told alike
    assert "train.lr is 0.1 on hosts 0, 1 and 0.2 on host 2" in one[0]
    assert "exchange.hops is not set on hosts 0, 1 and 2 on host 2" in several[0]
    assert "method is 'fedavg' on hosts 0, 2 and 'fedgcn' on host 1; seed is 3" in several[0]
    assert same == ("", "", "")


def test_of_many_differences_some_are_told_and_all_are_counted() -> None:
    with pytest.raises(IsthmusError, match=r"a is 0 on host 0 and 1 on host 1; b .*; c .*; and 2 more\. Start all"):
        compare_settings([dict.fromkeys("abcde", 0), dict.fromkeys("abcde", 1)])


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (0, r"Host 1 \(silo 0\), host 2 \(silo 1\) are missing: 1 of 3 hosts came within 1 s\..*MASTER_PORT"),
        (2, r"Host 0 is missing: nobody answered at 127\.0\.0\.1:\d+ for 1 s\. Start all 3 hosts"),
    ],
)
def test_a_missing_member_is_named(host: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"RANK": host, "WORLD_SIZE": 3, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setattr(DistributedWire, "opened", False)  # it stays so for the tests that follow in this process
    with pytest.raises(IsthmusError, match=said):
        DistributedWire(2, timeout=1)
