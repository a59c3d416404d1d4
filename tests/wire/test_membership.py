"""Who lives where: silos in contiguous runs, the server with the first of them, or alone where a host is left over."""

import pytest

from isthmus.core.errors import IsthmusError
from isthmus.core.kinds import SERVER
from isthmus.wire.membership import Membership


@pytest.mark.parametrize("silos", [1, 2, 5, 7])
def test_every_silo_has_one_home_and_host_order_is_silo_order(silos: int) -> None:
    for hosts in range(1, silos + 2):
        members = Membership.dealt(silos, hosts)
        dealt = [members.on(host) for host in range(hosts)]
        assert [silo for mine in dealt for silo in mine] == list(range(silos))
        assert all(members.home(silo) == host for host, mine in enumerate(dealt) for silo in mine)
        assert members.home(SERVER) == 0 and members.hosts == tuple(range(hosts)) and members.complete
        sizes = [len(mine) for mine in dealt[hosts > silos :]]
        assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1
        assert members.shared_with_server == dealt[0]


def test_with_one_host_more_than_silos_the_server_lives_alone() -> None:
    members = Membership.dealt(3, 4)
    assert [members.on(host) for host in range(4)] == [(), (0,), (1,), (2,)]
    assert members.shared_with_server == ()


@pytest.mark.parametrize("hosts", [0, 5, 9])
def test_a_host_without_a_party_is_refused(hosts: int) -> None:
    with pytest.raises(IsthmusError, match=f"--hosts {hosts}, but there are only 3 silos.*at most 4 hosts"):
        Membership.dealt(3, hosts)


def test_only_those_present_are_counted_and_the_server_always_is() -> None:
    members = Membership.dealt(5, 6).only([4, 1, 4])
    assert members.present == (1, 4) and not members.complete and members.silos == 5
    assert members.hosts == (0, 2, 5) and members.on(3) == () and members.on(5) == (4,)
    for nobody in ([], [5], [-1, 0]):
        with pytest.raises(IsthmusError, match=r"silos 0\.\.4, and at least one"):
            members.only(nobody)
