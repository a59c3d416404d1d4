"""The torch.distributed wire: one process (host) carries one silo or several; gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from isthmus.errors import IsthmusError
from isthmus.protect.base import Protect
from isthmus.wire.base import Wire
from isthmus.wire.ledger import SERVER, Kind

_T = TypeVar("_T")
_DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bfloat16, torch.int16)
_HEADER = 7  # sender, receiver, number format, dimensions, and up to three sizes
_BEAT = 0.5  # seconds between signs of life


class HostLost(IsthmusError):
    """Another host died or stalled."""


def silos_of_host(host: int, hosts: int, silos: int) -> range:
    """Silos are dealt to hosts in contiguous runs, so that host order is silo order."""
    return range(host * silos // hosts, (host + 1) * silos // hosts)


class DistributedWire(Wire):
    """Parcels travel in one ``all_to_all_single`` of bytes; sums are gathered by the server's host and sent back."""

    def __init__(self, silos: int, timeout: float, device: str = "cpu", protect: Protect | None = None) -> None:
        self.host, self.hosts = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        super().__init__(silos, silos_of_host(self.host, self.hosts, silos), protect)
        self.timeout = timeout
        self._home = {silo: h for h in range(self.hosts) for silo in silos_of_host(h, self.hosts, silos)} | {SERVER: 0}
        self.device = torch.device(device)
        store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=self.host == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            timeout=timedelta(seconds=timeout),
        )
        dist.init_process_group(
            "nccl" if self.device.type == "cuda" else "gloo",
            store=store,
            rank=self.host,
            world_size=self.hosts,
            timeout=timedelta(seconds=timeout),
        )
        self._pulse = _Pulse(store, self.host, self.hosts)

    def _deliver(self, kind: Kind, parcels: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        home = self._home
        stay = {key: x for key, x in parcels.items() if home[key[1]] == self.host}
        outgoing = [pack({k: x for k, x in parcels.items() if home[k[1]] == h != self.host}) for h in range(self.hosts)]
        arrived, sizes = self._swap_sized(kind, torch.cat(outgoing), [len(buffer) for buffer in outgoing])
        for buffer in arrived.cpu().split(sizes):
            stay.update(unpack(buffer))
        return stay

    def home(self, party: int) -> int:
        """The server lives on host 0, silos in contiguous runs."""
        return self._home[party]

    def _swap(self, kind: Kind, rows: Tensor, leaving: list[int], arriving: list[int]) -> Tensor:
        got = torch.empty((sum(arriving), *rows.shape[1:]), dtype=rows.dtype, device=self.device)
        sent = rows.contiguous().to(self.device)
        self._guard(lambda: dist.all_to_all_single(got, sent, arriving, leaving))
        away = sum(leaving) - leaving[self.host]
        self.ledger.carry(kind, away * sent.shape[1:].numel() * sent.element_size())
        return got.to(rows.device)

    def _swap_sized(self, kind: Kind, rows: Tensor, leaving: list[int]) -> tuple[Tensor, list[int]]:
        sizes = torch.tensor(leaving, device=self.device)
        coming = torch.empty_like(sizes)
        self._guard(lambda: dist.all_to_all_single(coming, sizes))
        self.ledger.carry(kind, 8 * (self.hosts - 1))
        arriving = coming.tolist()
        return self._swap(kind, rows, leaving, arriving), arriving

    def _sum_hosts(self, kind: Kind, x: Tensor, per_silo: bool) -> Tensor:
        sizes = [len(silos_of_host(h, self.hosts, self.silos)) if per_silo else 1 for h in range(self.hosts)]
        payload = x.contiguous().to(self.device)
        if self.serves:
            parts = [torch.empty((n, *x.shape[1:]), dtype=x.dtype, device=self.device) for n in sizes]
            parts[0] = payload
            for host in range(1, self.hosts):
                self._guard(lambda host=host: dist.recv(parts[host], src=host))  # type: ignore[misc]
            result = torch.cat(parts).sum(0)
        else:
            self._guard(lambda: dist.send(payload, dst=0))
            self.ledger.carry(kind, payload.numel() * payload.element_size())
            result = torch.empty(x.shape[1:], dtype=x.dtype, device=self.device)
        self._guard(lambda: dist.broadcast(result, src=0))
        if self.serves:
            self.ledger.carry(kind, (self.hosts - 1) * result.numel() * result.element_size())
        return result.to(x.device)

    def _guard(self, collective: Callable[[], _T]) -> _T:
        """Run a collective; when it breaks, say which host is gone instead of what a socket said."""
        self._pulse.calls += 1
        started = time.perf_counter()
        try:
            return collective()
        except (RuntimeError, ValueError) as error:
            raise HostLost(self._pulse.diagnose(self.timeout, str(error))) from error
        finally:
            self.seconds += time.perf_counter() - started

    def close_down(self) -> None:
        """Leave the group together; a host that left early would look like a dead one to the others."""
        self._guard(dist.barrier)
        self._pulse.stop()
        dist.destroy_process_group()


class _Pulse:
    """Signs of life in the shared store: a beat counter, and how many collectives this host has entered."""

    def __init__(self, store: TCPStore, host: int, hosts: int) -> None:
        self.store, self.host, self.hosts, self.calls = store, host, hosts, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        beat = 0
        while not self._stop.wait(_BEAT):
            beat += 1
            try:
                self.store.set(f"pulse/{self.host}", f"{beat} {self.calls}")
            except (RuntimeError, ValueError):
                return

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join(timeout=2 * _BEAT)

    def diagnose(self, timeout: float, error: str) -> str:
        """Name the hosts that stopped beating, or else the one that entered the fewest collectives."""
        try:
            before = self._read()
            time.sleep(5 * _BEAT)
            after = self._read()
        except (RuntimeError, ValueError):
            return (
                "Host 0 (the server's) is gone: its store does not answer. The last checkpoint is intact; use --resume."
            )
        others = [h for h in range(self.hosts) if h != self.host]
        silent = [h for h in others if before.get(h) == after.get(h)]
        late = [h for h in others if h in after and after[h][1] < self.calls]
        if silent:
            what = f"{_hosts(silent)} stopped giving signs of life"
        elif late:
            what = f"{_hosts(late)} did not arrive within the timeout of {timeout:g} s"
        else:
            what = f"the connection to another host broke ({error.splitlines()[0][:200]})"
        return f"{what}. This run stops; the last checkpoint is intact, continue with --resume."

    def _read(self) -> dict[int, tuple[int, int]]:
        pulses: dict[int, tuple[int, int]] = {}
        for host in range(self.hosts):
            if host != self.host and self.store.check([f"pulse/{host}"]):
                beat, calls = self.store.get(f"pulse/{host}").decode().split()
                pulses[host] = int(beat), int(calls)
        return pulses


def _hosts(numbers: list[int]) -> str:
    return ("Host " if len(numbers) == 1 else "Hosts ") + ", ".join(map(str, numbers))


def pack(parcels: dict[tuple[int, int], Tensor]) -> Tensor:
    """Parcels as plain bytes: the number of parcels, a header for each, then the payloads. No pickle."""
    header = [[s, r, _DTYPES.index(x.dtype), x.dim(), *x.shape, *[0] * (3 - x.dim())] for (s, r), x in parcels.items()]
    head = torch.tensor([len(header), *sum(header, [])], dtype=torch.int64)
    bodies = [x.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for x in parcels.values()]
    return torch.cat([head.view(torch.uint8), *bodies]) if parcels else torch.empty(0, dtype=torch.uint8)


def unpack(buffer: Tensor) -> dict[tuple[int, int], Tensor]:
    """The inverse of :func:`pack`."""
    if not len(buffer):
        return {}
    count = int(buffer[:8].clone().view(torch.int64))
    at = 8 * (1 + _HEADER * count)
    parcels = {}
    for sender, receiver, code, dims, *shape in buffer[8:at].clone().view(torch.int64).reshape(count, _HEADER).tolist():
        size = _DTYPES[code].itemsize
        for length in shape[:dims]:
            size *= length
        body = buffer[at : at + size].clone().view(_DTYPES[code])
        parcels[sender, receiver] = body.reshape(shape[:dims])
        at += size
    return parcels
