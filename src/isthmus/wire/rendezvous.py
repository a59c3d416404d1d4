"""Where hosts find each other: the store that they share, on one address of one interface, and who may read it."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import psutil
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from isthmus.core.errors import IsthmusError
from isthmus.wire.sealed_store import SealedStore
from isthmus.wire.token import Token

LOOPBACK = "127.0.0.1"
SECRET = "ISTHMUS_HOSTS_SECRET"  # of the processes that one command has started on its own machine


@dataclass(frozen=True)
class Rendezvous:
    """What a host knows once it has found the others: the store that they share, and its own number among them."""

    store: Store
    host: int
    hosts: int
    token: Token = field(default_factory=Token)
    close: Callable[[], None] = lambda: None  # ends what still answers late-comers


def meet_by_rank(timeout: float) -> Rendezvous:
    """Meet as the environment says (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), which torchrun sets."""
    host, hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    use_interface(interface_of(_way_to(address)))
    holds = host == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = listening_store(address, port, timeout) if holds else joined_store(address, port, timeout)
    except (RuntimeError, ValueError, OSError) as error:
        if holds:
            raise IsthmusError(
                f"Host 0 cannot listen at {address}:{port} ({_first_line(error)}); choose another MASTER_PORT on all "
                "hosts, or as MASTER_ADDR an address of host 0."
            ) from error
        raise IsthmusError(
            f"Host 0 is missing: nobody answered at {address}:{port} for {timeout:g} s. Start all {hosts} hosts with "
            "the same MASTER_ADDR and MASTER_PORT, the one with RANK=0 where MASTER_ADDR says."
        ) from error
    token = Token(os.environ.get(SECRET, "").encode())
    return Rendezvous(sealed(store, token, timeout), host, hosts, token)


def sealed(store: TCPStore, token: Token, timeout: float) -> Store:
    """The store behind a token, if there is one."""
    return SealedStore(store, token, timeout) if token.secret else store


def listening_store(address: str, port: int, timeout: float) -> TCPStore:
    """A store that listens at one address alone; port 0 is a free one."""
    listening = socket.create_server((address, port))
    port = listening.getsockname()[1]
    return TCPStore(
        address,
        port,
        is_master=True,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


def joined_store(address: str, port: int, timeout: float) -> TCPStore:
    """A connection to the store that listens at an address; waits until it does."""
    return TCPStore(address, port, is_master=False, timeout=timedelta(seconds=timeout), wait_for_workers=False)


def use_interface(name: str) -> None:
    """Let process groups that this process makes listen on one interface alone."""
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = name


def own_addresses() -> dict[str, str]:
    """The addresses of this machine, each with the name of its interface."""
    each = psutil.net_if_addrs().items()
    return {one.address: name for name, ends in each for one in ends if one.family == socket.AF_INET}


def interface_of(address: str) -> str:
    """The name of the interface that has an address; the whole loopback network has one interface."""
    known = own_addresses()
    if ipaddress.ip_address(address).is_loopback:
        address = LOOPBACK
    if address not in known:
        raise IsthmusError(f"{address} is no address of this machine, which has {', '.join(sorted(known))}.")
    return known[address]


def listening_place(asked: str | None, meet: str) -> str:
    """The address at which this party listens: on the loopback interface unless another was ``asked`` for."""
    if asked is None:
        if not ipaddress.ip_address(meet).is_loopback:
            raise IsthmusError(
                f"Parties meet at {meet}, but this one listens on the loopback interface, where no other machine can "
                "reach it. Give --listen the interface or address towards the others, like --listen wg0."
            )
        return LOOPBACK
    by_name = {name: address for address, name in own_addresses().items()}
    place = by_name.get(asked, asked)
    try:
        whole = ipaddress.ip_address(place).is_unspecified
    except ValueError as error:
        raise IsthmusError(f"--listen {asked} is no interface of this machine; it has {_choices()}.") from error
    if whole:
        raise IsthmusError(f"--listen {asked} would be all interfaces; name one of {_choices()}.")
    interface_of(place)
    return place


def _choices() -> str:
    return ", ".join(f"{name} ({address})" for address, name in own_addresses().items())


def _way_to(address: str) -> str:
    """The address of this machine from which packets to another address leave; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
        except OSError as error:
            raise IsthmusError(f"MASTER_ADDR {address} cannot be reached from here ({error}).") from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
