"""Runs a function in several host processes of one group on loopback."""

import os
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp

from isthmus.wire.distributed import DistributedWire
from isthmus.wire.rendezvous import LOOPBACK, listening_store
from isthmus.wire.wire import Wire


def on_hosts(hosts: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """``work(host, *arguments)`` on each host; the results in host order, or the first error.

    Hosts are forks of one process that has imported what all of them need, which takes longer than most of the tests.
    """
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["isthmus.train.loop", "isthmus.wire.distributed", "isthmus.launch.host"])
    store = listening_store(LOOPBACK, 0, 60)
    queue = context.Queue()
    processes = [
        context.Process(target=_host, args=(h, hosts, store.port, queue, work, arguments)) for h in range(hosts)
    ]
    for process in processes:
        process.start()
    results: dict[int, Any] = {}
    try:
        for _ in processes:
            host, ok, value = queue.get(timeout=180)
            assert ok, f"host {host}:\n{value}"
            results[host] = value
    finally:
        for process in processes:
            process.join(timeout=10 if len(results) == hosts else 0)
            process.kill()
    return [results[host] for host in range(hosts)]


def on_wire(host: int, silos: int, work: Callable[[Wire], Any]) -> Any:
    """What a host does whose ``work`` needs nothing but a wire between ``silos``."""
    wire = DistributedWire(silos, timeout=60)
    done = work(wire)
    wire.close_down()
    return done


def _host(host: int, hosts: int, port: int, queue: Any, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ.update(
        RANK=str(host),
        WORLD_SIZE=str(hosts),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        TORCHELASTIC_USE_AGENT_STORE="True",
    )
    torch.set_num_threads(1)
    try:
        queue.put((host, True, work(host, *arguments)))
    except BaseException:
        queue.put((host, False, traceback.format_exc()))
