"""Hosts as threads of this process that exchange letters through queues."""

import threading
import traceback
from collections import defaultdict
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any

from isthmus.core.errors import HostLost
from isthmus.wire.letters import Courier, LetterWire
from isthmus.wire.membership import Membership
from isthmus.wire.wire import Wire

Post = dict[tuple[int, int], "Queue[tuple[int, bytes]]"]  # (sender, receiver) -> numbered letters


class QueueCourier(Courier):
    """Carries letters through queues that all hosts of a process share; it fails where numbers do not ascend."""

    def __init__(self, host: int, hosts: int, post: Post, timeout: float = 30) -> None:
        self.host, self.hosts, self.post, self.timeout = host, hosts, post, timeout

    def send(self, host: int, number: int, letter: bytes) -> int:
        self.post[self.host, host].put((number, letter))
        return len(letter)

    def receive(self, host: int, number: int) -> bytes:
        try:
            found, letter = self.post[host, self.host].get(timeout=self.timeout)
        except Empty as error:
            raise HostLost(f"host {host} stays silent") from error
        if found < 0:
            raise HostLost(letter.decode())
        assert found == number, f"letter {found} came where {number} was due"
        return letter

    def tell(self, problem: str) -> None:
        for host in range(self.hosts):
            self.post[self.host, host].put((-1, problem.encode()))


def in_threads(members: Membership, work: Callable[[Wire], Any]) -> list[Any]:
    """What ``work`` returns on the wire of every host, in host order; raises the first failure of a host."""
    post: Post = defaultdict(Queue)
    hosts = 1 + max(members.server, *members.homes)
    for pair in ((a, b) for a in range(hosts) for b in range(hosts)):
        post[pair] = Queue()
    results: dict[int, Any] = {}
    failures: dict[int, str] = {}

    def live(host: int) -> None:
        wire = LetterWire(members, host, QueueCourier(host, hosts, post))
        try:
            results[host] = work(wire)
            wire.close_down()
        except BaseException:
            failures[host] = traceback.format_exc()
            wire.end(f"host {host} has failed")

    threads = [threading.Thread(target=live, args=(host,)) for host in range(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, "\n".join(f"host {host}: {told}" for host, told in failures.items())
    return [results[host] for host in range(hosts)]
