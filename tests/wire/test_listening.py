"""Hosts listen on one interface, and prove the token to each other over the connections of their group."""

import os
from unittest.mock import patch

import psutil
import pytest

from isthmus.core.errors import PeerError
from isthmus.wire.distributed import DistributedWire
from isthmus.wire.rendezvous import SECRET
from isthmus.wire.token import Token
from tests.helpers.hosts import on_hosts


def listen(host: int) -> tuple[set[str], str]:
    """Addresses at which this host listens, and what it says of host 2, which does not know the token."""
    os.environ[SECRET] = "a secret of sixteen letters or more"
    true, said = Token.proof, ""

    def lying(token: Token, *words: str | bytes) -> bytes:
        return bytes(32) if host == 2 and words[0] == "member" else true(token, *words)

    with patch.object(Token, "proof", lying):
        try:
            DistributedWire(3, timeout=30)
        except PeerError as error:
            said = str(error)
    mine = psutil.Process().net_connections("inet")
    return {each.laddr.ip for each in mine if each.status == "LISTEN"}, said


@pytest.mark.hosts
def test_hosts_listen_on_loopback_alone_and_name_who_does_not_know_the_token() -> None:
    found = on_hosts(3, listen)
    assert all(open_at == {"127.0.0.1"} for open_at, _ in found)  # the group's connections were made by then
    for host, (_, said) in enumerate(found):
        whom = "silo-0" if host == 2 else "silo-2"  # the impostor cannot check the others either
        assert said == f"Whoever is connected in the place of {whom} does not know the token."
